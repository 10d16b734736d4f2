"""
What tells that a worker went without a word: its machine boots below its log, or a client sees no workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import REGISTRATIONS
from workerdiag.scoring.open_ended_logs import GOODBYES

_UP = (*REGISTRATIONS, "worker.registered")


def aftermaths(incident: Incident) -> Iterator[Match]:
    """
    The first such mark of each log below a worker that was up, where no line between tells that one went.
    """
    is_up: set[str] = set()
    for each in incident.marks:
        if each.owner in _UP:
            is_up.add(each.origin)
        elif each.role in GOODBYES:
            is_up.discard(each.origin)
        elif each.role == "aftermath" and each.origin in is_up:
            is_up.discard(each.origin)
            yield each
