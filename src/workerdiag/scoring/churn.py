"""A cluster that only churns: workers die, others take their place and die of the same, and nothing is raised.

Workers that were asked to stop do not count, however often they are replaced. Neither does one batch of workers
that are lost together, since none of them had taken the place of another.
"""

from __future__ import annotations

from collections.abc import Sequence

from workerdiag.model.diagnosis import Churn, CountTerm
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import decimal, whole
from workerdiag.scoring.evaluate import EvaluatedCase
from workerdiag.scoring.findings import tasks_at_loss

#: At least so many workers died, and so many of them in the place of another one.
MIN_DEATHS, MIN_REPLACEMENTS = 3, 2
#: It is over when nobody has died for so many seconds, and for so many times the usual time between two deaths,
#: unless no worker is left: a LocalCluster gives up a nanny whose worker happens to be restarting some time after
#: an earlier death (``lost-worker-timeout``).
_OVER_S, _OVER_TIMES = 30.0, 3.0
_RECORDER = "the flight recorder (workerdiag.install(client)) before the next run"
_EVENTS = "the scheduler's events of removed workers"
_COUNTS = "the scheduler's counts for the kinds of task at work"


def churn_of(
    incident: Incident, evaluated: Sequence[EvaluatedCase]
) -> tuple[Churn, tuple[EvaluatedCase, ...]] | None:
    """A churn that goes on, and its deaths, oldest first; None if there is none.

    Those are deaths of the newest known cause, and those of no known cause. Whether work waits is for the caller
    to see.
    """
    state = next(iter(incident.fields_of("scheduler-state")), {})
    lost = [each for each in evaluated if each.is_unexpected]
    newest = next((cause for each in reversed(lost) if (cause := _cause(each))), None)
    same = tuple(each for each in lost if _cause(each) in (newest, None))
    others = len(lost) - len(same)
    all_deaths = whole(state.get("lost_unasked")) or 0
    replacements = (whole(state.get("lost_replacements")) or 0) - others
    within_s, ago_s = decimal(state.get("lost_within_s")) or 0.0, decimal(state.get("lost_last_s")) or 0.0
    is_over = ago_s > max(_OVER_S, _OVER_TIMES * within_s / max(all_deaths - 1, 1)) and state.get("workers") != "0"
    if not same or is_over or all_deaths - others < MIN_DEATHS or replacements < MIN_REPLACEMENTS:
        return None
    results, finished = whole(state.get("lost_results")), _finished(incident)
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


def _cause(evaluated: EvaluatedCase) -> str | None:
    return evaluated.chances.explanation[0] if evaluated.chances.explanation else None


def _finished(incident: Incident) -> int | None:
    """How many results were finished in all; None if no kind of task is known."""
    needs = incident.fields_of("task-needs")
    kinds = {each.get("kind", ""): whole(each.get("finished")) or 0 for each in needs}
    return sum(kinds.values()) if kinds else None


def _interrupted(incident: Incident, lost: Sequence[EvaluatedCase]) -> CountTerm:
    """The tasks that ran at the deaths, as far as the recorder saw them."""
    known = [
        max(len(each.tasks) for each in losses)
        for case in lost
        if case.case.end is not None and (losses := tasks_at_loss(case.case.end, incident))
    ]
    if not known:
        return CountTerm(missing=_RECORDER)
    return CountTerm(count=sum(known), origin=f"the flight recorder, for {len(known)} of the deaths")
