"""What goes on when the question is asked: what runs, waits, is paused or silent, and whether workers churn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workerdiag.model.diagnosis import Churn, CountTerm, Present, PresentTask
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import decimal, whole
from workerdiag.scoring.evaluate import EvaluatedCase
from workerdiag.scoring.findings import tasks_at_loss


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
    waiting = sum(
        whole(each.get("count")) or 0 for each in states if each.get("state") in ("queued", "no-worker", "waiting")
    )
    if not (tasks or waiting or paused or silent):
        return None
    cluster = next(iter(incident.fields_of("cluster")), {})
    return Present(
        workers=whole(state.get("workers")),
        wanted_workers=whole(cluster.get("workers_wanted")),
        given_up_workers=whole(cluster.get("workers_given_up")),
        waiting_tasks=waiting,
        paused=tuple(paused[:5]),
        silent=tuple(str(each.identity.worker) for each in silent[:5]),
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


_EVENTS = "the scheduler's events of removed workers"
_COUNTS = "the scheduler's counts for the kinds of task at work"


def churn_of(
    incident: Incident, evaluated: Sequence[EvaluatedCase]
) -> tuple[Churn, tuple[EvaluatedCase, ...]] | None:
    """A churn that goes on, and its unasked deaths of the newest known cause or of none, oldest first; or None."""
    state = next(iter(incident.fields_of("scheduler-state")), {})
    lost = [each for each in evaluated if each.is_unexpected]
    newest = next((cause for each in reversed(lost) if (cause := each.chances.cause_id)), None)
    same = tuple(each for each in lost if each.chances.cause_id in (newest, None))
    others = len(lost) - len(same)
    all_deaths = whole(state.get("lost_unasked")) or 0
    replacements = (whole(state.get("lost_replacements")) or 0) - others
    within_s, ago_s = decimal(state.get("lost_within_s")) or 0.0, decimal(state.get("lost_last_s")) or 0.0
    # a LocalCluster may end up with no worker: it gives up nannies that restart theirs (lost-worker-timeout)
    is_over = ago_s > max(30.0, 3.0 * within_s / max(all_deaths - 1, 1)) and state.get("workers") != "0"
    if not same or is_over or all_deaths - others < 3 or replacements < 2:
        return None
    kinds = {each.get("kind", ""): whole(each.get("finished")) or 0 for each in incident.fields_of("task-needs")}
    results, finished = whole(state.get("lost_results")), sum(kinds.values()) if kinds else None
    found = Churn(
        cause=newest,
        deaths=all_deaths - others,
        maybe_more=state.get("lost_unasked_is_lower_bound") == "True",
        period_s=within_s,
        ago_s=ago_s,
        replacements=replacements,
        lost_results=CountTerm(missing=_EVENTS) if results is None else CountTerm(count=results, origin=_EVENTS),
        finished=CountTerm(missing=_COUNTS)
        if finished is None or finished < (results or 0)
        else CountTerm(count=finished, origin=f"{_COUNTS}, since it began"),
        interrupted=_interrupted(incident, same),
    )
    return found, same


def _interrupted(incident: Incident, lost: Sequence[EvaluatedCase]) -> CountTerm:
    known = [
        max(len(loss.tasks) for loss in losses)
        for each in lost
        if each.end is not None and (losses := tasks_at_loss(each.end, incident))
    ]
    if not known:
        return CountTerm(missing="the flight recorder (workerdiag.install(client)) before the next run")
    return CountTerm(count=sum(known), origin=f"the flight recorder, for {len(known)} of the deaths")
