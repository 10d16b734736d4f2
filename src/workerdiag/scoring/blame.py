"""
Who has to change something, and whether the task that Dask blames is the one to blame.
"""

from __future__ import annotations

from collections.abc import Sequence

from workerdiag.correlation.incident import Incident
from workerdiag.model.diagnosis import Blame, Decision, RankedCause
from workerdiag.model.evidence import NOBODY, ExceptionFacts
from workerdiag.model.rules import Cause, Rulebook
from workerdiag.scoring.findings import still_assigned
from workerdiag.scoring.limits import Numbers
from workerdiag.scoring.loss_history import Record, in_words, record_of, threads_in_words, together_in_words

#: Below this chance a cause is no ground for a verdict or a decision.
SURE_ENOUGH = 0.5
#: Below this one it does not clear a task.
CERTAIN = 0.9
_MOST_THREADS = 4


def blame(ranked: Sequence[RankedCause], book: Rulebook, incident: Incident) -> Blame:
    """
    The verdict of the likeliest cause, checked against what was really executing.
    """
    killed = next((each for each in incident.exceptions if each.task and each.whose != NOBODY), None)
    task = killed.task if killed else _task_in_logs(incident)
    cause = _sure_cause(ranked, book)
    if cause is None:
        return Blame(task=task, reasons=("no cause is likely enough to blame anybody",) if task else ())
    recorded = _recorded(killed, task, incident)
    if recorded is not None:
        fairly, reasons = recorded.fairly, in_words(recorded)
    else:
        fairly, reasons = _fairness(killed, task, incident)
    reasons += together_in_words(incident.executing)
    verdict = cause.blame
    if verdict == "task":
        reasons += threads_in_words(recorded.losses if recorded else incident.executing)[:_MOST_THREADS]
        if recorded.is_bystander if recorded is not None else fairly is False:
            verdict = "other-task"
    if task is not None and cause.blame not in ("task", "unknown") and ranked[0].probability >= CERTAIN:
        fairly = False
        reasons.append(f"task {task} was lost with the worker and did not cause it")
    return Blame(verdict=verdict, task=task, reasons=tuple(reasons), fairly_blamed=fairly if task else None)


def decision(ranked: Sequence[RankedCause], book: Rulebook, verdict: Blame, numbers: Numbers) -> Decision:
    """
    What a caller may do without a person: only as far as the evidence goes.
    """
    cause = _sure_cause(ranked, book)
    if cause is None:
        return Decision()
    wants_memory = any("needs_memory" in each.needs for each in cause.mitigations)
    return Decision(
        retry_safe={"safe": True, "unsafe": False}.get(cause.retry),
        needs_memory_lower_bound_bytes=numbers.wanted_more_than_bytes if wants_memory else None,
        platform_fault=None if verdict.verdict == "unknown" else verdict.verdict in ("platform", "operator"),
    )


def _sure_cause(ranked: Sequence[RankedCause], book: Rulebook) -> Cause | None:
    return book.cause(ranked[0].id) if ranked and ranked[0].probability >= SURE_ENOUGH else None


def _recorded(killed: ExceptionFacts | None, task: str | None, incident: Incident) -> Record | None:
    """
    What was recorded of the losses that Dask counted against the task; None without a flight recorder.
    """
    if task is None:
        return None
    whose, allowed = (killed.whose, killed.allowed_failures) if killed else (NOBODY, None)
    return record_of(task, whose, allowed, incident.executing)


def _fairness(
    killed: ExceptionFacts | None, task: str | None, incident: Incident
) -> tuple[bool | None, list[str]]:
    """
    Whether the blamed task was executing on the last worker it was lost with, without a flight recorder.

    Dask counts every task assigned to a dead worker, running or not (scheduler.py, ``remove_worker``), so a
    bystander can be blamed. The last heartbeat is as old as the interval of heartbeats: a task that began
    since is not in it. It only waited for certain where each thread had a task then that is not finished yet.
    """
    if killed is None or task is None or killed.executing is None:
        return None, []
    if task in killed.executing:
        return True, [f"task {task} was executing on the last worker that died with it"]
    unfinished = still_assigned(killed, incident)
    if killed.threads is None or not len(unfinished) == len(killed.executing) == killed.threads:
        return None, [
            f"whether task {task} had begun when the worker died is not known: no heartbeat is that fresh"
        ]
    others = ", ".join(unfinished[:3])
    return False, [
        f"task {task} only waited on the last worker that died: {others} had begun there and was not finished"
    ]


def _task_in_logs(incident: Incident) -> str | None:
    named = (mark.captures.get("task") for mark in incident.marks if mark.role == "blame")
    return next((task.strip("'\"") for task in named if task), None)
