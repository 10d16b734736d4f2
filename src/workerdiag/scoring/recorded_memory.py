"""The end of a process as the flight recorder saw it: what its last tasks asked for, what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from workerdiag.model.incident import Incident
from workerdiag.model.timeline import HeldObject, MemorySample, ProcessHistory
from workerdiag.values import frozen

#: Share of the limit that is much: left by tasks that have ended, or asked for and not filled yet.
MUCH_SHARE = 0.3
#: One that grows bit by bit asks for more at so many looks, and for no more than this share of it at one of them.
_STEPS, _STEP_SHARE = 4, 0.4
#: Share of what was asked for that is not filled where memory is filled as it is asked for.
_UNFILLED_SHARE = 0.15


@frozen(kw_only=True)
class LastMemory:
    """What a process held and asked for until its end; None: not known."""

    held_bytes: int | None = None
    limit_bytes: int | None = None
    #: Before its first task.
    floor_bytes: int | None = None
    #: Results that it stored, and those on disk, at the last sample.
    stored_bytes: int | None = None
    spilled_bytes: int | None = None
    #: The most that was left while no task ran, without stored results, and by how much that rose.
    left_bytes: int | None = None
    left_rise_bytes: int = 0
    #: Tasks that ran at the end, and what they asked for and filled since they began.
    running: int = 0
    asked_bytes: int | None = None
    filled_bytes: int | None = None
    #: Whether the running tasks asked for more again and again, and filled it each time.
    is_steady: bool = False
    #: What holds most of the memory, and is older than the tasks that ran.
    kept: HeldObject | None = None

    @property
    def each_bytes(self) -> int | None:
        """What each of the running tasks asked for."""
        return None if self.asked_bytes is None else self.asked_bytes // max(self.running, 1)

    @property
    def is_unfilled(self) -> bool:
        """Whether they had asked for memory that was not filled yet: then it is known how much they wanted."""
        return bool(self.asked_bytes) and (self.filled_bytes or 0) < (1 - _UNFILLED_SHARE) * (self.asked_bytes or 0)


def last_memories(incident: Incident) -> tuple[LastMemory, ...]:
    """One for each process whose end the flight recorder saw."""
    return tuple(_last_memory(each) for each in incident.histories if each.recorded and each.samples)


def _last_memory(history: ProcessHistory) -> LastMemory:
    samples = [each for each in history.samples if each.process_bytes is not None]
    begun = min((each.started_at for each in history.tasks), default=None)
    running = [each.started_at for each in history.tasks if each.ended_at is None]
    before = [each for each in samples if begun is not None and each.at <= begun]
    stored = next((each for each in reversed(samples) if each.managed_bytes is not None), None)
    idle = [each for each in samples if _is_idle(each.at, history) and each not in before]
    left = [_not_stored(each) for each in idle]
    base = next((each for each in reversed(samples) if running and each.at <= min(running)), None)
    if base is not None and not _is_idle(base.at, history):  # then it holds what others gave back later
        base = None
    since = [base, *(each for each in samples if each.at > base.at)] if base is not None else []
    asked = [each.asked_bytes for each in since if each.asked_bytes is not None]
    rise = max(asked) - asked[0] if len(asked) > 1 else None
    last, at_kill = (samples[-1] if samples else None), history.at_kill
    held = at_kill.rss_bytes if at_kill and at_kill.rss_bytes else (last.process_bytes if last else None)
    filled = (held or 0) - (base.process_bytes or 0) if base is not None else None
    return LastMemory(
        held_bytes=held,
        limit_bytes=history.limits.worker_bytes,
        floor_bytes=min((each.process_bytes or 0 for each in before if not each.managed_bytes), default=None),
        stored_bytes=stored.managed_bytes if stored else None,
        spilled_bytes=stored.spilled_bytes if stored else None,
        left_bytes=max(left, default=None),
        left_rise_bytes=max(left) - left[0] if left else 0,
        running=len(running),
        asked_bytes=rise,
        filled_bytes=filled,
        is_steady=rise is not None and filled is not None and _is_steady(asked, filled),
        kept=_kept(history, samples),
    )


def _not_stored(sample: MemorySample) -> int:
    return (sample.process_bytes or 0) - (sample.managed_bytes or 0)


def _is_idle(at: float, history: ProcessHistory) -> bool:
    return not any(each.started_at < at and (each.ended_at is None or at < each.ended_at) for each in history.tasks)


def _is_steady(asked: Sequence[int], filled: int) -> bool:
    steps = [after - before for before, after in pairwise(asked) if after > before]
    rise = max(asked) - asked[0]
    return len(steps) >= _STEPS and max(steps) <= _STEP_SHARE * rise and filled >= (1 - _UNFILLED_SHARE) * rise


def _kept(history: ProcessHistory, samples: Sequence[MemorySample]) -> HeldObject | None:
    """What was there before the tasks that ran, and grows: a table that is loaded once stays as it is."""
    seen = [each for census in history.censuses for each in census.objects]
    for census in reversed(history.censuses):
        rss = census.rss_bytes or 0
        for each in census.objects:
            is_most = 0 < 0.5 * rss <= each.size_bytes and _has_grown(each, seen)
            much = MUCH_SHARE * (census.limit_bytes or rss)
            if is_most and _older_bytes(each, rss, history, samples) >= much:
                return each
    return None


def _has_grown(held: HeldObject, seen: Sequence[HeldObject]) -> bool:
    """Whether the same variable of this process was seen smaller, in this task or another one."""
    return any(
        held.size_bytes - each.size_bytes > 0.05 * held.size_bytes
        for each in seen
        if _variable(each) == _variable(held)
    )


def _variable(held: HeldObject) -> tuple[str, str, str, str]:
    return held.name, held.type, held.module, f"{held.line.file}:{held.line.function}" if held.line else ""


def _older_bytes(held: HeldObject, rss: int, history: ProcessHistory, samples: Sequence[MemorySample]) -> int:
    """How much of what a variable holds was there before the task, or those that ran, and was no stored result."""
    running = [
        each.started_at
        for each in history.tasks
        if (each.key == held.line.task if held.line else each.ended_at is None)
    ]
    if not running:
        return 0 if held.line else held.size_bytes
    before = next((each for each in reversed(samples) if each.at <= min(running)), None)
    if before is None:
        return 0
    gained = max(0, rss - (before.process_bytes or 0))
    return min(held.size_bytes - gained, _not_stored(before))
