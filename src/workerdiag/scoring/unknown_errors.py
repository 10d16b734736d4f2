"""
Errors in logs that neither a landmark nor a sign knows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.incident import Incident
from workerdiag.model.rules import LINE_OF_OTHERS
from workerdiag.model.vocabulary import MatchRole

#: Marks of no worker's life: an unknown error, how the cluster was brought up, exits of any process.
SILENT_ROLES: tuple[MatchRole, ...] = ("error", "deployment", "exit-report", "other-program", "aftermath")
#: How Python shows an exception.
_EXCEPTION = re.compile(r"[ \t]*(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Warning)\b")
#: Lines of a traceback in text without headers.
_TRACEBACK_LINES = 100


def unknown_error(
    incident: Incident, explaining: Iterable[Match], is_noise: Callable[[Match], bool]
) -> Match | None:
    """
    The last error of *incident* that nothing known stands beside; None if there is none.

    Args:
        incident: Its marks are searched. Takes time linear in them and in the lines that they span.
        explaining: Signs that explain the error in whose message they stand.
        is_noise: Whether an error says nothing, because of when it was written.
    """
    known = _KnownPlaces(incident, explaining)
    raised = [facts for facts in incident.exceptions if facts.relation == "raised"]
    caught_of_task = bool(raised) and all(facts.from_task for facts in raised)
    for each in reversed(incident.marks):
        if each.role != "error" or each.in_task or is_noise(each):
            continue
        if caught_of_task and each.origin == "exception":  # the worker lived to report it
            continue
        if not known.include(each):
            return each
    return None


class _KnownPlaces:
    """
    Where landmarks and signs stand that say what an error is.
    """

    def __init__(self, incident: Incident, explaining: Iterable[Match]) -> None:
        told = (each for each in incident.marks if each.role not in (*SILENT_ROLES, RECOGNITION_ROLE))
        landmarks = [*explaining, *told]
        errors = [each for each in incident.marks if each.role == "error"]
        self._messages = {(each.origin, each.message_line) for each in landmarks if each.message_line}
        self._lines: dict[str, list[int]] = {}
        for each in sorted(landmarks, key=lambda mark: mark.line):
            self._lines.setdefault(each.origin, []).append(each.line)
        self._judged = {(each.origin, each.message_line) for each in errors if each.owner != LINE_OF_OTHERS}
        others = {(each.origin, each.last_line) for each in errors if each.owner == LINE_OF_OTHERS}
        self._covered = {
            place
            for each in (landmarks if others else ())
            for line in range(each.line, max(each.line, each.last_line) + 1)
            if (place := (each.origin, line)) in others
        }

    def include(self, error: Match) -> bool:
        """
        Whether something known stands in the message of *error*, or near it in text without headers.
        """
        if error.owner == LINE_OF_OTHERS:
            return self._knows_line(error)
        if error.message_line:
            return (error.origin, error.message_line) in self._messages
        lines = self._lines.get(error.origin, ())
        return _has_between(lines, error.line, error.line + _TRACEBACK_LINES)

    def _knows_line(self, line: Match) -> bool:
        """
        Whether a landmark reaches into *line*, it is an exception, or its message has another error.
        """
        if _EXCEPTION.match(
            line.text.rpartition(" … ")[2]
        ):  # shown without frames, as a caller shows a task's
            return True
        judged = (line.origin, line.message_line) in self._judged
        return judged or (line.origin, line.last_line) in self._covered


def _has_between(lines: Sequence[int], first: int, last: int) -> bool:
    return bisect_right(lines, last) > bisect_right(lines, first - 1)
