"""
The workers that an order to several of them lists: a retirement, or an event of a restart.
"""

from __future__ import annotations

import re
from functools import lru_cache

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity

#: The scheduler's event of a restart, logged when the restart is over.
_RESTARTED = "restart-workers"
_WORKER_LIST = re.compile(r"[(\[{]([^()\[\]{}=]*)[)\]}]\s*$")
#: A quoted message with at least this many characters was cut.
_CUT_CHARS = 600


def is_restart_event(match: Match) -> bool:
    """
    Whether *match* is in the scheduler's event of a restart.
    """
    return not match.line and match.captures.get("action") == _RESTARTED


def restarted_workers(order: Match) -> frozenset[str]:
    """
    Addresses of the workers that a restart event lists; empty for other matches and for incomplete lists.
    """
    workers = _split(order.captures.get("workers", "")) if is_restart_event(order) else frozenset()
    count = order.captures.get("workers_count", str(len(workers)))
    return workers if str(len(workers)) == count else frozenset()


def may_retire(order: Match, identity: Identity) -> bool:
    """
    Whether a retirement, which lists addresses or names of workers, may be of this one.
    """
    listed = _retired_workers(order.captures.get("worker"), order.text)
    if not listed or identity.worker is None or identity.worker in listed or identity.name in listed:
        return True
    return identity.name is None and not all("://" in each for each in listed)


@lru_cache(maxsize=500)  # of a text each
def _retired_workers(worker: str | None, text: str) -> frozenset[str]:
    found = _WORKER_LIST.search(text)
    retired = worker or (found[1] if found and len(text) < _CUT_CHARS else "")
    return _split(retired)


def _split(listed: str) -> frozenset[str]:
    return frozenset(each.strip(" '\"") for each in listed.split(",")) - {""}
