"""What ran, waited, was paused or silent when the question was asked, whatever else is found."""

from __future__ import annotations

from collections.abc import Mapping

from workerdiag.model.diagnosis import Present, PresentTask
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import decimal, whole

#: States of tasks that no worker has.
_NOT_BEGUN = ("queued", "no-worker", "waiting")
#: Workers of each kind that are listed.
_MAX_LISTED = 5


def present_of(incident: Incident) -> Present | None:
    """The present, if a scheduler told it and work was unfinished, or a worker was not well; else None."""
    state = next(iter(incident.fields_of("scheduler-state")), None)
    if state is None:
        return None
    workers = [each for each in incident.events("worker-state") if each.identity.worker]
    paused = [str(each.identity.worker) for each in workers if each.captures.get("status") == "paused"]
    silent = [each for each in workers if each.captures.get("silent") == "True"]
    tasks = [_task(each) for each in incident.fields_of("awaited-task")]
    states = incident.fields_of("task-state")
    waiting = sum(whole(each.get("count")) or 0 for each in states if each.get("state") in _NOT_BEGUN)
    if not (tasks or waiting or paused or silent):
        return None
    cluster = next(iter(incident.fields_of("cluster")), {})
    return Present(
        workers=whole(state.get("workers")),
        wanted_workers=whole(cluster.get("workers_wanted")),
        given_up_workers=whole(cluster.get("workers_given_up")),
        waiting_tasks=waiting,
        paused=tuple(paused[:_MAX_LISTED]),
        silent=tuple(str(each.identity.worker) for each in silent[:_MAX_LISTED]),
        silent_s=max(
            (decimal(each.captures.get("seconds_since_heartbeat")) or 0.0 for each in silent), default=None
        ),
        restrictions=next(
            (each.get("restrictions", "") for each in states if each.get("state") == "no-worker"), ""
        ),
        tasks=tuple(tasks),
    )


def _task(known: Mapping[str, str]) -> PresentTask:
    waits_for = known.get("waits_for", "")
    return PresentTask(
        key=known.get("key", ""),
        state=known.get("state", ""),
        worker=known.get("worker"),
        running_s=decimal(known.get("running_s")),
        waits_for=waits_for,
        waits_at=known.get("waits_at", ""),
        awaited_name=known.get(f"{waits_for}_name", ""),
        holder_silent_s=decimal(known.get(f"{waits_for}_silent_s")),
    )
