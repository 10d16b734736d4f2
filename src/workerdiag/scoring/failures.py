"""Failures that are not deaths: a task's own error, and errors in logs that no rule knows."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable

from attrs import evolve

from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match, TaskFailure
from workerdiag.model.incident import Incident
from workerdiag.model.rules import LINE_OF_OTHERS
from workerdiag.model.user_code import is_library
from workerdiag.model.vocabulary import MatchRole

#: `Match.origin` of what the caller's exception shows.
EXCEPTION_ORIGIN = "exception"
#: A text as ``repr`` writes it, and an escaped character in it.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
#: ``KeyError('station')``, as Python writes an exception.
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)\((?P<message>.*)\)", re.DOTALL)
#: A line of a traceback, with the code below it.
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)(?:\n    (\S[^\n]*))?')
#: Roles that say nothing about a worker: unknown errors, how the cluster was deployed, exits of any process.
SILENT_ROLES: tuple[MatchRole, ...] = ("error", "deployment", "exit-report", "other-program", "aftermath")
_EXCEPTION = re.compile(r"[ \t]*(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Warning)\b")


def task_failure(incident: Incident) -> TaskFailure | None:
    """The task's error behind the caller's exception, else the first one in a log."""
    logged = (failure for mark in incident.marks if (failure := _logged_failure(mark)))
    return caught_failure(incident) or next(logged, None)


def caught_failure(incident: Incident) -> TaskFailure | None:
    """The error of the task behind the caller's exception; None if no task raised it."""
    facts = next((facts for facts in incident.exceptions if facts.from_task or facts.in_caller), None)
    if facts is None:
        return None
    return TaskFailure(
        type=facts.class_name,
        message=facts.text,
        raised_at=facts.raised_at,
        source=facts.source,
        in_task=facts.from_task,
    )


def is_callers_own(incident: Incident) -> bool:
    """Whether the caught exception is a mistake of the caller's own program, in which no worker took part."""
    return not incident.about and any(facts.in_caller for facts in incident.exceptions[:1])


def is_own_error(incident: Incident) -> bool:
    """Whether the caught exception, with its causes, is the task's or caller's own: then no death is asked for."""
    if incident.about or not incident.exceptions:
        return False
    return is_callers_own(incident) or not any(facts.maybe_dask for facts in incident.exceptions)


def split_exception(incident: Incident) -> tuple[Incident, Incident]:
    """The incident with the caller's exception alone, and with everything else."""
    told = tuple(each for each in incident.all_signs if each.origin == EXCEPTION_ORIGIN)
    marks = tuple(each for each in incident.marks if each.origin == EXCEPTION_ORIGIN)
    cases = tuple(evolve(case, signs=_without_exception(case.signs)) for case in incident.cases)
    return (
        evolve(incident, cases=(), unassigned_signs=told, marks=marks),
        evolve(incident, cases=cases, unassigned_signs=_without_exception(incident.unassigned_signs)),
    )


def _without_exception(signs: Iterable[Match]) -> tuple[Match, ...]:
    return tuple(each for each in signs if each.origin != EXCEPTION_ORIGIN)


def _logged_failure(mark: Match) -> TaskFailure | None:
    """The failure that a worker logs as ``Compute Failed`` (distributed/worker.py, 2024.8.1 to 2026.8.0)."""
    raised = _RAISED.fullmatch(_unquoted(mark.captures.get("exception", ""))) if mark.role == "task-error" else None
    if raised is None:
        return None
    place, source = _own_line(_unquoted(mark.captures.get("traceback", "")))
    # As str() has them: KeyError's is the key as Python writes it.
    message = raised["message"] if raised["type"] == "KeyError" else _unquoted(raised["message"])
    return TaskFailure(type=raised["type"].rpartition(".")[2], message=message, raised_at=place, source=source)


def _own_line(traceback: str) -> tuple[str, tuple[str, ...]]:
    """The innermost line of user code, as ``function (file:line)``, and the line itself."""
    own = [frame for frame in _FRAME.findall(traceback) if not is_library(frame[0])]
    if not own:
        return "", ()
    file, line, function, code = own[-1]
    name = file.replace("\\", "/").rpartition("/")[2]
    return f"{function} ({name}:{line})", (f"> {line:>4}  {code}",) if code else ()


def _unquoted(text: str) -> str:
    """The text behind its ``repr``; any other text unchanged."""
    text = text.strip()
    return _ESCAPE.sub(_character, text[1:-1]) if _QUOTED.fullmatch(text) else text


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    return chr(int(digits, 16)) if digits else _CONTROLS.get(escape[3], escape[3])


def unknown_error(
    incident: Incident, explaining: Iterable[Match], is_noise: Callable[[Match], bool]
) -> Match | None:
    """The last error that nothing known explains, in time linear in the marks and their lines; or None."""
    known = _KnownPlaces(incident, explaining)
    raised = [facts for facts in incident.exceptions if facts.relation == "raised"]
    caught_of_task = bool(raised) and all(facts.from_task or facts.in_caller for facts in raised)
    for each in reversed(incident.marks):
        is_told = caught_of_task and each.origin == EXCEPTION_ORIGIN  # the worker lived to report it
        if each.role == "error" and not (each.in_task or is_told or is_noise(each) or known.include(each)):
            return each
    return None


class _KnownPlaces:
    """The places of landmarks and signs that identify an error."""

    def __init__(self, incident: Incident, explaining: Iterable[Match]) -> None:
        told = (each for each in incident.marks if each.role not in (*SILENT_ROLES, RECOGNITION_ROLE))
        landmarks = [*explaining, *told]
        errors = [each for each in incident.marks if each.role == "error"]
        self._messages = {(each.origin, each.message_line) for each in landmarks if each.message_line}
        self._lines: dict[str, list[int]] = {}
        for each in sorted(landmarks, key=lambda mark: mark.line):
            self._lines.setdefault(each.origin, []).append(each.line)
        self._other_errors = {(each.origin, each.message_line) for each in errors if each.owner != LINE_OF_OTHERS}
        others = {(each.origin, each.last_line) for each in errors if each.owner == LINE_OF_OTHERS}
        self._covered = {
            place
            for each in (landmarks if others else ())
            for line in range(each.line, max(each.line, each.last_line) + 1)
            if (place := (each.origin, line)) in others
        }

    def include(self, error: Match) -> bool:
        """Whether the message of *error*, or text without headers near it, has something known or another error."""
        message = (error.origin, error.message_line)
        if error.owner == LINE_OF_OTHERS:  # or it is an exception without frames, as a caller shows a task's
            is_exception = _EXCEPTION.match(error.text.rpartition(" … ")[2]) is not None
            return is_exception or message in self._other_errors or (error.origin, error.last_line) in self._covered
        if error.message_line:
            return message in self._messages
        lines = self._lines.get(error.origin, ())
        return bisect_right(lines, error.line + 100) > bisect_right(lines, error.line - 1)


def failed_tasks(incident: Incident) -> int:
    """How many tasks failed; worker and client each report the same failure, and one log may be given twice."""
    by_log: dict[tuple[str, str], Counter[object]] = {}
    for mark in incident.marks:
        if mark.role == "task-error":
            by_log.setdefault((mark.owner, mark.origin), Counter())[_message_key(mark)] += 1
    by_teller: dict[str, Counter[object]] = {}
    for (teller, _), messages in by_log.items():
        by_teller[teller] = by_teller.get(teller, Counter()) | messages
    logged = max((each.total() for each in by_teller.values()), default=0)
    return logged or sum(facts.from_task and facts.relation == "raised" for facts in incident.exceptions)


def _message_key(mark: Match) -> tuple[object, ...]:
    if mark.when is None:
        return mark.origin, mark.line
    return mark.when, mark.text, mark.captures.get("exception")
