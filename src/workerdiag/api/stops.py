"""
Which deaths somebody asked for, so that nobody needs to be told.
"""

from __future__ import annotations

from workerdiag.model.diagnosis import Death
from workerdiag.model.rules import Rulebook

#: Below this probability a stop is not taken for a deliberate one.
_SURE_OF_STOP = 0.8


def is_deliberate_stop(death: Death, book: Rulebook) -> bool:
    """
    Whether somebody asked for it: a rule may know that although the scheduler was not told.

    A stop that the platform asked for (SIGTERM from outside) is none of the user's.
    """
    if death.stop_requested:
        return True
    cause = book.cause(death.cause) if death.cause is not None else None
    is_stop = cause is not None and cause.ends == "stopped" and cause.blame != "platform"
    return is_stop and death.probability >= _SURE_OF_STOP
