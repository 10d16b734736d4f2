"""What ran, waited, was paused or silent when the question was asked, whatever else is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workerdiag.model.diagnosis import Match, Present, PresentTask
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import whole
from workerdiag.model.rules import SCHEDULER_STATE

#: States of tasks that no worker has.
_NOT_BEGUN = ("queued", "no-worker", "waiting")
#: Workers of each kind that are listed.
_MAX_LISTED = 5


def present_of(incident: Incident) -> Present | None:
    """The present, if a scheduler told it and work was unfinished, or a worker was not well; else None."""
    state = next((each.captures for each in incident.marks if each.owner == SCHEDULER_STATE), None)
    if state is None:
        return None
    workers = [each for each in incident.marks if each.owner == "event.worker-state" and each.identity.worker]
    paused = [str(each.identity.worker) for each in workers if each.captures.get("status") == "paused"]
    silent = [each for each in workers if each.captures.get("silent") == "True"]
    tasks = [_task(each) for each in incident.marks if each.owner == "event.awaited-task"]
    counts = (each.captures for each in incident.marks if each.owner == "event.task-state")
    waiting = sum(whole(each.get("count")) or 0 for each in counts if each.get("state") in _NOT_BEGUN)
    if not (tasks or waiting or paused or silent):
        return None
    cluster = next((each.captures for each in incident.marks if each.owner == "event.cluster"), {})
    return Present(
        workers=whole(state.get("workers")),
        wanted_workers=whole(cluster.get("workers_wanted")),
        given_up_workers=whole(cluster.get("workers_given_up")),
        waiting_tasks=waiting,
        paused=tuple(paused[:_MAX_LISTED]),
        silent=tuple(str(each.identity.worker) for each in silent[:_MAX_LISTED]),
        silent_s=max((_number(each.captures, "seconds_since_heartbeat") or 0.0 for each in silent), default=None),
        restrictions=_unmet_restrictions(incident.marks),
        tasks=tuple(tasks),
    )


def _task(mark: Match) -> PresentTask:
    known = mark.captures
    waits_for = known.get("waits_for", "")
    return PresentTask(
        key=known.get("key", ""),
        state=known.get("state", ""),
        worker=known.get("worker"),
        running_s=_number(known, "running_s"),
        waits_for=waits_for,
        waits_at=known.get("waits_at", ""),
        awaited_name=known.get(f"{waits_for}_name", ""),
        holder_silent_s=_number(known, f"{waits_for}_silent_s"),
    )


def _number(known: Mapping[str, str], name: str) -> float | None:
    try:
        return float(known[name])
    except (KeyError, ValueError):
        return None


def _unmet_restrictions(marks: Iterable[Match]) -> str:
    """What tasks require that no worker offers."""
    states = (each.captures for each in marks if each.owner == "event.task-state")
    return next((each.get("restrictions", "") for each in states if each.get("state") == "no-worker"), "")
