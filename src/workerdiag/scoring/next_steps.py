"""
What would settle it: the looks that tell the likeliest causes apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from workerdiag.model.diagnosis import NextStep, RankedCause
from workerdiag.model.incident import Incident
from workerdiag.model.rules import Mitigation, Rulebook
from workerdiag.model.vocabulary import Outcome
from workerdiag.scoring.advice import applicable_advice
from workerdiag.scoring.cluster_setup import ClusterSetup, failed_tasks

#: A cause this likely is settled; below it, looks for it are worth their while.
SETTLED_CHANCE = 0.9
MAX_STEPS = 6
_WORTH_A_LOOK = 0.03
#: `Match.origin` of what the flight recorder's events show.
_RECORDER_TOPIC = "event recorder"

#: The caller's own patience ended, as a log tells.
_WAITED_IN_VAIN = "client.waited-in-vain"

_RECORD_NEXT_DEATH = NextStep(
    inspect="the flight recorder's record of the next death, with exit status, tasks, output and memory: "
    "install it before the work runs again",
    command="workerdiag.install(client)",
)


def next_steps(
    outcome: Outcome, ranked: Sequence[RankedCause], book: Rulebook, incident: Incident, setting: ClusterSetup
) -> tuple[NextStep, ...]:
    """
    At most `MAX_STEPS` looks, the most telling first; where nothing died only those at a failed task.
    """
    if outcome == "no-death":
        return tuple(_advised_steps(book.task_advice if failed_tasks(incident) else (), setting))
    steps: dict[str, NextStep] = {}
    if not ranked or ranked[0].probability < SETTLED_CHANCE:
        for each in ranked[:4]:
            cause = book.cause(each.id)
            for step in cause.next_steps if cause and each.probability >= _WORTH_A_LOOK else ():
                known = steps.get(step.inspect)
                settles = (*(known.distinguishes if known else ()), each.id)
                steps[step.inspect] = NextStep(
                    inspect=step.inspect,
                    command=step.command,
                    permission=step.permission,
                    until=step.until,
                    distinguishes=settles,
                )
    ordered_steps = sorted(steps.values(), key=lambda step: -len(step.distinguishes))
    is_unknown = outcome in ("unknown", "no-evidence")
    fallback = _fallback_steps(incident) if is_unknown and not ordered_steps else []
    advised = _advised_steps(book.advice, setting) if is_unknown else []
    if outcome == "unknown" and incident.cases and not _is_recorded(incident):
        advised.append(_RECORD_NEXT_DEATH)
    return (*[*ordered_steps, *fallback][: MAX_STEPS - len(advised)], *advised)


def _advised_steps(advice: Iterable[Mitigation], setting: ClusterSetup) -> list[NextStep]:
    """
    What the rules say to look at where they name no cause, in the terms of the deployment at hand.
    """
    inspections = [evolve(each, do=each.inspect) for each in advice]
    return [
        NextStep(inspect=each.do, command=each.example)
        for each in applicable_advice(inspections, {}, setting)
    ]


def _is_recorded(incident: Incident) -> bool:
    """
    Whether the flight recorder said anything of these deaths.
    """
    return any(mark.origin == _RECORDER_TOPIC for mark in incident.marks)


def _is_caller_timeout(incident: Incident) -> bool:
    """
    Whether nobody is known to have died and the caller's own patience ended: no kernel tells of that.
    """
    raised = [each for each in incident.exceptions if each.relation == "raised"]
    caught = any(not each.from_task and each.type.rpartition(".")[2] == "TimeoutError" for each in raised)
    return not incident.cases and (caught or any(mark.owner == _WAITED_IN_VAIN for mark in incident.marks))


def _fallback_steps(incident: Incident) -> list[NextStep]:
    """
    Where nothing speaks for any cause: the places that would have said something.
    """
    steps = []
    if _is_caller_timeout(incident):
        return [
            NextStep(
                inspect="what runs at this moment, and what it does",
                command="client.processing(); client.call_stack()",
                until="it ends",
            )
        ]
    if "nanny log" not in incident.inspected:
        steps.append(
            NextStep(
                inspect="the log of the nanny (the `dask worker` process) of the worker that died",
                command="client.get_worker_logs(workers=[NANNY_ADDRESS], n=200)",
                until="the nanny ends",
            )
        )
    if "kernel log" not in incident.inspected:
        steps.append(
            NextStep(
                inspect="the kernel log of the worker's machine around the time of death",
                command="dmesg -T | grep -iE 'killed process|segfault'",
                permission="may need root",
                until="the machine restarts",
            )
        )
    return steps
