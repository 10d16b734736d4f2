"""
How containers ended, as those report it who run them.
"""

from __future__ import annotations

from workerdiag.model.evidence import ProcessExit
from workerdiag.model.identity import Identity

#: A process that a signal ended is reported as this and the signal's number, as shells do (man 1 bash).
_SIGNAL_OFFSET = 128
_MAX_SIGNAL = 64


def container_exit(exit_code: int, *, identity: Identity, when: float | None, reporter: str) -> ProcessExit:
    """
    The end of a container's first process: the nanny, or a worker without one.

    Args:
        exit_code: As the platform has it, a signal with 128 added.
        identity: The worker in that container.
        when: Seconds since the epoch; None if it is not told.
        reporter: The platform.
    """
    signalled = _SIGNAL_OFFSET < exit_code <= _SIGNAL_OFFSET + _MAX_SIGNAL
    return ProcessExit(
        identity=identity,
        signal=exit_code - _SIGNAL_OFFSET if signalled else None,
        status=None if signalled else exit_code,
        when=when,
        reporter=reporter,
    )
