"""
Which sources beyond Dask have anything to say of a scene: the shipped ones and installed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, Self

from workerdiag.errors import describe_error
from workerdiag.model.evidence import EvidenceSource, Gap
from workerdiag.model.scene import Scene, Terms, terms_of
from workerdiag.sources.batch.htcondor import HTCondorSource
from workerdiag.sources.batch.log_directory import LogDirectorySource
from workerdiag.sources.batch.lsf import LSFSource
from workerdiag.sources.batch.oar import OARSource
from workerdiag.sources.batch.pbs import PBSSource
from workerdiag.sources.batch.sge import GridEngineSource
from workerdiag.sources.batch.slurm import SlurmSource
from workerdiag.sources.clouds.azure import AzureSource
from workerdiag.sources.clouds.ec2 import Ec2Source
from workerdiag.sources.clouds.ecs import EcsSource
from workerdiag.sources.clouds.gcp import GcpSource
from workerdiag.sources.coiled import CoiledSource
from workerdiag.sources.host.source import HostSource
from workerdiag.sources.kubernetes import KubernetesSource
from workerdiag.sources.stores.cloudwatch import CloudWatchSource
from workerdiag.sources.stores.journald import JournalSource
from workerdiag.sources.stores.loki import LokiSource


class ShippedSource(EvidenceSource, Protocol):
    """
    A source that knows which scenes it applies to.
    """

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """
        The source for *scene*; None where it has nothing to ask.
        """


#: Entry point group: each is called with a `Scene` and returns a source, or None where it has
#: nothing to ask. A class whose constructor takes the scene will do.
ENTRY_POINT_GROUP = "workerdiag.sources"

#: The shipped ones; each module imports little by itself.
SHIPPED: tuple[type[ShippedSource], ...] = (
    HostSource,
    KubernetesSource,
    SlurmSource,
    PBSSource,
    LSFSource,
    GridEngineSource,
    HTCondorSource,
    OARSource,
    LogDirectorySource,
    Ec2Source,
    EcsSource,
    GcpSource,
    AzureSource,
    CoiledSource,
    CloudWatchSource,
    LokiSource,
    JournalSource,
)

SourceFactory = Callable[[Scene], EvidenceSource | None]


def factories() -> Iterator[tuple[str, SourceFactory | Gap]]:
    """
    Names of all kinds of sources, each with what makes one of a scene, or why it cannot be had.
    """
    for kind in SHIPPED:
        yield kind.__name__, kind.of
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
