"""
The rules that a command uses: the shipped ones, and the user's folders after a check.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workerdiag.cli.commands import FolderPath
from workerdiag.errors import RuleFileError

if TYPE_CHECKING:
    from workerdiag.model.rules import Rulebook

#: For commands that take folders of rules.
knowledge_option = click.option(
    "--knowledge",
    multiple=True,
    metavar="DIR",
    type=FolderPath(),
    help="A folder of rules to add to those that come with workerdiag. May be repeated.",
)


def load_checked_rulebook(folders: Iterable[str]) -> Rulebook:
    """
    The shipped rules with those of *folders* added.

    Raises:
        RuleFileError: A folder has mistakes; it lists all.
    """
    from workerdiag.rulebook.folder import read_folder
    from workerdiag.rulebook.load import load_rulebook

    for folder in folders:
        if problems := rule_problems(Path(folder), read_folder(Path(folder))):
            raise RuleFileError(folder, tuple(problems))
    return load_rulebook(*folders)


def rule_problems(folder: Path, book: Rulebook) -> list[str]:
    """
    What is wrong with the patterns and references of *book*, which was read from *folder*.

    References to shipped rules are right.
    """
    from workerdiag.authoring.lint import lint
    from workerdiag.rulebook.load import load_rulebook

    problems = lint(book)
    if not problems:
        return []
    together = set(lint(load_rulebook(folder)))
    return [each for each in problems if each in together]
