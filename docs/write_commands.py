"""Writes ``docs/commands.md``: the help of every command that is installed.

    python docs/write_commands.py

The page is made, not kept: see .gitignore.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from workerdiag.cli import main as program

PAGE = Path(__file__).parent / "commands.md"

INTRODUCTION = """# Commands

`workerdiag COMMAND --help` shows the same text. `dask explain` is `workerdiag explain`.
`workerdiag completion` prints a script for the completion of your shell.
"""


def page() -> Iterator[str]:
    """The parts of the page."""
    yield INTRODUCTION
    for words, command in _commands(program, ("workerdiag",)):
        name = " ".join(words)
        with click.Context(command, info_name=name, terminal_width=88, max_content_width=88) as context:
            yield f"## `{name}`\n\n```text\n{command.get_help(context)}\n```\n"


def _commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands of a group that are no groups and are not hidden, with the words that call them."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            if any(each.hidden for each in command.commands.values()):
                yield (*words, name), command
            yield from _commands(command, (*words, name))
        elif not command.hidden:
            yield (*words, name), command


def main() -> None:
    """Write the page anew."""
    PAGE.write_text("\n".join(page()), encoding="utf-8")


if __name__ == "__main__":
    main()
