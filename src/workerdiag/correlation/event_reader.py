"""
The ends of worker processes that the scheduler's events report.
"""

from __future__ import annotations

from collections.abc import Iterable

from workerdiag.correlation.end_builder import EndBuilder
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.stop_reasons import is_stop_request


def ends_from_events(marks: Iterable[Match]) -> list[ProcessEnd]:
    """
    One end for each worker address.
    """
    ends: dict[str, EndBuilder] = {}
    for mark in marks:
        worker = mark.identity.worker or mark.captures.get("worker")
        if not worker or mark.role not in ("removal", "closing", "self-closed", "stop-request"):
            continue
        end = ends.setdefault(worker, EndBuilder(identity=Identity(worker=worker)))
        end.learn_from(mark, reporter="scheduler events")
        reason = mark.captures.get("reason", "")
        if mark.role == "removal":
            expected = mark.captures.get("expected") == "True"
            end.stop_requested, end.lost = end.stop_requested or expected, end.lost or not expected
        elif mark.role == "stop-request" or is_stop_request(reason):
            end.stop_requested = True
        else:
            end.lost = True
    return [end.build() for end in ends.values() if any(mark.role != "closing" for mark in end.marks)]
