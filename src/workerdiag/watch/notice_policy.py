"""The notice policy: which notices go out now, and which are held back for a digest.

Pure functions without a clock. Their memory is a `PolicyState`, which the store keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from attrs import evolve, field, frozen
from attrs.validators import ge, gt

from workerdiag.model.vocabulary import HoldReason, NoticeReason
from workerdiag.settings import setting
from workerdiag.units import format_time
from workerdiag.watch.digest import HeldBack, PolicyState, digest_notice
from workerdiag.watch.notices import clean, title_line
from workerdiag.watch.quiet_hours import QuietHours
from workerdiag.watch.settings import duration_setting
from workerdiag.watch.silences import KnownIssue, Silence, known_issue_of, read_known_issues
from workerdiag.watch.watched_case import Notice

__all__ = ["HeldBack", "NoticePolicy", "PolicyDecision", "PolicyState", "apply_policy", "due_digest"]

#: Reasons that open a case for readers, and reasons that close it.
_OPENING: tuple[NoticeReason, ...] = ("new", "recurring", "blind")
_CLOSING: tuple[NoticeReason, ...] = ("resolved", "ended")
#: Reasons for holding back that only delay a notice; nobody asked for silence.
_DELAYS: tuple[HoldReason, ...] = ("rate-limit", "quiet-hours")
#: Maximum number of cases in a digest; further ones are counted.
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
    after = PolicyState(
        sent_at=state.sent_at, untold=state.untold - told, digest_count=state.digest_count + 1
    )
    return PolicyDecision(after, digest_notice(cluster, state, now))


def _held(
    notice: Notice, issue: KnownIssue | None, state: PolicyState, policy: NoticePolicy, now: float
) -> HeldBack | None:
    """Return the entry for a notice that is held back; None if it is sent."""
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
