"""
What a task raised: as the caller caught it, or as a worker logged it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import evolve

from workerdiag.model.diagnosis import Match, TaskFailure
from workerdiag.model.incident import Incident
from workerdiag.model.source_files import is_library

#: `Match.origin` of what the caller's exception shows.
EXCEPTION_ORIGIN = "exception"
#: A text as ``repr`` writes it, and what stands for a character in it.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
#: ``KeyError('station')``, as Python writes an exception.
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)\((?P<message>.*)\)", re.DOTALL)
#: A line of a traceback, with the code below it.
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)(?:\n    (\S[^\n]*))?')


def task_failure(incident: Incident) -> TaskFailure | None:
    """
    What the task raised that the caller's exception comes from, or the first one that a log tells of.
    """
    logged = (failure for mark in incident.marks if (failure := _logged_failure(mark)))
    return caught_failure(incident) or next(logged, None)


def caught_failure(incident: Incident) -> TaskFailure | None:
    """
    What the task raised that the caller's exception comes from; None if it was no task.
    """
    facts = next((facts for facts in incident.exceptions if facts.from_task), None)
    if facts is None:
        return None
    kind = facts.type.rpartition(".")[2]
    return TaskFailure(type=kind, message=facts.text, raised_at=facts.raised_at, source=facts.source)


def deaths_are_separate(incident: Incident) -> bool:
    """
    Whether workers died, and a task raised by itself what the caller caught, so that no death is in question.

    Nothing in it or in what it was raised from is of Dask, and it names no worker.
    """
    of_task = any(facts.from_task for facts in incident.exceptions)
    is_own = of_task and not incident.about and not any(facts.maybe_dask for facts in incident.exceptions)
    return is_own and any(case.end and case.end.unexpected for case in incident.cases)


def split_exception(incident: Incident) -> tuple[Incident, Incident]:
    """
    What the caller's exception alone tells, and all else.
    """
    told, other = _by_origin(incident.unassigned_signs)
    cases = [(case, *_by_origin(case.signs)) for case in incident.cases]
    marks = tuple(each for each in incident.marks if each.origin == EXCEPTION_ORIGIN)
    told += tuple(each for _, own, _ in cases for each in own)
    return (
        evolve(incident, cases=(), unassigned_signs=told, marks=marks),
        evolve(
            incident,
            cases=tuple(evolve(case, signs=rest) for case, _, rest in cases),
            unassigned_signs=other,
        ),
    )


def _by_origin(matches: Iterable[Match]) -> tuple[tuple[Match, ...], tuple[Match, ...]]:
    found: tuple[list[Match], list[Match]] = ([], [])
    for each in matches:
        found[each.origin != EXCEPTION_ORIGIN].append(each)
    return tuple(found[0]), tuple(found[1])


def programs_own_error(incident: Incident) -> str:
    """
    The class of an exception that the caller's program raised by itself; empty if a task or Dask may have.
    """
    if any(facts.maybe_dask or facts.from_task for facts in incident.exceptions) or incident.about:
        return ""
    return next((facts.type.rpartition(".")[2] for facts in incident.exceptions), "")


def _logged_failure(mark: Match) -> TaskFailure | None:
    """
    What stands in a worker's ``Compute Failed`` (distributed/worker.py, 2024.8.1 to 2026.8.0).
    """
    raised = (
        _RAISED.fullmatch(_unquoted(mark.captures.get("exception", "")))
        if mark.role == "task-error"
        else None
    )
    if raised is None:
        return None
    place, source = _own_line(_unquoted(mark.captures.get("traceback", "")))
    # As str() has them: KeyError's is the key as Python writes it.
    message = raised["message"] if raised["type"] == "KeyError" else _unquoted(raised["message"])
    return TaskFailure(
        type=raised["type"].rpartition(".")[2], message=message, raised_at=place, source=source
    )


def _own_line(traceback: str) -> tuple[str, tuple[str, ...]]:
    """
    The innermost line that is nobody's library, as ``function (file:line)``, and the line itself.
    """
    own = [frame for frame in _FRAME.findall(traceback) if not is_library(frame[0])]
    if not own:
        return "", ()
    file, line, function, code = own[-1]
    name = file.replace("\\", "/").rpartition("/")[2]
    return f"{function} ({name}:{line})", (f"> {line:>4}  {code}",) if code else ()


def _unquoted(text: str) -> str:
    """
    What ``repr`` made of a text; any other text as it is.
    """
    text = text.strip()
    return _ESCAPE.sub(_character, text[1:-1]) if _QUOTED.fullmatch(text) else text


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    return chr(int(digits, 16)) if digits else _CONTROLS.get(escape[3], escape[3])
