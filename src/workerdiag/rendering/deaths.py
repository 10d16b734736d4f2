"""The dead workers of a report: one line each, many alike in one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from workerdiag.model.diagnosis import Death, Findings
from workerdiag.rendering.wording import clip, exit_text, format_percent, identity_text, one_line, pluralize
from workerdiag.units import format_bytes, format_time

#: Lines of deaths that one report shows.
MAX_DEATHS = 10
#: Maximum number of similar deaths to list one by one.
MAX_ALIKE = 3
#: Characters of the reason that Dask gives.
MAX_REASON_CHARACTERS = 60

#: In words, what distributed gives as the reason for which a worker is gone (scheduler.py, worker.py).
_REASONS: Mapping[str, str] = {
    "handle-worker-cleanup": "that its connection ended",
    "check-worker-ttl": "that its heartbeats stayed away",
    "worker-handle-scheduler-connection-broken": "that it lost the scheduler",
    "worker-close": "that the worker was closed",
    "nanny-close": "that its nanny was closed",
    "nanny-instantiate-failed": "that its nanny could not start it",
    "scheduler-remove-worker": "that the scheduler removed it",
    "scheduler-close": "that the scheduler closed",
    "retire-workers": "that it was retired",
    "client-restart": "that a client restarted it",
    "signal": "that it got a signal",
}
#: The reason of a worker or nanny that could not start, with the class of the error (distributed, core.py).
_NO_START = re.compile(r"failure-to-start-<class '(?:\w+\.)*(\w+)'>")


def death_count_text(findings: Findings) -> str:
    """How many there are: ``3``, ``10,000`` or ``at least 800``."""
    text = f"{findings.death_count:,}"
    return f"at least {text}" if findings.unlisted_deaths.maybe_more and findings.deaths else text


def death_lines(findings: Findings, most: int = MAX_DEATHS) -> tuple[tuple[str, ...], str]:
    """At most *most* lines for deaths, many alike in one, in their order; and how many deaths are left out."""
    groups: dict[tuple[str, str | None], list[Death]] = {}
    for death in findings.deaths:
        groups.setdefault((exit_text(death), death.cause), []).append(death)
    top = findings.top.id if findings.top else None
    lines_shown: list[str] = []
    left_out = findings.unlisted_deaths.count
    for group in groups.values():
        lines = (
            [_group_line(group, top)]
            if len(group) > MAX_ALIKE
            else [_death_line(each, top) for each in group]
        )
        room = most - len(lines_shown)
        lines_shown += lines[:room]
        if len(lines) > room:
            left_out += len(group) if len(group) > MAX_ALIKE else len(lines) - room
    return tuple(lines_shown), f"and {left_out:,} more" if left_out else ""


def memory_line(deaths: Sequence[Death]) -> str:
    """The most memory of a worker at its death, and its limit; empty if unknown."""
    seen = [each for each in deaths if each.rss_bytes is not None]
    if not seen:
        limits = sorted({each.limit_bytes for each in deaths if each.limit_bytes is not None})
        return f"Memory limit of a worker: {format_bytes(limits[-1])}" if limits else ""
    most = max(seen, key=lambda death: death.rss_bytes or 0)
    text = f"Memory at death: {format_bytes(most.rss_bytes or 0)}"
    if not most.limit_bytes:
        return text
    share = (most.rss_bytes or 0) / most.limit_bytes
    percent = f"{share:.0%}" if share >= 0.01 else "under 1%"
    return f"{text} of {format_bytes(most.limit_bytes)} allowed ({percent})"


def crash_line(deaths: Sequence[Death]) -> str:
    """Return where the workers crashed, by the most common dump; empty without one."""
    places = Counter(each.crashed_in for each in deaths if each.crashed_in)
    if not places:
        return ""
    (frames, _), *others = places.most_common()
    inner, outer = one_line(frames[0]), one_line(frames[-1])
    text = inner if inner == outer else f"{inner}, from {outer}"
    return f"{text}; and {pluralize(len(others), 'other place')}" if others else text


def _death_line(death: Death, top: str | None) -> str:
    head = ", ".join(part for part in (identity_text(death.identity), format_time(death.when)) if part)
    return f"{head}: " + "; ".join((exit_text(death), *_death_facts(death), *_other_cause(death, top)))


def _group_line(group: Sequence[Death], top: str | None) -> str:
    first, last = group[0], group[-1]
    times = [format_time(each.when) for each in group if format_time(each.when)]
    between = _time_range(min(times), max(times)) if times else ""
    text = "; ".join((exit_text(first), *_other_cause(first, top)))
    ends = f"from {identity_text(first.identity)} to {identity_text(last.identity)}"
    return f"{len(group)} workers{between}: {text}; {ends}"


def _time_range(first: str, last: str) -> str:
    day, _, clock = last.partition(" ")
    if first == last:
        return f", {first}"
    return f", {first} to {clock if first.startswith(day) else last}"


def _death_facts(death: Death) -> list[str]:
    facts = []
    if death.reason:
        reason = re.sub(r"-\d+(\.\d+)?$", "", one_line(death.reason))  # a stimulus ends in its time
        facts.append(f"Dask says {_reason_text(reason)}")
    if death.executing:
        facts.append(f"was executing {pluralize(len(death.executing), 'task')}")
    if death.assigned:
        facts.append(f"had {pluralize(len(death.assigned), 'task')} assigned")
    return facts


def _reason_text(reason: str) -> str:
    if found := _NO_START.match(reason):
        return f"that it could not start: {found[1]}"
    return _REASONS.get(reason) or clip(reason, MAX_REASON_CHARACTERS)


def _other_cause(death: Death, top: str | None) -> list[str]:
    """The cause of this death, if the report is not about it."""
    if death.cause is None or death.cause == top:
        return []
    return [f"{death.cause}, {format_percent(death.probability)}"]
