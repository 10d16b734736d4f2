"""
How containers ended, as those report it who run them.
"""

from __future__ import annotations

from workerdiag.model.evidence import ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.signals import signal_of_status


def container_exit(exit_code: int, *, identity: Identity, when: float | None, reporter: str) -> ProcessExit:
    """
    The end of a container's first process: the nanny, or a worker without one.

    Args:
        exit_code: As the platform has it, a signal with 128 added.
        identity: The worker in that container.
        when: Seconds since the epoch; None if it is not told.
        reporter: The platform.
    """
    signal = signal_of_status(exit_code)
    return ProcessExit(
        identity=identity,
        signal=signal,
        status=exit_code if signal is None else None,
        when=when,
        reporter=reporter,
    )
