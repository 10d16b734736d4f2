"""Silences, with an end and a reason, and known issues from a file.

.. code-block:: toml

    [[issue]]
    cause = "nanny.memory-terminate"   # or key = "5c49f0797ea3"
    cluster = "prod-*"                 # all clusters, if it is left out
    note = "The loader holds two copies of each table; loader 2.3 will not."
    link = "https://tracker.example/123"
    hold = true                        # send no notices, list them in the digest
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from workerdiag.errors import RuleFileError, SilenceError, UnreadableInputError, describe_error, error_text
from workerdiag.rendering.wording import one_line
from workerdiag.serialization import problem_lines, strict_converter
from workerdiag.units import parse_duration, parse_timestamp
from workerdiag.watch.watched_case import Notice

if TYPE_CHECKING:
    from cattrs import Converter

#: Maximum size of a file of known issues, in bytes.
_MAX_BYTES = 4 * 2**20

#: Maximum length of a silence, in seconds: one of more than a year would be forgotten.
MAX_SILENCE_S = 366 * 86_400.0


@frozen(kw_only=True)
class Silence:
    """Holds back matching notices until its end."""

    id: str
    #: A pattern (``*``, ``?``, ``[abc]``) for the id or key of a case, the id of a cause, or a cluster.
    matches: str
    #: Its end in seconds since the epoch, by the watcher's clock, as `created_at`.
    until: float
    #: The reason, for later readers.
    reason: str
    created_at: float

    def covers(self, notice: Notice, now: float) -> bool:
        """Whether it holds the notice back now."""
        names = (notice.case_id, notice.key, notice.cause or "", notice.cluster)
        return now < self.until and any(name and fnmatchcase(name, self.matches) for name in names)


def new_silence(matches: str, *, until: float, reason: str, now: float) -> Silence:
    """Return a silence from *now* on.

    Raises:
        SilenceError: It has no pattern, no reason, or no end in the future and within a year.
    """
    matches, reason = matches.strip(), one_line(reason)
    if not matches:
        raise SilenceError("it does not say what to silence: give a case, a key, a cause or a cluster")
    if not reason:
        raise SilenceError("it has no reason: say why, for those who wonder later")
    if not now < until:
        raise SilenceError("its end is not in the future")
    if until - now > MAX_SILENCE_S:
        raise SilenceError("it would last for more than a year")
    id_ = hashlib.sha256(f"{matches}\n{until}\n{reason}\n{now}".encode("utf-8", "backslashreplace"))
    return Silence(id=id_.hexdigest()[:8], matches=matches, until=until, reason=reason, created_at=now)


def parse_until(text: str, now: float) -> float:
    """Parse the end of a silence: a time with a zone (``2026-11-23T08:00:00+01:00``) or a duration (``2h``).

    Raises:
        SilenceError: It is neither.
    """
    moment = parse_timestamp(text.strip())
    if moment is not None:
        return moment
    try:
        return now + parse_duration(text)
    except ValueError:
        raise SilenceError(
            f"{text[:100]!r} is no end: give a time with its zone (2026-11-23T08:00:00Z) or a duration (2h)"
        ) from None


@frozen(kw_only=True)
class KnownIssue:
    """A trouble that somebody is working on."""

    #: Key of the case; or the id of its cause, or a pattern for that (``nanny.*``).
    key: str | None = None
    cause: str | None = None
    #: A pattern for the clusters concerned.
    cluster: str = "*"
    note: str = ""
    link: str = ""
    #: Whether to hold notices back.
    hold: bool = False

    def __attrs_post_init__(self) -> None:
        if not (self.key or self.cause):
            raise ValueError("needs a key or a cause")
        if not (self.note or self.link):
            raise ValueError("needs a note or a link")

    def covers(self, notice: Notice) -> bool:
        """Whether the notice is about this issue."""
        if not fnmatchcase(notice.cluster, self.cluster):
            return False
        is_key = bool(self.key) and notice.key == self.key
        return is_key or bool(self.cause and notice.cause and fnmatchcase(notice.cause, self.cause))


@frozen(kw_only=True)
class _IssueFile:
    """The content of the file; the field is named like the table."""

    issue: tuple[KnownIssue, ...] = ()


def known_issue_of(notice: Notice, issues: Sequence[KnownIssue]) -> KnownIssue | None:
    """Return the first issue that the notice is about."""
    return next((each for each in issues if each.covers(notice)), None)


def read_known_issues(path: str | os.PathLike[str]) -> tuple[KnownIssue, ...]:
    """Return the known issues in a TOML file.

    Raises:
        UnreadableInputError: The file cannot be read.
        RuleFileError: It is not valid; all mistakes are listed.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as problem:
        why = problem.strerror or error_text(problem)
        raise UnreadableInputError(name, why, "name a TOML file with known issues") from problem
    if len(data) > _MAX_BYTES:
        raise RuleFileError(name, (f"it is larger than {_MAX_BYTES} bytes",))
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except Exception as problem:
        raise RuleFileError(name, (f"it is no TOML: {describe_error(problem)}",)) from problem
    try:
        return _issue_converter().structure(table, _IssueFile).issue
    except Exception as problem:
        raise RuleFileError(name, tuple(problem_lines(problem))) from problem


@cache
def _issue_converter() -> Converter:
    return strict_converter("known")
