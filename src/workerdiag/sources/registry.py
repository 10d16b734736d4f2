"""Selects the sources beyond Dask that apply to a scene, from the shipped and the installed ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.evidence import EvidenceSource, Gap
from workerdiag.model.scene import Scene, Terms, terms_of
from workerdiag.sources.batch.jobs import SYSTEMS, find_jobs
from workerdiag.sources.machine import known_machine_names
from workerdiag.values import frozen

#: Entry point group: each is called with a `Scene`, and returns a source or None. A class whose constructor
#: takes the scene is one.
ENTRY_POINT_GROUP = "workerdiag.sources"

SourceFactory = Callable[[Scene], EvidenceSource | None]


def _after_a_death(scene: Scene) -> bool:
    return bool(scene.victims)


def _in_batch_jobs(scene: Scene) -> bool:
    return any(find_jobs(scene, each) is not None for each in SYSTEMS)


#: Classes of cluster objects, and the machine names of EC2 and Compute Engine.
_CLOUD_CLUSTERS = ("EC2Cluster", "ECSCluster", "GCPCluster", "AzureVMCluster", "coiled")
_CLOUD_NAME = re.compile(r"ip-|i-|.*\.internal$")


def _in_a_cloud(scene: Scene) -> bool:
    return scene.cluster_is(*_CLOUD_CLUSTERS) or any(map(_CLOUD_NAME.match, known_machine_names(scene)))


def _in_kubernetes(scene: Scene) -> bool:
    """Whether there may be a sign of Kubernetes: `KubernetesSource` looks closely, and takes long to import."""
    addresses = (
        getattr(getattr(scene.client, "scheduler", None), "address", None),
        scene.variable("DASK_SCHEDULER_ADDRESS"),
    )
    return (
        scene.cluster_is("dask_kubernetes", "KubeCluster", "HelmCluster")
        or any(isinstance(each, str) and ("svc" in each or "-scheduler" in each) for each in addresses)
        or any(
            each.environment.get("KUBERNETES_SERVICE_HOST") or any("kube" in path for path in each.cgroups.values())
            for each in scene.locations
        )
    )


@frozen
class ShippedKind:
    """A shipped kind of source, whose module is imported only for scenes that it may apply to."""

    #: Its class, below `workerdiag.sources`.
    path: str
    #: Whether it may apply to a scene; its class decides.
    may_apply: Callable[[Scene], bool] = lambda _: True

    def load(self) -> Any:
        """Import the class; its ``of(scene)`` returns the source for a scene, or None if it does not apply."""
        return resolve_name(f"workerdiag.sources.{self.path}")

    def __call__(self, scene: Scene) -> EvidenceSource | None:
        """Return the source for *scene*, or None if it does not apply."""
        source: EvidenceSource | None = self.load().of(scene) if self.may_apply(scene) else None
        return source


SHIPPED: tuple[ShippedKind, ...] = (
    ShippedKind("host.source:HostSource"),
    ShippedKind("kubernetes.source:KubernetesSource", _in_kubernetes),
    ShippedKind("batch.systems:SlurmSource", _in_batch_jobs),
    ShippedKind("batch.systems:PBSSource", _in_batch_jobs),
    ShippedKind("batch.systems:LSFSource", _in_batch_jobs),
    ShippedKind("batch.systems:GridEngineSource", _in_batch_jobs),
    ShippedKind("batch.systems:HTCondorSource", _in_batch_jobs),
    ShippedKind("batch.systems:OARSource", _in_batch_jobs),
    ShippedKind("batch.log_directory:LogDirectorySource", _in_batch_jobs),
    ShippedKind("clouds.ec2:Ec2Source", _in_a_cloud),
    ShippedKind("clouds.ecs:EcsSource", _in_a_cloud),
    ShippedKind("clouds.gcp:GcpSource", _in_a_cloud),
    ShippedKind("clouds.azure:AzureSource", _in_a_cloud),
    ShippedKind("coiled:CoiledSource", _in_a_cloud),
    ShippedKind("stores.cloudwatch:CloudWatchSource", _in_a_cloud),
    ShippedKind("stores.loki:LokiSource", _after_a_death),
    ShippedKind("stores.journald:JournalSource", _after_a_death),
)


def factories() -> Iterator[tuple[str, SourceFactory | Gap]]:
    """Yield the name of each kind of source, with its factory or the gap if it cannot be loaded."""
    for kind in SHIPPED:
        yield kind.path.partition(":")[2], kind
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        with guarded(f"loading the source {entry.name}") as loading:
            loaded: Any = entry.load()
        yield entry.name, loaded if loading.problem is None else _broken_source_gap(entry.name, loading.problem)


def source_terms() -> list[tuple[str, Terms | Gap]]:
    """Return the terms of all kinds of sources by name, the most perishable first, then gaps of broken ones."""
    usable: list[tuple[str, Terms]] = []
    broken: list[tuple[str, Gap]] = []
    for entry, factory in factories():
        if isinstance(factory, Gap):
            broken.append((entry, factory))
        else:
            of_method = getattr(factory, "__self__", factory)  # the class of a class method
            kind = factory.load() if isinstance(factory, ShippedKind) else of_method
            usable.append((str(getattr(kind, "name", entry)), terms_of(kind)))
    return [*sorted(usable, key=lambda each: (each[1].lasts_s, each[0])), *broken]


def applicable_sources(scene: Scene) -> Iterator[EvidenceSource | Gap]:
    """Yield the sources that apply, and gaps of broken ones, one by one."""
    for name, factory in factories():
        if isinstance(factory, Gap):
            yield factory
            continue
        source = None
        with guarded(f"making the source {name}") as making:  # an installed one may be broken
            source = factory(scene)
        if making.problem is not None:
            yield _broken_source_gap(name, making.problem)
        elif source is not None:
            yield source


def _broken_source_gap(name: str, problem: Exception) -> Gap:
    detail = f"the source could not be loaded: {describe_error(problem)}"[:500]
    remedy = f"repair or uninstall the package that registers {name!r} in {ENTRY_POINT_GROUP}"
    return Gap(source=name, reason="malformed", detail=detail, remedy=remedy)
