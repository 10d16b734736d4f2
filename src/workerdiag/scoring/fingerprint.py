"""The fingerprint: a key that is equal for repeats of one trouble."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from workerdiag.model.diagnosis import SURE_ENOUGH, Death, RankedCause
from workerdiag.model.signals import signal_of_status
from workerdiag.model.vocabulary import Outcome

#: Classes of exits by signal (man 7 signal); any other signal is "killed".
_CRASHES = frozenset({4, 5, 6, 7, 8, 11, 31})
_REQUESTS = frozenset({1, 2, 3, 15})


def fingerprint(
    outcome: Outcome, ranked: Sequence[RankedCause], deaths: Sequence[Death], task: str | None
) -> str:
    """Twelve hexadecimal digits, equal for repeats of the same trouble.

    They identify the likeliest cause if it has at least 50 %, else the outcome, the class of the exits and
    the kind of task.
    """
    if ranked and ranked[0].probability >= SURE_ENOUGH:
        parts = ["cause", ranked[0].id]
    else:
        parts = ["outcome", outcome, exit_class(deaths), kind_of_task(task or "")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def exit_class(deaths: Sequence[Death]) -> str:
    """How the first unexpected death with a known exit ended: crashed, killed, terminated or exited."""
    known = (_class_of(death) for death in deaths if not death.stop_requested)
    return next((each for each in known if each), "unknown")


def _class_of(death: Death) -> str:
    signal, status = death.signal, death.status
    if signal is None and status is not None:
        signal = signal_of_status(status)
    if signal is not None:
        return "crashed" if signal in _CRASHES else "terminated" if signal in _REQUESTS else "killed"
    return "" if status is None else "exited"


def kind_of_task(key: str) -> str:
    """The part of a key that names the kind of task (dask.utils.key_split, roughly)."""
    name = re.sub(r"^[(\['\"]+", "", key)
    name = re.split(r"['\",]", name)[0]
    parts = [word for word in name.split("-") if not re.fullmatch(r"[0-9a-f]{6,}|\d+", word)]
    return "-".join(parts)
