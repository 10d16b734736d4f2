"""Dask's words for a request to stop a worker, and the workers that a stop order lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the recorder loads this module in a running worker
    from workerdiag.model.diagnosis import Match
    from workerdiag.model.identity import Identity

#: The default reason: code, or a signal handler, called ``close()`` without a reason.
DEFAULT_REASON = "worker-close"
#: How the reason begins of who asked (``reason`` and ``stimulus`` in worker.py, nanny.py and scheduler.py,
#: 2022.10.1 to 2026.8.0), but for signals: a death by one is investigated, as its sender and reason are unknown.
DASK_REQUESTS = tuple(
    "scheduler- retire-workers client-restart nanny-close nanny-plugin- nanny-kill nanny-restart workerprocess-"
    " worker-close worker-lifetime-reached".split()
)
#: Stimulus of removals after missing heartbeats; the scheduler then has the nanny stop the worker.
UNRESPONSIVE = "check-worker-ttl"
#: Prefixes of all reasons that Dask itself gives, requested or not.
_DASK_REASONS = (
    *"signal- scheduler- nanny- worker- workerprocess- client- failure-to-start retire-workers".split(),
    *("idle-timeout", "unknown", UNRESPONSIVE),
)
#: The scheduler's event of a restart, logged when the restart is over.
_RESTARTED = "restart-workers"
_ADDRESS = re.compile(r"\b\w{2,9}://[^ '\",>]+")


def is_stop_request(reason: str) -> bool:
    """Whether somebody asked for the stop, in Dask's words or with a reason that code gave."""
    if not reason or reason.startswith(("signal-", *DASK_REQUESTS)):
        return bool(reason)
    return not reason.startswith(_DASK_REASONS)


def is_dask_stop_request(reason: str) -> bool:
    """Whether a part of Dask asked for the stop, and certainly not a signal; the default reason does not count."""
    return reason != DEFAULT_REASON and reason.startswith(DASK_REQUESTS)


def is_retirement(stimulus: str) -> bool:
    """Whether a removal with this stimulus ends a retirement, so that the scheduler expected it (scheduler.py)."""
    return stimulus.startswith(("retire-workers-", "worker-close-gracefully-"))


def is_deliberate(*, announced: bool, close_reason: object) -> bool:
    """Whether a part of Dask asked for the stop. Signals and closing nannies are judged by the evidence."""
    return announced or (isinstance(close_reason, str) and is_dask_stop_request(close_reason))


def is_restart_event(match: Match) -> bool:
    """Whether *match* is in the scheduler's restart event."""
    return not match.line and match.captures.get("action") == _RESTARTED


def workers_of_restart(fields: Mapping[str, object]) -> frozenset[str]:
    """Return the addresses of workers in the *fields* of an event, if it is a complete restart event."""
    workers = _split(str(fields.get("workers", ""))) if fields.get("action") == _RESTARTED else frozenset()
    count = str(fields.get("workers_count", len(workers)))
    return workers if str(len(workers)) == count else frozenset()


def may_retire(order: Match, identity: Identity) -> bool:
    """Whether a retirement, which lists addresses or names of workers, may include this worker."""
    listed = retired_workers(order)
    if not listed or identity.worker is None or identity.worker in listed or identity.name in listed:
        return True
    return identity.name is None and not all("://" in each for each in listed)


def retired_workers(order: Match) -> frozenset[str]:
    """Return the addresses or names of workers in a retirement; empty if it lists none, or its text was cut."""
    return _retired_workers(order.captures.get("worker"), order.text)


@lru_cache(maxsize=2000)  # per text: a log has up to 800 orders, compared with each death
def _retired_workers(worker: str | None, text: str) -> frozenset[str]:
    found = re.search(r"[(\[{]([^()\[\]{}=]*)[)\]}]\s*$", text)
    retired = worker or (found[1] if found and len(text) < 600 else "")
    return _split(retired)


def _split(listed: str) -> frozenset[str]:
    if "<Worker" in listed:  # the scheduler's states of workers, before 2024.3.0
        return frozenset(_ADDRESS.findall(listed))
    return frozenset(each.strip(" '\"") for each in listed.split(",")) - {""}
