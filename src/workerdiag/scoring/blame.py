"""
Who needs to act, and whether the task that Dask blames is the one to blame.
"""

from __future__ import annotations

from collections.abc import Sequence

from workerdiag.model.diagnosis import SURE_ENOUGH, Blame, Decision, RankedCause
from workerdiag.model.evidence import ExceptionFacts
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.incident import Incident
from workerdiag.model.rules import Cause, Rulebook
from workerdiag.scoring.findings import finished_kinds, unfinished_tasks
from workerdiag.scoring.loss_history import (
    LossHistory,
    history_sentences,
    loss_history,
    shared_host_sentences,
    thread_sentences,
)
from workerdiag.scoring.memory_numbers import MemoryNumbers
from workerdiag.scoring.unfinished_starts import all_died_at_start

#: Below this probability a cause does not clear a task.
CERTAIN = 0.9
_MAX_THREADS = 4


def blame(ranked: Sequence[RankedCause], book: Rulebook, incident: Incident) -> Blame:
    """
    The verdict of the likeliest cause, checked against what was really executing.
    """
    killed = next((each for each in incident.exceptions if each.task and each.identity != NO_IDENTITY), None)
    given_up = [] if killed else _tasks_in_logs(incident)
    task = killed.task if killed else given_up[0] if len(given_up) == 1 else None
    cause = _sure_cause(ranked, book)
    if cause is None:
        return Blame(task=task, reasons=("no cause is likely enough to blame anybody",) if task else ())
    recorded = _loss_history_of(killed, task, incident)
    if recorded is not None:
        fairly, reasons = recorded.fairly_blamed, history_sentences(recorded)
    else:
        fairly, reasons = _fairness(killed, task, incident)
    if len(given_up) > 1:
        reasons.append(f"Dask gave up {len(given_up)} tasks, and which of them ended a worker is not known")
    reasons += shared_host_sentences(incident.tasks_at_loss)
    verdict = cause.blame
    if verdict == "task":
        reasons += thread_sentences(recorded.losses if recorded else incident.tasks_at_loss)[:_MAX_THREADS]
        if recorded.is_bystander if recorded is not None else fairly is False:
            verdict = "other-task"
        elif task is None and cause.ends == "crashed" and all_died_at_start(incident):
            verdict = "environment"
            reasons.append("no worker came up, so no task ran: what is loaded at a worker's start ended it")
    if task is not None and cause.blame not in ("task", "unknown") and ranked[0].probability >= CERTAIN:
        fairly = False
        reasons.append(f"task {task} was lost with the worker and did not cause it")
    return Blame(verdict=verdict, task=task, reasons=tuple(reasons), fairly_blamed=fairly if task else None)


def decision(
    ranked: Sequence[RankedCause], book: Rulebook, verdict: Blame, numbers: MemoryNumbers
) -> Decision:
    """
    What a caller may do without a person: only as far as the evidence goes.
    """
    cause = _sure_cause(ranked, book)
    if cause is None:
        return Decision()
    wants_memory = any("needs_memory" in each.uses for each in cause.mitigations)
    return Decision(
        retry_safe={"safe": True, "unsafe": False}.get(cause.retry),
        needs_memory_lower_bound_bytes=numbers.wanted_more_than_bytes if wants_memory else None,
        platform_fault=None if verdict.verdict == "unknown" else verdict.verdict in ("platform", "operator"),
    )


def _sure_cause(ranked: Sequence[RankedCause], book: Rulebook) -> Cause | None:
    return book.cause(ranked[0].id) if ranked and ranked[0].probability >= SURE_ENOUGH else None


def _loss_history_of(
    killed: ExceptionFacts | None, task: str | None, incident: Incident
) -> LossHistory | None:
    """
    What was recorded of the losses that Dask counted against the task; None without a flight recorder.
    """
    if task is None:
        return None
    identity, allowed = (killed.identity, killed.allowed_failures) if killed else (NO_IDENTITY, None)
    return loss_history(task, identity, allowed, incident.tasks_at_loss)


def _fairness(
    killed: ExceptionFacts | None, task: str | None, incident: Incident
) -> tuple[bool | None, list[str]]:
    """
    Whether the blamed task was executing on the last worker it was lost with, without a flight recorder.

    Dask counts every task assigned to a dead worker, running or not (scheduler.py, ``remove_worker``), so a
    bystander can be blamed. The last heartbeat is as old as the interval of heartbeats: a task that began
    since is not in it. It only waited for certain where each thread had a task then that is not finished yet.
    A process that is killed by what it begins tells nobody what it had finished just before: where others of
    their kind have finished, those tasks did not end the worker.
    """
    if killed is None or task is None or killed.executing is None:
        return None, []
    if task in killed.executing:
        return True, [f"task {task} was executing on the last worker that died with it"]
    unclear = f"whether task {task} had begun when the worker died is not known"
    unfinished = unfinished_tasks(killed, incident)
    if killed.threads is None or not len(unfinished) == len(killed.executing) == killed.threads:
        return None, [f"{unclear}: no heartbeat is that fresh"]
    if finished_kinds(incident) & set(unfinished):
        return None, [f"{unclear}: what ran before it may just have finished, as others of its kind have"]
    others = ", ".join(unfinished[:3])
    return False, [
        f"task {task} only waited on the last worker that died: {others} had begun there and was not finished"
    ]


def _tasks_in_logs(incident: Incident) -> list[str]:
    """
    The tasks that Dask gave up, each once.
    """
    named = (mark.captures.get("task") for mark in incident.marks if mark.role == "blame")
    return list(dict.fromkeys(task.strip("'\"") for task in named if task))
