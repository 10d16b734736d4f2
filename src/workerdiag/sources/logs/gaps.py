"""Gaps of logs that could not be read completely, with their remedies."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workerdiag.deadline import MORE_TIME
from workerdiag.errors import UnreadableInputError, describe_error, error_text
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.logs.inputs import input_name

_MORE_TIME = f"{MORE_TIME}, or --timeout 60s"
#: A gap names at most this many inputs.
_MAX_NAMED = 5
#: Text that occurs in log lines and hardly ever in a path.
_LINE = re.compile(r"\n| - | \w+: ")


def log_gap(name: str, problem: BaseException, count: int) -> Gap:
    """Return why reading a log failed after *count* bytes."""
    reason, detail, remedy = _explain_problem(problem)
    if isinstance(problem, FileNotFoundError) and _LINE.search(name):
        remedy = "a path is wanted; log text itself goes in as workerdiag.LogText(text)"
    elif "://" in name and detail == name:  # fsspec says no more
        detail, remedy = "nothing could be fetched", "check the address, and that its server runs"
    read = f"; {format_byte_count(count)} were read" if count else ""
    return Gap(source=name, place="log", reason=reason, detail=f"{detail}{read}"[:500], remedy=remedy[:300])


def _explain_problem(problem: BaseException) -> tuple[GapReason, str, str]:
    description = error_text(problem) or type(problem).__name__
    if isinstance(problem, UnreadableInputError):
        return "malformed", problem.why, problem.remedy
    if isinstance(problem, ImportError):
        return "not-installed", "a package that is needed to read it is not installed", description
    if isinstance(problem, FileNotFoundError):
        return (
            "unreachable",
            "there is no such file" if problem.errno else description,
            "check the path or pattern",
        )
    if isinstance(problem, PermissionError):
        return "forbidden", description, "run this as somebody who may read it"
    if isinstance(problem, UnicodeDecodeError):
        return "malformed", description, "open it in binary mode, or give its path"
    return "unreachable", describe_error(problem), "check that it can be opened"


def timeout_gap(name: str, detail: str) -> Gap:
    """Return the gap of a log that could not be read completely in time."""
    return Gap(source=name, place="log", reason="timed-out", detail=detail, remedy=_MORE_TIME)


def unread_gap(given: Sequence[object]) -> Gap:
    """Return the gap of inputs that were not read at all for lack of time."""
    names = [input_name(each) for each in given[:_MAX_NAMED]]
    more = f" and {len(given) - _MAX_NAMED} more" if len(given) > _MAX_NAMED else ""
    detail = f"no time was left for {', '.join(names)}{more}"
    return Gap(source="logs", place="log", reason="timed-out", detail=detail, remedy=_MORE_TIME)


def empty_gap(name: str) -> Gap:
    """Return the gap of an empty log."""
    remedy = "check that the process writes its log there"
    return Gap(source=name, place="log", reason="never-recorded", detail="it is empty", remedy=remedy)


def unusable_gap(name: str, why: str, remedy: str) -> Gap:
    """Return the gap of an unreadable death bundle or black box."""
    return Gap(source=name, place="log", reason="malformed", detail=why[:500], remedy=remedy)


def in_use_gap(names: Sequence[str]) -> Gap:
    """Return the gap of black boxes that may still be in use."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    detail = f"still in use, as far as can be seen from here: {', '.join(names[:_MAX_NAMED])}{more}"
    remedy = "ask again when the worker has ended; on another machine than its own, ten minutes later"
    return Gap(source="black boxes", reason="never-recorded", detail=detail[:500], remedy=remedy)


def format_byte_count(count: int) -> str:
    """Return a count such as ``1,234 bytes``."""
    return f"{count:,} bytes"
