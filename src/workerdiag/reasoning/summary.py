"""
The one sentence, and the fingerprint by which repeats are known.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from workerdiag.model.diagnosis import Blame, Death, RankedCause
from workerdiag.reasoning.incident import Incident


def summary(outcome: str, ranked: Sequence[RankedCause], deaths: Sequence[Death], incident: Incident) -> str:
    """
    What happened, in one sentence, for each outcome.
    """
    lost = [death for death in deaths if not death.asked]
    if outcome == "explained":
        same = [death for death in lost if death.cause == ranked[0].id]
        times = f" ({len(same)} worker processes)" if len(same) > 1 else ""
        return f"{ranked[0].title}{times}."
    if outcome == "no-death":
        failed = sum(mark.role == "task-error" for mark in incident.marks)
        failed = failed or sum(
            facts.from_task and facts.relation == "raised" for facts in incident.exceptions
        )
        if failed:
            raised = next(
                (facts.type.rpartition(".")[2] for facts in incident.exceptions if facts.from_task), ""
            )
            what = f" with {raised}" if raised else ""
            return f"No worker died: {'a task' if failed == 1 else f'{failed} tasks'} failed{what}."
        if deaths:
            return f"No worker died unasked: {_count(deaths)} left in order."
        return "No sign that a worker died or that work stands still."
    if not lost:
        raised = next((facts.type.rpartition(".")[2] for facts in incident.exceptions), "")
        what = f"{raised} was raised" if raised else "Something went wrong"
        return f"{what}, and nothing that was seen says what is behind it."
    return f"{_count(lost)} died{_exits(lost)}, and nothing that was seen says why."


def fingerprint(outcome: str, ranked: Sequence[RankedCause], deaths: Sequence[Death], blame: Blame) -> str:
    """
    Twelve hexadecimal digits, equal for the same cause, exits and kind of task.

    Hosts, addresses, pids, times and the running parts of task keys are not in it.
    """
    exits = sorted({f"{death.signal}/{death.status}" for death in deaths if not death.asked})
    top = ranked[0].id if outcome == "explained" else outcome
    parts = (top, *exits, _kind_of_task(blame.task or ""))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _kind_of_task(key: str) -> str:
    """
    The part of a key that names the kind of task (dask.utils.key_split, roughly).
    """
    name = re.sub(r"^[(\['\"]+", "", key)
    name = re.split(r"['\",]", name)[0]
    kept = [word for word in name.split("-") if not re.fullmatch(r"[0-9a-f]{6,}|\d+", word)]
    return "-".join(kept)


def _count(deaths: Sequence[Death]) -> str:
    return "a worker" if len(deaths) == 1 else f"{len(deaths)} workers"


def _exits(deaths: Sequence[Death]) -> str:
    said = Counter(
        f"signal {death.signal}" if death.signal is not None else f"exit status {death.status}"
        for death in deaths
        if death.signal is not None or death.status is not None
    )
    return f" ({', '.join(said)})" if said else ""
