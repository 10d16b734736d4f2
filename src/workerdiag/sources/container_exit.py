"""
How containers ended, as those report it who run them.
"""

from __future__ import annotations

from workerdiag.model.evidence import Identity, ProcessExit

#: A process that a signal ended is reported as this and the signal's number, as shells do (man 1 bash).
_SIGNALLED = 128
_MOST_SIGNAL = 64


def container_exit(exit_code: int, *, whose: Identity, when: float | None, said_by: str) -> ProcessExit:
    """
    The end of a container's first process: the nanny, or a worker without one.

    Args:
        exit_code: As the platform has it, a signal with 128 added.
        whose: The worker in that container.
        when: Seconds since the epoch; None if it is not told.
        said_by: The platform.
    """
    signalled = _SIGNALLED < exit_code <= _SIGNALLED + _MOST_SIGNAL
    return ProcessExit(
        whose=whose,
        signal=exit_code - _SIGNALLED if signalled else None,
        status=None if signalled else exit_code,
        when=when,
        said_by=said_by,
    )
