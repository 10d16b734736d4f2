"""What commands share: they never show a traceback of ours, and say with their exit status how it went."""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from workerdiag.deadline import monotonic_s, start_thread
from workerdiag.errors import RuleFileError, WorkerdiagError
from workerdiag.model.dask import Method
from workerdiag.model.evidence import Gap
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import clip, one_line, printable

if TYPE_CHECKING:
    from workerdiag.model.rules import Rulebook

#: A diagnosis, also that nothing died; a check that found nothing wrong.
EXIT_OK = 0
#: Could not tell; a check that found something wrong.
EXIT_NOT_OK = 1


class UnusableError(click.ClickException):
    """What was asked for cannot be used; printed as ``Error: ...`` with exit status 2, as bad usage."""

    exit_code = 2

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
    """Decorator: a `SafeCommand` with *examples* in its help, in the *group* or for one that it is added to."""
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
            status = 130  # 128 and SIGINT, as shells have it
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
    from workerdiag.rulebook.load import load_rulebook
    from workerdiag.rulebook.toml_folder import read_folder

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


#: Longer lines are hard to read, and nothing is laid out for fewer columns.
_MAX_COLUMNS, _LEAST_COLUMNS = 100, 40
#: Seconds before the line shows, and between two changes of it.
_FIRST_S, _EVERY_S = 1.0, 0.5
#: Back to the beginning of the line, and erase it (ECMA-48, EL).
_ERASE = "\r\x1b[K"


def text_width() -> int:
    """Columns by ``COLUMNS``, else of the terminal, at most 100; 80 where the output goes elsewhere."""
    return table_width() if os.environ.get("COLUMNS") else min(table_width(), _MAX_COLUMNS)


def table_width() -> int:
    """Columns for tables: by ``COLUMNS``, else all of the terminal; 80 where the output goes elsewhere."""
    return max(_LEAST_COLUMNS, shutil.get_terminal_size().columns)


def is_colored() -> bool:
    """Whether the output goes to a terminal with colours whose user did not set ``NO_COLOR`` (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wrapped(text: str, *, first: str = "", rest: str = "") -> list[str]:
    """The lines of one paragraph, as wide as the terminal, with nothing in them that acts upon it."""
    from workerdiag.rendering.text import wrap_text

    return wrap_text(printable(text), text_width(), first=first, rest=rest)


def note(message: str) -> None:
    """One line on standard error that is worth knowing."""
    click.echo(printable(redact_text(f"Note: {message}")), err=True)


def warn(message: str) -> None:
    """One line for a person on standard error."""
    click.echo(printable(redact_text(f"Warning: {message}")), err=True)


def gap_text(gap: Gap) -> str:
    """What could not be looked at, why, and what to do about it."""
    text = f"{gap.source}: {gap.detail or gap.reason}"
    return f"{text} ({gap.remedy})" if gap.remedy else text


@contextmanager
def status_line(
    doing: str, *, limit_s: float | None = None, to: TextIO | None = None, first_s: float = _FIRST_S
) -> Iterator[Callable[[], None]]:
    """Show on a terminal what takes so long, for how many seconds, and *limit_s*, when it ends in any case.

    Yields what erases the line, for whoever prints something in between. Nothing is written elsewhere.
    """
    stream = to or sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    over = threading.Event()
    began = monotonic_s()
    of_limit = "" if limit_s is None else f" of at most {limit_s:.0f}"

    def show() -> None:
        wait_s = first_s
        while not over.wait(wait_s):
            text = one_line(printable(f"{doing}: {monotonic_s() - began:.0f}{of_limit} s"))
            _write(stream, f"{_ERASE}{clip(text, 79)}")
            wait_s = _EVERY_S

    # of our own, as standard error may be silenced for the sake of other programs
    with nullcontext(to) if to is not None else os.fdopen(os.dup(stream.fileno()), "w") as stream:
        thread = start_thread("workerdiag-status", show)
        try:
            yield partial(_write, stream, _ERASE)
        finally:
            over.set()
            thread.join(_EVERY_S)
            if monotonic_s() - began >= first_s:
                _write(stream, _ERASE)


def _write(stream: TextIO, text: str) -> None:
    with suppress(OSError, ValueError):  # the terminal is gone
        stream.write(text)
        stream.flush()
