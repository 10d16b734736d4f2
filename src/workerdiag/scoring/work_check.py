"""Holds work against the workers' limit before it runs: its largest operation, and what comes together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workerdiag.model.check import ALARMS, Check
from workerdiag.model.incident import Incident
from workerdiag.model.memory import UNKNOWN_COPIES, MemoryAccount, ReasonChance, Step
from workerdiag.model.rules import ReasonRule
from workerdiag.model.vocabulary import CheckGrade, Deployment, MemoryReason
from workerdiag.scoring.advice import MemoryNumbers
from workerdiag.scoring.cures import suggested_cures
from workerdiag.scoring.memory_account import END_SHARE, Workload, memory_account
from workerdiag.scoring.memory_reason import SPILL_SHARE, account_sum
from workerdiag.units import format_bytes
from workerdiag.values import evolve, frozen

#: A group of rows is held as it came and as one, beside the copies of a function of one's own.
_GROUP_COPIES = 2 + UNKNOWN_COPIES


@frozen
class _Finding:
    grade: CheckGrade
    why: str
    reason: MemoryReason | None = None


def check_work(work: Workload, deployment: Deployment | None, rules: Sequence[ReasonRule]) -> Check:
    """The grade of the work with its sum, and the changes by *rules* where it is not expected to fit."""
    account, found = _judged(work)
    if found.reason is not None:
        title = next((each.title for each in rules if each.id == found.reason), "")
        chance = ReasonChance(reason=found.reason, title=title, probability=1.0, why=found.why)
        account = evolve(account, reason=found.reason, reasons=(chance,))
    cures = suggested_cures(account, work, deployment, rules)
    return Check(grade=found.grade, why=found.why, memory=account, cures=cures, notes=tuple(_notes(account, work)))


def work_grade(work: Workload) -> CheckGrade:
    """The grade alone, which needs no rules."""
    return _judged(work)[1].grade


def _judged(work: Workload) -> tuple[MemoryAccount, _Finding]:
    """The account and what holds: an alarm if the lower bounds do not fit, an all-clear if the upper ones do."""
    account, found = _judged_by(work)
    if found.grade not in ALARMS or (at_least := work.at_least) == work:
        return account, found
    _, least = _judged_by(at_least)
    if least.grade in ALARMS:
        return account, evolve(least, why=f"by the lower bounds of its sizes, {least.why}")
    return account, _Finding("not-known", f"only bounds of its sizes are known; by the upper ones, {found.why}")


def _judged_by(work: Workload) -> tuple[MemoryAccount, _Finding]:
    nothing = Incident(cases=(), unassigned_signs=(), marks=())
    account = memory_account(nothing, work, MemoryNumbers(), ())
    step = work.governing
    alike = sum(each.pieces for each in work.steps if step and each.name == step.name)
    account = evolve(account, tasks_at_once=max(1, min(work.threads or 1, alike)))
    return account, next(_findings(account, work, step))


def _findings(account: MemoryAccount, work: Workload, step: Step | None) -> Iterator[_Finding]:
    """What holds of the work, the worst first; the last one always does."""
    limit, floor = account.limit.bytes or 0, account.floor.bytes or 0
    if not limit:
        yield _Finding("not-known", "no worker has a memory limit that is known")
        return
    most, of_limit = int(END_SHARE * limit), f"the limit is {format_bytes(limit)}"
    result, embedded = account.result.bytes or 0, work.number("embedded_task_bytes") or 0
    if floor + 2 * result > most:
        parts = f"{format_bytes(floor)} + {format_bytes(result)} in parts + as much in one piece"
        total = format_bytes(floor + 2 * result)
        why = f"the whole result comes together in one place: {parts} = {total}, {of_limit}"
        yield _Finding("result-too-big", why, "brought-together")
    if floor + embedded > most:
        why = f"{format_bytes(embedded)} of data are in a single task, {of_limit}"
        yield _Finding("will-not-fit", why, "data-in-graph")
    yield from _of_groups(work, floor, most, of_limit)
    if step is not None:
        at_once, task = account.tasks_at_once or 1, account.task_bytes or 0
        joined = work.joined(limit * SPILL_SHARE / 2)
        is_joined = joined is not None and joined.pieces == step.pieces
        reason: MemoryReason = "brought-together" if is_joined else "pieces-too-large"
        stored = max((each.stored_bytes or 0 for each in work.workers), default=0)
        kept = (work.number("kept_bytes") or 0) // work.worker_count + stored - at_once * step.inputs_bytes
        kept = max(0, min(kept, int(SPILL_SHARE * limit) - floor))  # the rest is on disk
        beside = f", {format_bytes(kept)} are stored beside" if kept else ""
        if floor + task > most:
            yield _Finding("will-not-fit", f"{step.describe}: {account_sum(account, 1)}, {of_limit}", reason)
        why = f"{step.describe}: {account_sum(account, at_once)}{beside}, {of_limit}"
        need = floor + at_once * task + kept
        if need > most:
            yield _Finding("too-many-threads", why, reason)
        if need > SPILL_SHARE * limit:
            yield _Finding("tight", why, reason)
        for each in work.steps:  # pieces of unknown size are read, or rows by a key of unknown frequency
            if (each.is_source and not each.piece_bytes) or (each.by_key and each.key_share is None):
                yield _Finding(
                    "not-known", f"how much {each.name} takes is not known before it runs; of the rest: {why}"
                )
        yield _Finding("fits", why)
    yield _Finding("not-known", "the sizes of what is computed are not known before it runs")


def _of_groups(work: Workload, floor: int, most: int, of_limit: str) -> Iterator[_Finding]:
    """Rows of one key that come together in one task, where a frame of this process tells their share."""
    rows_bytes = work.number("embedded_bytes") or 0
    for each in work.steps:
        group = int((each.key_share or 0.0) * rows_bytes) if each.by_key else 0
        if floor + _GROUP_COPIES * group > most:
            share = f"one key of {each.key} has {each.key_share:.0%} of the rows in a sample"
            why = f"{share}: {_GROUP_COPIES} x {format_bytes(group)} in one task of {each.name}, {of_limit}"
            yield _Finding("will-not-fit", why, "skew")


def _notes(account: MemoryAccount, work: Workload) -> Iterator[str]:
    if own := [each.name for each in work.steps if each.is_opaque]:
        yield f"What {own[0]} needs besides its pieces is not known; {UNKNOWN_COPIES} copies of one are assumed."
    limit, floor = account.limit.bytes or 0, account.floor.bytes or 0
    room = work.worker_count * max(int(SPILL_SHARE * limit) - floor, 0)
    if (kept := work.number("kept_bytes") or 0) > room and limit:
        free = "" if work.free_disk_bytes is None else f", where {format_bytes(work.free_disk_bytes)} are free"
        spilled = format_bytes(kept - room)
        yield f"{format_bytes(kept)} are kept in all, so about {spilled} of that go to disk{free}."
