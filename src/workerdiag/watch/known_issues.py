"""
Known issues, from a file: what people should read beside a notice, or instead of it.

.. code-block:: toml

    [[issue]]
    cause = "nanny.memory-terminate"   # or key = "5c49f0797ea3"
    cluster = "prod-*"                 # all clusters, if it is left out
    note = "The loader holds two copies of each table; loader 2.3 will not."
    link = "https://tracker.example/123"
    hold = true                        # send no notices, list them in the digest
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from workerdiag.errors import RuleFileError, UnreadableInputError, describe_error, error_text
from workerdiag.serialization import problem_lines, strict_converter
from workerdiag.watch.alerts import Notice

if TYPE_CHECKING:
    from cattrs import Converter

#: A list of known issues is smaller than that, in bytes.
_MAX_BYTES = 4 * 2**20


@frozen(kw_only=True)
class KnownIssue:
    """
    A trouble that somebody works on.
    """

    #: Of the case; or the id of its cause, or a pattern for it (``nanny.*``).
    key: str | None = None
    cause: str | None = None
    #: A pattern for the clusters that it concerns.
    cluster: str = "*"
    note: str = ""
    link: str = ""
    #: Whether notices are held back.
    hold: bool = False

    def __attrs_post_init__(self) -> None:
        if not (self.key or self.cause):
            raise ValueError("needs a key or a cause")
        if not (self.note or self.link):
            raise ValueError("needs a note or a link")

    def covers(self, notice: Notice) -> bool:
        """
        Whether the notice is about this issue.
        """
        if not fnmatchcase(notice.cluster, self.cluster):
            return False
        is_key = bool(self.key) and notice.key == self.key
        return is_key or bool(self.cause and notice.cause and fnmatchcase(notice.cause, self.cause))


@frozen(kw_only=True)
class _IssueFile:
    """
    The tables of the file; the field has the name of its table.
    """

    issue: tuple[KnownIssue, ...] = ()


def known_issue_of(notice: Notice, issues: Sequence[KnownIssue]) -> KnownIssue | None:
    """
    The first issue that the notice is about.
    """
    return next((each for each in issues if each.covers(notice)), None)


def read_known_issues(path: str | os.PathLike[str]) -> tuple[KnownIssue, ...]:
    """
    The known issues in a TOML file.

    Raises:
        UnreadableInputError: The file cannot be read.
        RuleFileError: It says something else than it may; all mistakes at once.
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
