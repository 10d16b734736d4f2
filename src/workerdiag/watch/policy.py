"""Which notices go out now, and which are held back for a digest: silences, known issues, quiet hours, rate limit.

Pure functions without a clock; their memory is a `PolicyState`, which the store keeps. A file of known issues:

.. code-block:: toml

    [[issue]]
    cause = "nanny.memory-terminate"   # or key = "5c49f0797ea3"
    cluster = "prod-*"                 # all clusters, if it is left out
    note = "The loader holds two copies of each table; loader 2.3 will not."
    link = "https://tracker.example/123"
    hold = true                        # send no notices, list them in the digest
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from attrs import evolve, field, frozen
from attrs.validators import ge, gt

from workerdiag.errors import (
    QuietHoursError,
    RuleFileError,
    SilenceError,
    StateFileError,
    UnreadableInputError,
    describe_error,
    error_text,
    utf8_safe,
)
from workerdiag.model.vocabulary import HoldReason, NoticeReason
from workerdiag.rendering.wording import clip, one_line, pluralize
from workerdiag.serialization import problem_lines, strict_converter
from workerdiag.settings import setting
from workerdiag.units import format_time, parse_duration, parse_timestamp
from workerdiag.watch.case import Notice, case_id
from workerdiag.watch.notices import clean, title_line
from workerdiag.watch.settings import duration_setting
from workerdiag.watch.state_file import CHANGED_REMEDY, StateFile, value_from_json, value_to_json

if TYPE_CHECKING:
    from cattrs import Converter

_MAX_BYTES = 4 * 2**20
#: Maximum length of a silence, in seconds: one of more than a year would be forgotten.
MAX_SILENCE_S = 366 * 86_400.0


@frozen(kw_only=True)
class Silence:
    """Holds back matching notices until its end."""

    id: str
    #: A pattern (``*``, ``?``, ``[abc]``) for the id or key of a case, the id of a cause, or a cluster.
    matches: str
    #: Its end in seconds since the epoch, by the watcher's clock, as `created_at`.
    until: float
    #: The reason, for later readers.
    reason: str
    created_at: float

    def covers(self, notice: Notice, now: float) -> bool:
        """Whether it holds the notice back now."""
        names = (notice.case_id, notice.key, notice.cause or "", notice.cluster)
        return now < self.until and any(name and fnmatchcase(name, self.matches) for name in names)


def new_silence(matches: str, *, until: float, reason: str, now: float) -> Silence:
    """Return a silence from *now* on.

    Raises:
        SilenceError: It has no pattern, no reason, or no end in the future and within a year.
    """
    matches, reason = matches.strip(), one_line(reason)
    if not matches:
        raise SilenceError("there is no target: give a case, a key, a cause or a cluster")
    if not reason:
        raise SilenceError("it has no reason: say why, for those who wonder later")
    if not now < until:
        raise SilenceError("its end is not in the future")
    if until - now > MAX_SILENCE_S:
        raise SilenceError("it would last for more than a year")
    id_ = hashlib.sha256(f"{matches}\n{until}\n{reason}\n{now}".encode("utf-8", "backslashreplace"))
    return Silence(id=id_.hexdigest()[:8], matches=matches, until=until, reason=reason, created_at=now)


def parse_until(text: str, now: float) -> float:
    """Parse the end of a silence: a time with a zone (``2026-11-23T08:00:00+01:00``) or a duration (``2h``).

    Raises:
        SilenceError: It is neither.
    """
    moment = parse_timestamp(text.strip())
    if moment is not None:
        return moment
    try:
        return now + parse_duration(text)
    except ValueError:
        raise SilenceError(
            f"{text[:100]!r} is not an end: give a time with its zone (2026-11-23T08:00:00Z) or a duration (2h)"
        ) from None


@frozen(kw_only=True)
class KnownIssue:
    """A problem that somebody is working on."""

    #: Key of the case; or the id of its cause, or a pattern for that (``nanny.*``).
    key: str | None = None
    cause: str | None = None
    #: A pattern for the clusters concerned.
    cluster: str = "*"
    note: str = ""
    link: str = ""
    #: Whether to hold notices back.
    hold: bool = False

    def __attrs_post_init__(self) -> None:
        if not (self.key or self.cause):
            raise ValueError("needs a key or a cause")
        if not (self.note or self.link):
            raise ValueError("needs a note or a link")

    def covers(self, notice: Notice) -> bool:
        """Whether the notice is about this issue."""
        if not fnmatchcase(notice.cluster, self.cluster):
            return False
        is_key = bool(self.key) and notice.key == self.key
        return is_key or bool(self.cause and notice.cause and fnmatchcase(notice.cause, self.cause))


@frozen(kw_only=True)
class _IssueFile:
    """The content of the file; the field is named like the table."""

    issue: tuple[KnownIssue, ...] = ()


def known_issue_of(notice: Notice, issues: Sequence[KnownIssue]) -> KnownIssue | None:
    """Return the first issue that the notice is about."""
    return next((each for each in issues if each.covers(notice)), None)


def read_known_issues(path: str | os.PathLike[str]) -> tuple[KnownIssue, ...]:
    """Return the known issues in a TOML file.

    Raises:
        UnreadableInputError: The file cannot be read.
        RuleFileError: It is not valid; all mistakes are listed.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as problem:
        why = problem.strerror or error_text(problem)
        raise UnreadableInputError(name, why, "name a TOML file with known issues") from problem
    if len(data) > _MAX_BYTES:
        raise RuleFileError(name, (f"it is larger than {_MAX_BYTES} bytes",))
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except Exception as problem:
        raise RuleFileError(name, (f"it is no TOML: {describe_error(problem)}",)) from problem
    try:
        return _issue_converter().structure(table, _IssueFile).issue
    except Exception as problem:
        raise RuleFileError(name, tuple(problem_lines(problem))) from problem


@cache
def _issue_converter() -> Converter:
    return strict_converter("known")


_WRITTEN = re.compile(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s+(\S+)\s*")


@frozen(kw_only=True)
class QuietHours:
    """A daily time span, across midnight if its end is before its start."""

    begin: time
    end: time
    #: Name of the time zone, such as ``Europe/Berlin``.
    zone: str
    _zone_info: ZoneInfo = field(init=False, eq=False, repr=False)

    @_zone_info.default
    def _load_zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.zone)
        except Exception as problem:
            raise QuietHoursError(
                f"{self.zone!r} is not a time zone known to this machine; name one such as Europe/Berlin or UTC,"
                " or install the package tzdata"
            ) from problem

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Parse quiet hours such as ``22:00-07:00 Europe/Berlin``.

        Raises:
            QuietHoursError: The format is different, or the time zone is not known.
        """
        found = _WRITTEN.fullmatch(text[:200])
        begin = _time_of(found[1], found[2]) if found else None
        end = _time_of(found[3], found[4]) if found else None
        if found is None or begin is None or end is None or begin == end:
            raise QuietHoursError(f"{text[:100]!r} are not quiet hours: write them as 22:00-07:00 Europe/Berlin")
        return cls(begin=begin, end=end, zone=found[5])

    def holds(self, now: float) -> bool:
        """Whether *now*, in seconds since the epoch, is in them, with the daylight saving time of the zone."""
        clock = datetime.fromtimestamp(now, UTC).astimezone(self._zone_info).time()
        if self.begin <= self.end:
            return self.begin <= clock < self.end
        return clock >= self.begin or clock < self.end


def _time_of(hour: str, minute: str) -> time | None:
    return time(int(hour), int(minute)) if int(hour) < 24 and int(minute) < 60 else None


#: Reasons that open a case for readers, and reasons that close it.
_OPENING: tuple[NoticeReason, ...] = ("new", "recurring", "blind")
_CLOSING: tuple[NoticeReason, ...] = ("resolved", "ended")
#: Reasons for holding back that only delay a notice; nobody asked for silence.
_DELAYS: tuple[HoldReason, ...] = ("rate-limit", "quiet-hours")
_MAX_HELD = 100


def _configured_issues() -> tuple[KnownIssue, ...]:
    path = setting("watch.known-issues")
    return read_known_issues(Path(path).expanduser()) if path else ()


def _configured_hours() -> QuietHours | None:
    hours = setting("watch.quiet-hours")
    return QuietHours.parse(hours) if hours else None


@frozen(kw_only=True)
class NoticePolicy:
    """Decides what people want to hear, and when.

    Defaults come from ``workerdiag.watch`` in Dask's configuration.

    Raises:
        UnreadableInputError: The configured file of known issues cannot be read.
        RuleFileError: That file has mistakes.
        QuietHoursError: The configured quiet hours are invalid.
    """

    silences: tuple[Silence, ...] = ()
    known_issues: tuple[KnownIssue, ...] = field(factory=_configured_issues)
    quiet_hours: QuietHours | None = field(factory=_configured_hours)
    #: At most this many notices go out within `window_s`, not counting those that close a case.
    most_notices: int = field(factory=lambda: setting("watch.most-notices"), validator=ge(1))
    window_s: float = duration_setting("watch.rate-window", gt(0))
    #: Seconds until a digest lists what the rate limit held back. After quiet hours it comes at once.
    digest_s: float = duration_setting("watch.digest", ge(0))
    #: Seconds until a digest lists silenced notices.
    silent_digest_s: float = duration_setting("watch.silent-digest", ge(0))


class PolicyDecision(NamedTuple):
    """The decision about a notice: the new state, and the notice that goes out, if any."""

    state: PolicyState
    notice: Notice | None


def apply_policy(notice: Notice, state: PolicyState, policy: NoticePolicy, now: float) -> PolicyDecision:
    """Send the notice now, or hold it back for the digest.

    A notice that closes a case is never held back if people know of the case, so that nothing stays open in
    other systems. A notice that the watcher is blind ignores quiet hours and rate limit: silence would look
    like health.
    """
    if notice.reason == "digest":
        return PolicyDecision(state, notice)
    issue = known_issue_of(notice, policy.known_issues)
    if held := _held(notice, issue, state, policy, now):
        return PolicyDecision(_remembered(notice, held, state), None)
    told = notice if issue is None else _with_issue(notice, issue)
    sent_at = _recent(state.sent_at, policy, now)
    if notice.reason not in _CLOSING:
        sent_at = (*sent_at, now)
    return PolicyDecision(evolve(state, sent_at=sent_at, untold=state.untold - {notice.case_id}), told)


def due_digest(
    cluster: str, state: PolicyState, policy: NoticePolicy, now: float, *, is_last: bool = False
) -> PolicyDecision:
    """Return the digest of what was held back, if one is due or there will be no later one.

    Afterwards people know of its cases, except the silenced ones.
    """
    is_due = not _is_quiet(policy, now) and any(_is_due(each, policy, now) for each in state.held)
    if not state.held or not (is_due or is_last):
        return PolicyDecision(state, None)
    told = {each.case_id for each in state.held if each.hold in _DELAYS}
    after = PolicyState(sent_at=state.sent_at, untold=state.untold - told, digest_count=state.digest_count + 1)
    return PolicyDecision(after, digest_notice(cluster, state, now))


def _held(
    notice: Notice, issue: KnownIssue | None, state: PolicyState, policy: NoticePolicy, now: float
) -> HeldBack | None:
    hold, why = _hold_reason(notice, issue, state, policy, now)
    if hold is None:
        return None
    return HeldBack(
        case_id=notice.case_id,
        title=notice.title,
        hold=hold,
        why=clean(why),
        reasons=(notice.reason,),
        since=now,
    )


def _hold_reason(
    notice: Notice, issue: KnownIssue | None, state: PolicyState, policy: NoticePolicy, now: float
) -> tuple[HoldReason | None, str]:
    if notice.reason in _CLOSING:
        return ("untold" if notice.case_id in state.untold else None), ""
    silence = next((each for each in policy.silences if each.covers(notice, now)), None)
    if silence is not None:
        return "silenced", f"until {format_time(silence.until)} UTC: {silence.reason}"
    if issue is not None and issue.hold:
        return "known-issue", " ".join(filter(None, (issue.note, issue.link)))
    can_wait = notice.reason != "blind"
    if can_wait and _is_quiet(policy, now):
        return "quiet-hours", ""
    if can_wait and len(_recent(state.sent_at, policy, now)) >= policy.most_notices:
        return "rate-limit", ""
    return None, ""


def _remembered(notice: Notice, held: HeldBack, state: PolicyState) -> PolicyState:
    """Return the state with one more held-back notice: those of one case and reason share an entry."""
    untold = state.untold
    if notice.reason in _OPENING:
        untold |= {notice.case_id}
    elif notice.reason in _CLOSING:
        untold -= {notice.case_id}
    entries = list(state.held)
    place = next(
        (n for n, each in enumerate(entries) if (each.case_id, each.hold) == (held.case_id, held.hold)), None
    )
    if place is not None:
        entries[place] = entries[place].with_another(held)
    elif len(entries) < _MAX_HELD:
        entries.append(held)
    else:
        return evolve(state, untold=untold, unlisted_count=state.unlisted_count + 1)
    return evolve(state, untold=untold, held=tuple(entries))


def _with_issue(notice: Notice, issue: KnownIssue) -> Notice:
    about = clean(" ".join(filter(None, (issue.note, issue.link))))
    links = {**notice.links, **({"issue": clean(issue.link)} if issue.link else {})}
    first, _, rest = notice.text.partition("\n")
    return evolve(
        notice,
        title=title_line(f"Known issue: {notice.title}"),
        text="\n".join(filter(None, (first, f"Known issue: {about}", rest))),
        links=links,
    )


def _is_quiet(policy: NoticePolicy, now: float) -> bool:
    return policy.quiet_hours is not None and policy.quiet_hours.holds(now)


def _is_due(held: HeldBack, policy: NoticePolicy, now: float) -> bool:
    wait_s = {"quiet-hours": 0.0, "rate-limit": policy.digest_s}.get(held.hold, policy.silent_digest_s)
    return not 0 <= now - held.since < wait_s


def _recent(sent_at: Sequence[float], policy: NoticePolicy, now: float) -> tuple[float, ...]:
    """Return when notices were sent within this window. Times in the future precede a change of the clock."""
    return tuple(each for each in sent_at if 0 <= now - each < policy.window_s)


#: Limits of a digest: cases, characters of a line, and of a cluster's name in its title.
_MAX_LISTED, _LINE_CHARS, _CLUSTER_CHARS = 20, 300, 40


@frozen(kw_only=True)
class HeldBack:
    """Notices of one case that were held back for the same reason."""

    case_id: str
    #: Of the last notice.
    title: str
    hold: HoldReason
    #: The reason and the end of its silence.
    why: str = ""
    #: The reasons of the notices, each once.
    reasons: tuple[NoticeReason, ...]
    count: int = field(default=1, validator=ge(1))
    #: When the first notice was held back, by the watcher's clock.
    since: float

    def with_another(self, later: HeldBack) -> HeldBack:
        """Merge the two."""
        reasons = tuple(dict.fromkeys((*self.reasons, *later.reasons)))
        count = self.count + later.count
        return evolve(self, title=later.title, why=later.why, reasons=reasons, count=count)


@frozen(kw_only=True)
class PolicyState:
    """The state of the policy between two notices of one cluster."""

    #: When notices were sent within the current window of the rate limit.
    sent_at: tuple[float, ...] = ()
    #: Notices that were held back since the last digest.
    held: tuple[HeldBack, ...] = ()
    #: Number of held-back notices that are not listed, since there are too many cases.
    unlisted_count: int = 0
    #: Ids of open cases for which no notice went out.
    untold: frozenset[str] = frozenset()
    #: Number of digests so far; each has its own id.
    digest_count: int = 0


def digest_notice(cluster: str, state: PolicyState, now: float) -> Notice:
    """Return the next digest. Nothing follows it, so its state is ``resolved``."""
    count = sum(each.count for each in state.held) + state.unlisted_count
    cases = len({each.case_id for each in state.held})
    name = clip(clean(cluster), _CLUSTER_CHARS)
    about = f"{pluralize(cases, 'case')}{' and more' if state.unlisted_count else ''}"
    were = "was" if count == 1 else "were"
    title = title_line(f"{name}: {pluralize(count, 'notice')} about {about} {were} held back")
    since = min((each.since for each in state.held), default=now)
    id_ = case_id(cluster, f"digest {state.digest_count + 1} since {since:.0f}")
    return Notice(
        id=f"{id_}-1",
        reason="digest",
        case_id=id_,
        key="digest",
        cluster=clean(cluster),
        state="resolved",
        title=title,
        text="\n".join(clip(line, _LINE_CHARS) for line in (title, *_held_lines(state))),
        at=now,
        opened_at=since,
        last_death_at=now,
    )


def _held_lines(state: PolicyState) -> Iterator[str]:
    for each in state.held[:_MAX_LISTED]:
        said = f"{pluralize(each.count, 'notice')} ({', '.join(each.reasons)})"
        why = f"{_hold_text(each.hold)}{', ' if each.why else ''}{each.why}"
        yield f"- {each.title}: {said}; {why}"
    rest = sum(each.count for each in state.held[_MAX_LISTED:]) + state.unlisted_count
    if rest:
        yield f"- and {pluralize(rest, 'notice')} about other cases"


def _hold_text(hold: HoldReason) -> str:
    match hold:
        case "silenced":
            return "silenced"
        case "known-issue":
            return "a known issue"
        case "rate-limit":
            return "too many notices were sent"
        case "quiet-hours":
            return "quiet hours"
        case "untold":
            return "the case was never reported"


class PolicyTable:
    """Silences of all clusters, and the policy state of each cluster; `Store` delegates to it."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def silences(self) -> tuple[Silence, ...]:
        """Return all silences, including expired ones, ordered by their end."""
        with self._file.transaction() as connection:
            rows = connection.execute("SELECT id, body FROM silence").fetchall()
        try:
            kept = [value_from_json(body, Silence) for _, body in rows]
        except Exception as problem:
            raise self._unreadable("a silence", problem) from problem
        return tuple(sorted(kept, key=lambda each: (each.until, each.id)))

    def add_silence(self, silence: Silence) -> None:
        """Store a silence."""
        with self._file.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO silence VALUES (?, ?)", (silence.id, value_to_json(silence)))

    def remove_silence(self, silence_id: str) -> bool:
        """Delete a silence. Returns whether it existed."""
        with self._file.transaction() as connection:
            ended = connection.execute("DELETE FROM silence WHERE id = ?", (utf8_safe(silence_id),))
            return ended.rowcount > 0

    def state(self, cluster: str) -> PolicyState:
        """Return the policy state of a cluster."""
        with self._file.transaction() as connection:
            rows = connection.execute("SELECT body FROM policy WHERE cluster = ?", (utf8_safe(cluster),)).fetchall()
        try:
            return value_from_json(rows[0][0], PolicyState) if rows else PolicyState()
        except Exception as problem:
            raise self._unreadable("what was held back", problem) from problem

    def set_state(self, cluster: str, state: PolicyState) -> None:
        """Store the policy state of a cluster."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO policy VALUES (?, ?)", (utf8_safe(cluster), value_to_json(state))
            )

    def prune(self, before: float) -> None:
        """Delete the silences that ended before that time."""
        for each in self.silences():
            if each.until < before:
                self.remove_silence(each.id)

    def _unreadable(self, what: str, problem: Exception) -> StateFileError:
        return StateFileError(self._file.name, f"{what}: {describe_error(problem)}", CHANGED_REMEDY)
