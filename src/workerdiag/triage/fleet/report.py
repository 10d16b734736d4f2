"""A fleet report: how many workers were lost, to what, where, with which versions, since when.

It is shown on a terminal, as JSON for programs, and as an HTML page that loads nothing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from math import sqrt
from typing import Literal

from attrs.validators import and_, ge, le

from workerdiag.rendering.html import render_page
from workerdiag.rendering.json import Schema, document_schema, to_document
from workerdiag.rendering.outline import Item, Outline, bounded_section, labelled_notes
from workerdiag.rendering.sparkline import blocks
from workerdiag.rendering.task_timeline import CandidateBar, share_bar
from workerdiag.rendering.text import render_outline
from workerdiag.rendering.wording import one_line, pluralize, printable_object
from workerdiag.triage.tables import InputStatus
from workerdiag.units import format_duration, format_time
from workerdiag.values import evolve, field, frozen

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
    #: Number of its deaths in the second half of the time (`FleetReport.half_at`).
    late_count: int = 0
    #: Only hours, days or weeks in which workers were lost, oldest first.
    periods: tuple[PeriodCount, ...] = ()


@frozen(kw_only=True)
class HostShare:
    """A host on which workers were lost."""

    host: str
    death_count: int
    #: Its joint losses, and their share of all joint losses on named hosts (`FleetReport.host_loss_count`).
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

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 80, color: bool = False) -> str:
        """Return it for a terminal of *width* columns, at least 40; with *color*, labels and titles are bold."""
        return render_outline(fleet_outline(self), width=width, color=color)

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values, with the key ``schema`` first."""
        return to_document(self, FleetReport, FLEET_SCHEMA)

    def to_json(self) -> str:
        """Return the report as JSON in ASCII."""
        return json.dumps(self.to_dict(), indent=2)

    def to_html(self) -> str:
        """Return the report as one HTML page that loads nothing."""
        report = printable_object(self)
        return render_page(fleet_outline(report), [_bar(each, report) for each in report.causes])


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


#: Entries of a section; the JSON has all, and all causes are shown.
_MAX_ITEMS, _MAX_HOSTS = 20, 10
_PERIODS: Mapping[Period, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_PACKAGES: Mapping[Package, str] = {"distributed": "distributed", "python": "Python"}


def fleet_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the result of `FleetReport.to_dict`."""
    return document_schema(FleetReport, title="workerdiag fleet report", number=FLEET_SCHEMA)


def fleet_outline(report: FleetReport) -> Outline:
    """Return the report in the order a person reads it. Hosts and files are made harmless for a terminal."""
    report = printable_object(report)
    causes, hosts = report.causes, report.hosts
    known = {each.package for each in report.versions if each.version is not None}
    versions = [each for each in report.versions if each.package in known]
    equal = share_text(1 / len(hosts)) if hosts else ""
    cause_items = (_cause_item(each, report) for each in causes)
    host_items = (Item(text=_host_text(each, report)) for each in hosts)
    version_items = (Item(text=_version_text(each, report)) for each in versions)
    sections = (
        bounded_section("What kills workers", cause_items, topic="candidates", most=len(causes)),
        bounded_section(f"Hosts (an equal share of {len(hosts):,} is {equal})", host_items, most=_MAX_HOSTS),
        bounded_section("Versions", version_items, most=_MAX_ITEMS),
        bounded_section("Unexplained", map(_unexplained_item, report.unexplained), most=_MAX_HOSTS),
        bounded_section("What could not be read or seen", map(_gap_item, report.gaps), most=_MAX_ITEMS),
        bounded_section("How it was counted", (Item(text=each) for each in _methods(report)), aside=True),
    )
    is_unread = bool(report.gaps) and not report.tables
    drafts = () if report.gaps else report.unexplained[:1]
    top = next((each.cause for each in causes if each.cause is not None), None)
    return Outline(
        outcome="explained" if report.death_count else "no-evidence" if is_unread else "no-death",
        lead=tuple(_lead(report, top, is_unread=is_unread)),
        code=(f"workerdiag knowledge show {top}",) if top else tuple(each.draft_command for each in drafts),
        summary="",
        sections=tuple(each for each in sections if each.items),
        footer=(),
    )


def _lead(report: FleetReport, top: str | None, *, is_unread: bool) -> Iterator[tuple[str, str]]:
    count, stops, repeated = report.death_count, report.requested_count, report.duplicate_count
    if is_unread and not count:
        yield "Losses", "Nothing could be read, so it is unknown whether workers were lost"
    elif count:
        workers = f"{'At least ' if report.is_partial else ''}{pluralize(count, 'worker')}"
        where = f" on {pluralize(report.host_count, 'host')}" if report.host_count else ""
        lost = "was lost" if count == 1 else "were lost"
        yield "Losses", f"{workers} {lost}{where} in {pluralize(report.run_count, 'cluster run')}"
    else:
        yield "Losses", f"No worker was lost{', as far as could be read' if report.is_partial else ''}"
    is_known = report.lost_known_count == count
    known = "" if is_known else f" (known of {report.lost_known_count:,} of {pluralize(count, 'death')})"
    facts = {
        "When": ", ".join(_times(report)),
        "Together": f"{report.loss_count:,} joint losses in all" if report.loss_count < count else "",
        "Compute": _compute_text(report.lost_compute_s, known),
        "Stops": f"{pluralize(stops, 'requested stop')}, not counted" if stops else "",
        "Repeats": f"{pluralize(repeated, 'report')} of deaths that are in another table too" if repeated else "",
        "Inputs": ", ".join(f"{each.count:,} {each.status}" for each in report.inputs),
        "Missing": 'Not all could be read or seen, so each number is "at least": see below' if report.gaps else "",
    }
    yield from ((label, text) for label, text in facts.items() if text)
    if top is not None:
        yield "Do now", "Read what to do about the most frequent cause"
    elif report.gaps:
        yield "Do now", "Read again what could not be read"
    else:
        yield "Do now", "Draft a rule from the logs of a death" if count else "Nothing needs to be done"


def _compute_text(lost_compute_s: float | None, known: str = "") -> str:
    return "" if lost_compute_s is None else f"At least {format_duration(lost_compute_s)} of running tasks{known}"


def _times(report: FleetReport) -> Iterator[str]:
    first, last = _date(report.first_at), _date(report.last_at)
    if first:
        yield f"On {first}" if first == last else f"From {first} to {last}"
    if report.undated_count:
        yield f"{pluralize(report.undated_count, 'death')} without a time"


def _cause_item(share: CauseShare, report: FleetReport) -> Item:
    name = f" ({share.cause})" if share.cause is not None else ""
    deaths = f"{_share_of_deaths(share.share, share.interval, report)}: {one_line(share.title)}{name}"
    return Item(text=deaths, notes=_cause_notes(share, report))


def _cause_notes(share: CauseShare, report: FleetReport) -> tuple[tuple[str, str], ...]:
    since = f" since {_date(share.first_at, report.period)}" if share.first_at is not None else ""
    hosts = f" on {pluralize(share.host_count, 'host')}" if share.host_count else ""
    late, curve = "", ""
    if report.half_at is not None and report.late_count and share.first_at is not None:
        of = f"{report.late_count:,} since {_date(report.half_at, report.period)}"
        late, curve = f"{share_text(share.late_count / report.late_count)} of {of}", _curve(share, report)
    return labelled_notes(
        ("Deaths", f"{share.death_count:,}{since}{hosts}"),
        ("Over time", curve),
        ("Second half", late),
        ("Lost compute", _compute_text(share.lost_compute_s)),
    )


def _host_text(host: HostShare, report: FleetReport) -> str:
    cause = f", {host.cause_count:,} by {host.cause}" if host.cause is not None else ""
    deaths = pluralize(host.death_count, "death")
    return f"{share_text(host.share)} of {report.host_loss_count:,} losses: {one_line(host.host)} ({deaths}{cause})"


def _version_text(share: VersionShare, report: FleetReport) -> str:
    cause = f" ({share.cause_count:,} by {share.cause})" if share.cause is not None else ""
    version = one_line(share.version) if share.version is not None else "not known"
    since = f" since {_date(share.first_at)}" if share.first_at is not None else ""
    deaths = _share_of_deaths(share.share, share.interval, report)
    return f"{deaths}: {_PACKAGES[share.package]} {version}{since}{cause}"


def _unexplained_item(deaths: Unexplained) -> Item:
    text = f"{pluralize(deaths.death_count, 'death')}, exit {deaths.exit} (case {deaths.case})"
    return Item(text=text, code=(deaths.draft_command,))


def _gap_item(gap: FleetGap) -> Item:
    return Item(text=one_line(f"{gap.path}: {gap.detail}"), notes=labelled_notes(("To close it", gap.remedy)))


def _methods(report: FleetReport) -> Iterator[str]:
    if report.death_count:
        yield from report.methods
    if any(each.kind == "watcher" for each in report.tables):
        yield "A watcher forgets deaths after 30 days: what only the watcher knows may have begun earlier."


def _share_of_deaths(share: float, interval: Interval, report: FleetReport) -> str:
    deaths = pluralize(report.death_count, "death")
    return f"{share_text(share)} of {deaths} ({interval.low:.0%} to {interval.high:.0%})"


def share_text(share: float) -> str:
    """Return a share as text. Unlike a probability, it may be exactly 100%."""
    return "<1%" if 0 < share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def _date(when: float | None, period: Period = "day") -> str:
    return format_time(when)[: len("2026-11-23 08:00") if period == "hour" else len("2026-11-23")]


def _curve(share: CauseShare, report: FleetReport) -> str:
    """Return deaths over the time of the report as a sparkline; a dot means none. Empty for one hour or day."""
    step = _PERIODS[report.period]
    begins = [datetime.fromisoformat(each.begin) for cause in report.causes for each in cause.periods]
    begin, size = min(begins), (max(begins) - min(begins)) // step + 1
    counts = [0] * min(32, size)
    for each in share.periods:
        counts[(datetime.fromisoformat(each.begin) - begin) // step * len(counts) // size] += each.death_count
    return blocks((each or None for each in counts), max(counts)) if size > 1 else ""


def _bar(share: CauseShare, report: FleetReport) -> CandidateBar:
    kind = "unknown" if share.cause is None else "top"
    bar = share_bar(one_line(share.title), share.cause or "", share.share, kind, meaning="Share of all deaths")
    notes = tuple(f"{label}: {text}" for label, text in _cause_notes(share, report))
    text = _share_of_deaths(share.share, share.interval, report)
    return evolve(bar, percent=text, against=notes)
