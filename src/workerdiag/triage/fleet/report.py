"""The values of a fleet report: how many workers were lost, to what, where, with which versions, since when."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from math import sqrt
from typing import Literal

from attrs import field, frozen
from attrs.validators import and_, ge, le

from workerdiag.triage.tables import InputStatus

#: Version of the JSON format; it grows with each change that a reader could notice.
FLEET_SCHEMA = 1

#: The unit in which deaths are counted.
Period = Literal["hour", "day", "week"]
#: Kind of a file: a table that triage wrote, or a watcher's state.
TableKind = Literal["triage", "watcher"]
#: What is missing. ``file``: a file or folder, or the rest of a file. ``rows``: some rows of a file.
#: ``input``: a log that triage could not read. ``unseen``: a time in which a watcher did not see its cluster.
MissingPart = Literal["file", "rows", "input", "unseen"]
#: A program whose version is reported.
Package = Literal["distributed", "python"]


@frozen(kw_only=True)
class FleetTable:
    """A file that was read."""

    path: str
    kind: TableKind
    #: Number of deaths and stops in it, including those that other files have too.
    row_count: int = field(default=0, validator=ge(0))


@frozen(kw_only=True)
class FleetGap:
    """Something that could not be read or seen. All counts are then "at least"."""

    part: MissingPart
    path: str
    #: Which one, and what is wrong with it, in words.
    detail: str
    remedy: str = ""


@frozen(kw_only=True)
class PeriodCount:
    """The number of workers lost in one hour, day or week."""

    #: Its beginning in UTC, such as ``2026-11-23T08:00`` or ``2026-11-23``; a week begins on Monday.
    begin: str
    death_count: int


@frozen(kw_only=True)
class CauseShare:
    """One cause, with its share of all deaths."""

    #: Id of the cause; None: deaths with unknown causes, or causes that are only a guess.
    cause: str | None
    title: str
    family: str
    death_count: int
    #: Share of all deaths, from 0 to 1, and its interval.
    share: float
    interval: Interval
    #: Number of joint losses: workers lost together, on one host or in one cascade, are one joint loss.
    loss_count: int
    host_count: int = 0
    #: Run time of the tasks that ran when their worker died, in seconds: at least, since it is known for only
    #: *lost_known_count* deaths. None: not known for any.
    lost_compute_s: float | None = None
    lost_known_count: int = 0
    #: Seconds since the epoch; None: not known.
    first_at: float | None = None
    last_at: float | None = None
    #: Number of its deaths in the second half of the time (`FleetFindings.half_at`).
    late_count: int = 0
    #: Only hours, days or weeks in which workers were lost, oldest first.
    periods: tuple[PeriodCount, ...] = ()


@frozen(kw_only=True)
class HostShare:
    """A host on which workers were lost."""

    host: str
    death_count: int
    #: Its joint losses, and their share of all joint losses on named hosts (`FleetFindings.host_loss_count`).
    loss_count: int
    share: float
    #: The cause of most of its deaths; None: not known.
    cause: str | None
    cause_count: int


@frozen(kw_only=True)
class VersionShare:
    """The deaths under one version of a package."""

    package: Package
    #: The version; None: deaths with an unknown version.
    version: str | None
    death_count: int
    share: float
    interval: Interval
    cause: str | None
    cause_count: int
    first_at: float | None
    last_at: float | None


@frozen(kw_only=True)
class InputCount:
    """The number of parts of logs that a triage read, by how that ended."""

    status: InputStatus
    count: int


@frozen(kw_only=True)
class Unexplained:
    """Similar deaths for which no cause is likely, in logs that a triage read."""

    #: Key that the deaths have in common.
    case: str
    death_count: int
    #: How they ended: ``signal 9``, ``status 1`` or ``unknown``.
    exit: str
    #: Their first few logs, sorted.
    urls: tuple[str, ...]

    @property
    def draft_command(self) -> str:
        """Return the command that drafts a rule from their logs."""
        return shlex.join(["workerdiag", "knowledge", "draft", *self.urls])


@frozen(kw_only=True)
class FleetFindings:
    """What kills the workers of a fleet."""

    #: Number of workers lost, without those that were asked to stop.
    death_count: int
    #: Whether something could not be read or seen; each count is then "at least".
    is_partial: bool
    loss_count: int
    #: Number of workers that somebody asked to stop.
    requested_count: int
    #: Number of reports of deaths that another table has too.
    duplicate_count: int
    undated_count: int
    #: Number of cluster runs, of named hosts, and of joint losses there; a loss on two hosts counts twice.
    run_count: int
    host_count: int
    host_loss_count: int
    first_at: float | None
    last_at: float | None
    #: Middle of the time that the tables cover, and the number of deaths after it; None: there is one moment.
    half_at: float | None
    late_count: int
    lost_compute_s: float | None
    lost_known_count: int
    period: Period
    #: Most deaths first; deaths of unknown cause last.
    causes: tuple[CauseShare, ...] = ()
    #: Most losses first.
    hosts: tuple[HostShare, ...] = ()
    #: By package, most deaths first.
    versions: tuple[VersionShare, ...] = ()
    #: Most deaths first.
    unexplained: tuple[Unexplained, ...] = ()
    inputs: tuple[InputCount, ...] = ()
    tables: tuple[FleetTable, ...] = ()
    gaps: tuple[FleetGap, ...] = ()
    #: How it was counted, one or two sentences each.
    methods: tuple[str, ...] = ()


#: The two-sided 95 % quantile of the standard normal distribution.
_Z_95 = 1.959963984540054

_share = and_(ge(0.0), le(1.0))


@frozen(kw_only=True)
class Interval:
    """The 95 % confidence interval of a share, from 0 to 1."""

    low: float = field(validator=_share)
    high: float = field(validator=_share)


def wilson_interval(share: float, size: float) -> Interval:
    """Return the interval of a *share* observed in a sample of *size* independent observations.

    Wilson's score interval (E. B. Wilson, Journal of the American Statistical Association 22, 1927, 209-212).
    It stays within 0 and 1 and is valid for small samples, unlike the share plus or minus two standard errors
    (R. G. Newcombe, Statistics in Medicine 17, 1998, 857-872). Of dependent observations, *size* is their
    `effective_size`.
    """
    z2 = _Z_95**2
    center = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = _Z_95 / (1 + z2 / size) * sqrt(share * (1 - share) / size + z2 / (4 * size**2))
    return Interval(low=max(0.0, min(share, center - half)), high=min(1.0, max(share, center + half)))


def effective_size(group_sizes: Iterable[int]) -> float:
    """Return the number of independent observations worth as much as groups of identical observations.

    Kish's approximation, the square of the sum over the sum of squares (L. Kish, Survey Sampling, 1965).
    """
    sizes = list(group_sizes)
    return sum(sizes) ** 2 / sum(each**2 for each in sizes)
