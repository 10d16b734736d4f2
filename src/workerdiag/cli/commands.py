"""Commands that never show a traceback of ours, and say with their exit status how it went; what they share."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workerdiag.errors import RuleFileError, WorkerdiagError
from workerdiag.model.dask import Method
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import printable

if TYPE_CHECKING:
    from workerdiag.model.rules import Rulebook

#: A diagnosis, also that nothing died; a check that found nothing wrong.
EXIT_OK = 0
#: Could not tell; a check that found something wrong.
EXIT_NOT_OK = 1
#: Bad usage, or nothing that could be read.
EXIT_USAGE = 2
#: Stopped by the user: 128 and SIGINT, as shells have it.
EXIT_INTERRUPTED = 130


class UnusableError(click.ClickException):
    """What was asked for cannot be used; printed as ``Error: ...`` with exit status 2."""

    exit_code = EXIT_USAGE

    def format_message(self) -> str:
        """The message without secrets, and without anything a terminal acts upon."""
        return printable(redact_text(self.message))


class FolderPath(click.Path):
    """A folder that exists; the message about any other says what to check."""

    def __init__(self, **options: Any) -> None:
        super().__init__(exists=True, file_okay=False, **options)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | PathLike[str]:
        """The path as it was given."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as problem:
            advice = f"Check the path: a relative one starts in {Path.cwd()}."
            raise click.BadParameter(f"{problem.message} {advice}", ctx, param) from None


class CommandWithExamples(click.Command):
    """A command whose ``--help`` ends with command lines to copy."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Command lines, as typed.
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, unwrapped."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}$ {line}\n")


def command(
    *examples: str, group: click.Group | None = None, name: str | None = None, **options: Any
) -> Callable[[Method], click.Command]:
    """Decorator that makes a function a `SafeCommand` with *examples* in its help.

    Without a *group* it is added to one later; without a *name* it has that of the function.
    """
    make = click.command if group is None else group.command
    return make(name, cls=SafeCommand, examples=examples, **options)


def format_option(*forms: str, text: str) -> Callable[[Method], Method]:
    """The option ``--format``, passed as *form*: one of *forms*, by default the first."""
    return click.option(
        "--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help=text
    )


class SafeGroup(CommandWithExamples, click.Group):
    """A group of commands, with examples."""


class SafeCommand(CommandWithExamples):
    """A command whose function returns its exit status (None: 0), and whose errors are one message."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; whatever goes wrong ends in a message and an exit status."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal, and a log in Chinese
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            status = EXIT_INTERRUPTED
        except WorkerdiagError as problem:
            raise UnusableError(str(problem)) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as problem:
            if sys.flags.dev_mode:
                raise
            message = printable(redact_text(f"{type(problem).__name__}: {problem}"))
            click.echo(f"workerdiag itself failed: {message}\nSet PYTHONDEVMODE=1 to see where.", err=True)
            status = EXIT_NOT_OK
        ctx.exit(status or EXIT_OK)


#: For commands that take folders of rules.
knowledge_option = click.option(
    "--knowledge",
    multiple=True,
    metavar="DIR",
    type=FolderPath(),
    help="A folder of rules to add to those that come with workerdiag. May be repeated.",
)


def load_checked_rulebook(folders: Iterable[str]) -> Rulebook:
    """The shipped rules with those of *folders*; raises RuleFileError with all mistakes of a folder."""
    from workerdiag.rulebook.folder import read_folder
    from workerdiag.rulebook.load import load_rulebook

    for folder in folders:
        if problems := rule_problems(Path(folder), read_folder(Path(folder))):
            raise RuleFileError(folder, tuple(problems))
    return load_rulebook(*folders)


def rule_problems(folder: Path, book: Rulebook) -> list[str]:
    """The problems of patterns and references of *book*, read from *folder*; it may refer to shipped rules."""
    from workerdiag.authoring.lint import lint
    from workerdiag.rulebook.load import load_rulebook

    problems = lint(book)
    if not problems:
        return []
    together = set(lint(load_rulebook(folder)))
    return [each for each in problems if each in together]
