"""Waiting until a nanny has noted an exit, and no longer."""

from __future__ import annotations

import asyncio

from workerdiag.deadline import Deadline
from workerdiag.sources.cluster import session
from workerdiag.sources.cluster.queries import ServerLogRecord

BEFORE = [ServerLogRecord(0.0, "INFO", "distributed.nanny - INFO - Start Nanny at: 'tcp://10.0.0.4:4001'")]
TOLD = [
    *BEFORE,
    ServerLogRecord(1.0, "INFO", "distributed.nanny - INFO - Worker process 7012 exited with status 3"),
]


ENDED_WITH_ONE = [
    *BEFORE,
    ServerLogRecord(1.0, "INFO", "distributed.nanny - INFO - Worker process 7012 exited with status 1"),
]
RESTARTED = [
    *ENDED_WITH_ONE,
    ServerLogRecord(1.0, "WARNING", "distributed.nanny - WARNING - Restarting worker"),
]


def ask_until(
    *answers: list[ServerLogRecord], pids: tuple[int, ...] = (7012,), within_s: float = 10.0
) -> tuple[list[ServerLogRecord], int]:
    """What comes out, and how many questions that took, when the log reads so each time."""
    waiting = list(answers)
    count = 0

    async def read() -> list[ServerLogRecord]:
        nonlocal count
        count += 1
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    return list(asyncio.run(session.wait_for_exits(read, pids, Deadline.after(within_s)))), count


def test_an_exit_that_is_noted_late_is_waited_for():
    """KilledWorker can be caught before the nanny knows how the process ended."""
    assert ask_until(BEFORE, BEFORE, TOLD) == (TOLD, 3)


def test_an_exit_that_is_noted_costs_no_wait():
    """One question is enough where the answer is there."""
    assert ask_until(TOLD) == (TOLD, 1)


def test_what_the_nanny_does_after_status_one_is_waited_for():
    """It says so some milliseconds later, and the status alone could be that of a start that failed."""
    assert ask_until(BEFORE, ENDED_WITH_ONE, RESTARTED) == (RESTARTED, 3)
    assert ask_until(ENDED_WITH_ONE, pids=(8000,), within_s=0.0) == (ENDED_WITH_ONE, 1)


def test_without_a_process_to_hear_of_there_is_no_wait():
    """Where nobody is known to have died, the log is read once."""
    assert ask_until(BEFORE, pids=()) == (BEFORE, 1)


def test_patience_ends_with_the_time_there_is():
    """A process that exited with 0 is never noted, and a short budget is kept."""
    records, count = ask_until(BEFORE, within_s=0.0)

    assert (records, count) == (BEFORE, 1)
