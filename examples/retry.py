"""Run work on Dask, and start it again only where that harms nobody.

    from retry import run
    total = run(lambda client: client.submit(sum, [1, 2]).result(), start)

``start(memory_bytes)`` returns a client that can be left with ``with``, of a cluster whose workers have at
least that much memory (None: as usual). Run this file for a demonstration on this machine.
"""

from __future__ import annotations

import logging
import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import dask
from distributed import Client

import workerdiag

logger = logging.getLogger("retry")


def run(work: Callable[[Client], Any], start: Callable[[int | None], Client], *, tries: int = 3) -> Any:
    """What *work* returns, after at most so many tries.

    *work* makes its futures anew each time: one that failed stays failed.
    The exception of the last try carries what workerdiag says of a retry.
    """
    memory_bytes = None
    tried = Counter[str]()
    while True:
        with start(memory_bytes) as client:
            action = "retry"
            while action == "retry":
                try:
                    return work(client)
                except Exception as exc:
                    policy = workerdiag.explain(exc, client).decision.policy
                    action = policy.action
                    tries -= 1
                    tried[action] += 1
                    logger.warning("%s: %s (%d tries left)", action, policy.reason, tries)
                    used_up = tries <= 0 or tried[action] > (policy.max_tries or tried[action])
                    if used_up or action in ("do-not-retry", "ask"):
                        exc.add_note(" ".join((f"{action}: {policy.reason}.", *policy.conditions)))
                        raise
                    # Its frames hold the failed futures; the scheduler would answer with them again.
                    traceback.clear_frames(exc.__traceback__)
            memory_bytes = policy.memory_bytes or memory_bytes


def start(memory_bytes: int | None = None) -> Client:
    """A cluster on this machine that gives a task up at its first death."""
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        return Client(n_workers=1, threads_per_worker=1, memory_limit=memory_bytes or "1 GiB")


def poisoned() -> None:
    """Crash the worker, as a broken library does."""
    os.kill(os.getpid(), signal.SIGSEGV)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    print(run(lambda client: client.submit(sum, [1, 2]).result(), start))
    run(lambda client: client.submit(poisoned).result(), start)
