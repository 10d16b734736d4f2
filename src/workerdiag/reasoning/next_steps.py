"""
What would settle it: the looks that tell the likeliest causes apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from workerdiag.model.diagnosis import NextStep, RankedCause
from workerdiag.model.rules import Rulebook
from workerdiag.reasoning.incident import Incident

#: A cause this likely is settled; below it, looks for it are worth their while.
SETTLED = 0.9
MOST_STEPS = 6
_WORTH_A_LOOK = 0.05


def next_steps(
    outcome: str, ranked: Sequence[RankedCause], book: Rulebook, incident: Incident
) -> tuple[NextStep, ...]:
    """
    At most `MOST_STEPS` looks, the most telling first; none when nothing died.
    """
    if outcome == "no-death":
        return ()
    steps: dict[str, NextStep] = {}
    if not ranked or ranked[0].probability < SETTLED:
        for each in ranked[:4]:
            cause = book.cause(each.id)
            for look in cause.settled_by if cause and each.probability >= _WORTH_A_LOOK else ():
                known = steps.get(look.look)
                settles = (*(known.settles if known else ()), each.id)
                steps[look.look] = NextStep(
                    look=look.look,
                    command=look.command,
                    permission=look.permission,
                    until=look.until,
                    settles=settles,
                )
    telling = sorted(steps.values(), key=lambda step: -len(step.settles))
    fallback = _fallback(incident) if outcome in ("unknown", "no-evidence") and not telling else []
    return tuple([*telling, *fallback][:MOST_STEPS])


def _fallback(incident: Incident) -> list[NextStep]:
    """
    Where nothing speaks for any cause: the places that would have said something.
    """
    steps = []
    if "nanny log" not in incident.looked:
        steps.append(
            NextStep(
                look="the log of the nanny (the `dask worker` process) of the worker that died",
                command="client.get_worker_logs(workers=[NANNY_ADDRESS], n=200)",
                until="the nanny ends",
            )
        )
    if "kernel log" not in incident.looked:
        steps.append(
            NextStep(
                look="the kernel log of the worker's machine around the time of death",
                command="dmesg -T | grep -iE 'killed process|segfault'",
                permission="may need root",
                until="the machine restarts",
            )
        )
    return steps
