"""The notices of a case in plain English: each is self-contained, bounded, and free of secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from workerdiag.incidents import BLIND_KEY
from workerdiag.model.vocabulary import NoticeReason
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import (
    TASK_TEXT,
    VERDICT_TEXTS,
    certainty_text,
    clip,
    format_percent,
    one_line,
    plain_punctuation,
    pluralize,
    printable,
)
from workerdiag.settings import documentation_url
from workerdiag.units import format_duration, format_time
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.base import url_problem

#: A link with one of these is shown as text.
_UNUSABLE = frozenset(' "<>\\^`{|}')

#: Characters of a title, and of one line of the text.
TITLE_CHARS, _LINE_CHARS = 120, 500
_ADVICE_CHARS = 250
_BEGINNINGS: Mapping[NoticeReason, str] = {
    "new": "",
    "recurring": "Again: ",
    "escalating": "Getting worse: ",
    "changed": "Another cause: ",
    "resolved": "Resolved: ",
    "ended": "Cluster ended: ",
    "blind": "",
}


def notice_of(case: WatchedCase, reason: NoticeReason, now: float) -> WatchedCase:
    """Return the notice about *case*, which `workerdiag.watch.case` has advanced to this notice."""
    sure = _certainty(case)  # which is not cut
    return evolve(
        case,
        notice_id=notice_id(case),
        reason=reason,
        at=now,
        title=clip(clean(_title(case, reason)), TITLE_CHARS - len(sure)) + sure,
        text="\n".join(clip(clean(line), _LINE_CHARS) for line in _notice_lines(case, reason, now)),
        links=_links(case),
        cluster=clean(case.cluster),
        what=clean(case.what),
        advice=tuple(map(clean, case.advice)),
        acts=tuple(map(clean, case.acts)),
        hosts=frozenset(map(clean, case.hosts)),
        first_victim=clean(case.first_victim),
        task=clean(case.task),
        bundle=clean(case.bundle),
    )


def notice_id(case: WatchedCase) -> str:
    """Return the id of a notice: case, opening time, and number.

    The time is by the scheduler's clock, so that independent watchers agree. The number alone would not do:
    it restarts when a state is lost, and a receiver would drop the notice as a repeat.
    """
    return f"{case.id}-{case.opened_at:.0f}-{case.sequence}"


def clean(text: str) -> str:
    """Return one line of text without secrets, hidden characters and control characters."""
    return one_line(plain_punctuation(printable(redact_text(text))))


def is_web_address(target: str) -> bool:
    """Whether a browser can be sent there: http or https, in printable ASCII, without a user's name."""
    return len(target) <= 2_000 and not _UNUSABLE & {*target} and not url_problem(target)


def _title(case: WatchedCase, reason: NoticeReason) -> str:
    cluster = clip(clean(case.cluster), 40)
    if case.key == BLIND_KEY:
        return _blind_title(case, reason, cluster)
    if case.death_count:
        on_hosts = f" on {len(case.hosts)} hosts" if len(case.hosts) > 1 else ""
        none_now = ", none now" if reason == "resolved" else ""
        happened = f"{pluralize(case.death_count, 'worker')} of {cluster} died{on_hosts}{none_now}"
    else:
        happened = f"{cluster} {'is working again' if reason == 'resolved' else 'stands still'}"
    is_first_cause = reason == "changed" and len(case.progress.told_causes) == 1
    return f"{'Cause found: ' if is_first_cause else _BEGINNINGS[reason]}{happened}: {case.what}"


def _blind_title(case: WatchedCase, reason: NoticeReason, cluster: str) -> str:
    if reason == "resolved":
        return f"The watcher sees {cluster} again"
    if reason == "ended":
        return f"{cluster} ended while the watcher could not see it"
    return f"The watcher cannot see {cluster}: {case.what}"


def _certainty(case: WatchedCase) -> str:
    return f" ({format_percent(case.probability)})" if case.cause is not None else ""


def _notice_lines(case: WatchedCase, reason: NoticeReason, now: float) -> Iterator[str]:
    yield f"{_title(case, reason)}{_certainty(case)}"
    if case.key == BLIND_KEY:
        yield from _blind_lines(case, reason, now)
    else:
        yield from _change_lines(case, reason)
        yield from _case_lines(case, reason)
    yield f"Case: {case.id}, notice {case.sequence}"


def _blind_lines(case: WatchedCase, reason: NoticeReason, now: float) -> Iterator[str]:
    yield f"Since: {format_time(case.opened_at)} UTC, for {format_duration(max(0.0, now - case.opened_at))}"
    if reason == "resolved":
        yield f"What it could not see: {case.what}"
    else:
        yield "Until the watcher sees the cluster again, silence does not mean health."


def _change_lines(case: WatchedCase, reason: NoticeReason) -> Iterator[str]:
    told = case.progress.told_causes
    if reason == "changed" and len(told) > 1:
        yield f"The cause reported before: {told[-2]}."
    if reason == "resolved":
        quiet = format_duration(case.progress.quiet_s)
        yield f"It has not happened for {quiet}, while the cluster was seen alive."
    if reason == "ended":
        yield "The cluster shut down before this was resolved."


def _case_lines(case: WatchedCase, reason: NoticeReason) -> Iterator[str]:
    first, last = format_time(case.opened_at), format_time(case.last_death_at)
    span = format_duration(max(0.0, case.last_death_at - case.opened_at))
    lost = f"{pluralize(case.progress.lost_results, 'finished result')} lost with them, to be computed again"
    more = f" and {len(case.hosts) - 5} more" if len(case.hosts) > 5 else ""
    others = case.unexplained_count
    is_task_alone = case.blame == "task" and not case.death_count
    known = {
        "When": f"{first} UTC" if first == last else f"{first} to {last} UTC",
        "Again and again": f"{pluralize(case.death_count, 'death')} in {span}; {lost}" if case.is_churn else "",
        "Where": f"{', '.join(sorted(case.hosts)[:5])}{more}",
        "First victim": case.first_victim if case.death_count > 1 else "",
        "Also": f"{pluralize(others, 'worker')} died of an unknown cause" if others else "",
        "Task": clip(case.task, 100),  # a key may contain all its arguments
        "How sure": f"{format_percent(case.probability)}, {certainty_text(case.probability)}" if case.cause else "",
        "Who needs to act": (
            "" if case.blame == "unknown" else TASK_TEXT if is_task_alone else VERDICT_TEXTS[case.blame]
        ),
    }
    yield from (f"{label}: {text}" for label, text in known.items() if text)
    if reason not in ("resolved", "ended"):
        for each in case.acts:
            yield f"Done about it: {clip(each, _ADVICE_CHARS)}"
        for number, each in enumerate(case.advice[:3]):
            yield f"{'Or' if number else 'Do now'}: {clip(each, _ADVICE_CHARS)}"
    links = _links(case)
    if "cause" in links:
        yield f"More: {links['cause']}"
    if "bundle" in links:
        yield f"Evidence: {links['bundle']}"


def _links(case: WatchedCase) -> dict[str, str]:
    links = {"bundle": clean(case.bundle)} if clean(case.bundle) else {}
    if case.cause is not None:
        page = documentation_url(case.cause) or f"workerdiag knowledge show {case.cause}"
        links = {"cause": page} | links
    return links
