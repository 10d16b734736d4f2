"""
Reads what the scheduler's events tell of worker processes that ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from workerdiag.correlation.end_builder import EndBuilder
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.stop_reasons import is_stop_request


def ends_from_events(marks: Iterable[Match]) -> list[EndBuilder]:
    """
    The ends that the scheduler's events tell of, one for each worker address.
    """
    ends: dict[str, EndBuilder] = {}
    for mark in marks:
        worker = mark.identity.worker or mark.captures.get("worker")
        if not worker or mark.role not in ("removal", "closing", "self-closed", "stop-request"):
            continue
        end = ends.setdefault(worker, EndBuilder(identity=Identity(worker=worker)))
        end.learn_from(mark, reporters="scheduler events")
        reason = mark.captures.get("reason", "")
        if mark.role == "removal":
            expected = mark.captures.get("expected") == "True"
            end.stop_requested, end.lost = end.stop_requested or expected, end.lost or not expected
        elif mark.role == "stop-request" or is_stop_request(reason):
            end.stop_requested = True
        else:
            end.lost = True
    return [end for end in ends.values() if any(mark.role != "closing" for mark in end.marks)]
