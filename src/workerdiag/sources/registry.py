"""
Which sources beyond Dask have anything to say of a scene: the shipped ones and installed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any

from workerdiag.errors import describe_error
from workerdiag.model.evidence import EvidenceSource, Gap
from workerdiag.model.scene import Scene, Terms, terms_of

#: Entry point group: each is called with a `Scene` and returns a source, or None where it has
#: nothing to ask. A class whose constructor takes the scene will do.
ENTRY_POINT_GROUP = "workerdiag.sources"

#: The same for the shipped ones, as ``module:attribute``; each module imports little by itself.
SHIPPED: tuple[str, ...] = (
    "workerdiag.sources.host.source:HostSource.of",
    "workerdiag.sources.kubernetes:KubernetesSource.of",
    "workerdiag.sources.batch.slurm:SlurmSource.of",
    "workerdiag.sources.batch.pbs:PBSSource.of",
    "workerdiag.sources.batch.lsf:LSFSource.of",
    "workerdiag.sources.batch.sge:GridEngineSource.of",
    "workerdiag.sources.batch.htcondor:HTCondorSource.of",
    "workerdiag.sources.batch.oar:OARSource.of",
    "workerdiag.sources.batch.log_directory:LogDirectorySource.of",
    "workerdiag.sources.clouds.ec2:Ec2Source.of",
    "workerdiag.sources.clouds.ecs:EcsSource.of",
    "workerdiag.sources.clouds.gcp:GcpSource.of",
    "workerdiag.sources.clouds.azure:AzureSource.of",
    "workerdiag.sources.coiled:CoiledSource.of",
    "workerdiag.sources.stores.cloudwatch:CloudWatchSource.of",
    "workerdiag.sources.stores.loki:LokiSource.of",
    "workerdiag.sources.stores.journald:JournalSource.of",
)

SourceFactory = Callable[[Scene], EvidenceSource | None]


def factories() -> Iterator[tuple[str, SourceFactory | Gap]]:
    """
    Names of all kinds of sources, each with what makes one of a scene, or why it cannot be had.
    """
    for where in SHIPPED:
        module, _, attribute = where.partition(":")
        yield attribute.partition(".")[0], attrgetter(attribute)(import_module(module))
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        yield entry.name, _load_entry_point(entry)


def source_terms() -> list[tuple[str, Terms | Gap]]:
    """
    The terms of all kinds of sources by name, the most perishable first, or why one cannot be had.
    """
    usable: list[tuple[str, Terms]] = []
    broken: list[tuple[str, Gap]] = []
    for entry, factory in factories():
        if isinstance(factory, Gap):
            broken.append((entry, factory))
        else:
            kind = _factory_class(factory)
            usable.append((str(getattr(kind, "name", entry)), terms_of(kind)))
    return [*sorted(usable, key=lambda each: (each[1].lasts_s, each[0])), *broken]


def applicable_sources(scene: Scene) -> Iterator[EvidenceSource | Gap]:
    """
    The sources that have something to ask, and what went wrong with others, one by one.
    """
    for name, factory in factories():
        if isinstance(factory, Gap):
            yield factory
            continue
        try:
            source = factory(scene)
        except Exception as problem:  # noqa: BLE001  a source of others is a gap, never an error of ours
            yield _broken_source_gap(name, problem)
            continue
        if source is not None:
            yield source


def _factory_class(factory: object) -> object:
    """
    The class that a class method such as ``SlurmSource.of`` belongs to.
    """
    return getattr(factory, "__self__", factory)


def _load_entry_point(entry: EntryPoint) -> SourceFactory | Gap:
    try:
        loaded: Any = entry.load()
    except BaseException as problem:  # noqa: BLE001  any code may run there
        return _broken_source_gap(entry.name, problem)
    return loaded  # type: ignore[no-any-return]  # the group's promise


def _broken_source_gap(name: str, problem: BaseException) -> Gap:
    return Gap(
        source=name,
        reason="malformed",
        detail=f"the source could not be made: {describe_error(problem)}"[:500],
        remedy=f"repair or uninstall the package that registers {name!r} in {ENTRY_POINT_GROUP}",
    )
