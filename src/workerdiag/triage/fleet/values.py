"""
What a fleet report says: how many workers were lost, to what, where, with which versions, since when.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import ge

from workerdiag.triage.fleet.statistics import Interval

#: Shape of the JSON form; one more whenever a reader could notice.
FLEET_SCHEMA = 1

#: ``new``: there was none for longer than chance explains, then there were; ``rising`` and ``falling``: the
#: second half of the time has more, or fewer, than chance explains; ``steady``: neither; ``too-few``: not
#: enough to say; ``undated``: nobody knows when.
Trend = Literal["new", "rising", "falling", "steady", "too-few", "undated"]
#: What deaths are counted by.
Period = Literal["day", "week"]
#: What a file holds: a table that triage wrote, or a watcher's state.
TableKind = Literal["triage", "watcher"]
#: What is missing: a ``file`` or folder, or the rest of a file; ``rows`` of one; an ``input``, which is a log
#: that triage could not read; what was ``unseen``, as a watcher did not see its cluster.
MissingPart = Literal["file", "rows", "input", "unseen"]
#: A program whose version is reported.
Package = Literal["distributed", "python"]


@frozen(kw_only=True)
class FleetTable:
    """
    A file that was read.
    """

    path: str
    kind: TableKind
    #: Deaths and stops in it, also those that other files have too.
    row_count: int = field(default=0, validator=ge(0))


@frozen(kw_only=True)
class FleetGap:
    """
    What could not be read or looked at; whatever is counted is "at least" then.
    """

    part: MissingPart
    path: str
    #: For a person: which, and what is wrong with it.
    detail: str
    remedy: str = ""


@frozen(kw_only=True)
class PeriodCount:
    """
    How many workers were lost in one day or week.
    """

    #: Its first day by UTC, as ``2026-11-23``; a week begins on Monday.
    begin: str
    death_count: int


@frozen(kw_only=True)
class CauseShare:
    """
    One cause, and how much of all deaths it has.
    """

    #: Id of the cause; None: of deaths whose cause is not known, or only guessed.
    cause: str | None
    title: str
    family: str
    death_count: int
    #: Of all deaths, from 0 to 1, and its interval.
    share: float
    interval: Interval
    #: Workers that were lost together, on one host or in one cascade, are one joint loss.
    loss_count: int
    host_count: int = 0
    #: Seconds of tasks that ran when their worker died: at least, as it is known of *lost_known_count* deaths
    #: only. None: it is known of none.
    lost_compute_s: float | None = None
    lost_known_count: int = 0
    #: Seconds since the epoch; None: nobody knows.
    first_at: float | None = None
    last_at: float | None = None
    trend: Trend = "undated"
    #: Of *trend*, corrected for the number of causes; None where nothing was tested.
    trend_p: float | None = None
    #: Only days, or weeks, in which workers were lost, oldest first.
    periods: tuple[PeriodCount, ...] = ()


@frozen(kw_only=True)
class HostLoad:
    """
    A host on which at least five workers were lost.
    """

    host: str
    death_count: int
    loss_count: int
    #: Times as many losses as the other hosts in the tables have on average.
    ratio: float
    #: How likely chance alone gives one host this many, corrected for the number of hosts.
    p_value: float
    #: Whether it is far above the rate.
    is_above: bool
    #: The cause of most of its deaths; None: not known.
    cause: str | None
    cause_count: int


@frozen(kw_only=True)
class VersionShare:
    """
    The deaths under one version of a package.
    """

    package: Package
    #: None: of deaths whose version nobody noted.
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
    """
    What kills the workers of a fleet. ``str()`` gives text, `to_json` JSON, `to_html` a page.
    """

    #: Workers that were lost; those that were asked to stop are not.
    death_count: int
    #: Whether something could not be read or looked at: each count is "at least" then.
    is_partial: bool
    loss_count: int
    #: Workers that stopped because somebody asked for it.
    requested_count: int
    #: Reports of a death that another table has too.
    duplicate_count: int
    undated_count: int
    #: Cluster runs, and hosts that are named.
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
    #: How shares, hosts and trends were computed, a sentence each.
    methods: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 80) -> str:
        """
        The report for a terminal of this many columns; 40 at least.
        """
        from workerdiag.triage.fleet.text import render_fleet

        return render_fleet(self, width=width)

    def to_dict(self) -> dict[str, Any]:
        """
        The report as plain values, with the key ``schema`` first.
        """
        from workerdiag.triage.fleet.json import fleet_to_dict

        return fleet_to_dict(self)

    def to_json(self) -> str:
        """
        The report as JSON in ASCII.
        """
        from workerdiag.triage.fleet.json import fleet_to_json

        return fleet_to_json(self)

    def to_html(self) -> str:
        """
        The report as one page that loads nothing.
        """
        from workerdiag.triage.fleet.page import fleet_page

        return fleet_page(self)
