"""
The rules a command works with: the shipped ones, and checked folders of one's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workerdiag.authoring.lint import lint
from workerdiag.errors import RuleFileError
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook import load_rulebook, read_folder


def load_checked_rulebook(folders: Iterable[str]) -> Rulebook:
    """
    The shipped rules with those of *folders* added.

    Raises:
        RuleFileError: A folder has mistakes; it lists all.
    """
    for folder in folders:
        if problems := rule_problems(Path(folder), read_folder(Path(folder))):
            raise RuleFileError(folder, tuple(problems))
    return load_rulebook(*folders)


def rule_problems(folder: Path, book: Rulebook) -> list[str]:
    """
    What is wrong with the patterns and references of *book*, which was read from *folder*.

    A reference to something that is not in the folder, but among the shipped rules, is none.
    """
    problems = lint(book)
    if not problems:
        return []
    together = set(lint(load_rulebook(folder)))
    return [each for each in problems if each in together]
