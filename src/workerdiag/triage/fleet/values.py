"""The values of a fleet report: how many workers were lost, to what, where, with which versions, since when."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import ge

from workerdiag.triage.fleet.statistics import Interval

#: Version of the JSON format; it grows with each change that a reader could notice.
FLEET_SCHEMA = 1

#: ``new``: losses began after a time without any that is too long for chance. ``rising`` and ``falling``: the
#: second half of the time has more, or fewer, than chance explains. ``steady``: neither. ``too-few``: too few
#: to judge. ``undated``: the times are not known.
Trend = Literal["new", "rising", "falling", "steady", "too-few", "undated"]
#: The unit in which deaths are counted.
Period = Literal["day", "week"]
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
    """The number of workers lost in one day or week."""

    #: Its first day in UTC, such as ``2026-11-23``; a week begins on Monday.
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
    trend: Trend = "undated"
    #: P-value of *trend*, corrected for the number of causes; None: not tested.
    trend_p: float | None = None
    #: Only days, or weeks, in which workers were lost, oldest first.
    periods: tuple[PeriodCount, ...] = ()


@frozen(kw_only=True)
class HostLoad:
    """A host on which at least five workers were lost."""

    host: str
    death_count: int
    loss_count: int
    #: Its losses divided by the average losses of the other hosts in the tables.
    ratio: float
    #: Probability that chance alone gives a host this many, corrected for the number of hosts.
    p_value: float
    #: Whether it is far above the rate.
    is_above: bool
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
class FleetReport:
    """What kills the workers of a fleet, as text (``str()``), JSON (`to_json`) or HTML (`to_html`)."""

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
    #: Number of cluster runs, and of named hosts.
    run_count: int
    host_count: int
    first_at: float | None
    last_at: float | None
    lost_compute_s: float | None
    lost_known_count: int
    period: Period
    #: Most deaths first; deaths of unknown cause last.
    causes: tuple[CauseShare, ...] = ()
    #: Most deaths first; only hosts with at least five.
    hosts: tuple[HostLoad, ...] = ()
    #: By package, most deaths first.
    versions: tuple[VersionShare, ...] = ()
    tables: tuple[FleetTable, ...] = ()
    gaps: tuple[FleetGap, ...] = ()
    #: How shares, hosts and trends were computed, one sentence each.
    methods: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 80) -> str:
        """Return the report for a terminal of *width* columns, at least 40."""
        from workerdiag.triage.fleet.text import render_fleet

        return render_fleet(self, width=width)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, with the key ``schema`` first."""
        from workerdiag.triage.fleet.json import fleet_to_dict

        return fleet_to_dict(self)

    def to_json(self) -> str:
        """Return the report as JSON in ASCII."""
        from workerdiag.triage.fleet.json import fleet_to_json

        return fleet_to_json(self)

    def to_html(self) -> str:
        """Return the report as one HTML page that loads nothing."""
        from workerdiag.triage.fleet.page import fleet_page

        return fleet_page(self)
