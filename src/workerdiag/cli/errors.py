"""
Commands that never show a traceback of ours, and say with their exit status how it went.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from workerdiag.errors import WorkerdiagError
from workerdiag.redaction.secrets import redacted
from workerdiag.rendering.wording import clean

#: A diagnosis, also that nothing died; a check that found nothing wrong.
GOOD = 0
#: Could not tell; a check that found something wrong.
NOT_GOOD = 1
#: Bad usage, or nothing that could be read.
UNUSABLE = 2
#: Stopped by the user: 128 and SIGINT, as shells have it.
INTERRUPTED = 130


class UnusableError(click.ClickException):
    """
    What was asked for cannot be used; printed as ``Error: ...`` with exit status 2.
    """

    exit_code = UNUSABLE

    def format_message(self) -> str:
        """
        The message without secrets, and without anything a terminal acts upon.
        """
        return clean(redacted(self.message))


class WithExamples(click.Command):
    """
    A command whose ``--help`` ends with command lines to copy.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Command lines, as typed.
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """
        Write the examples, unwrapped.
        """
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}$ {line}\n")


class GuardedGroup(WithExamples, click.Group):
    """
    A group of commands, with examples.
    """


class Guarded(WithExamples):
    """
    A command whose function returns its exit status (None: 0), and whose errors are one message.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """
        Run the command; whatever goes wrong ends in a message and an exit status.
        """
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal, and a log in Chinese
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            status = INTERRUPTED
        except WorkerdiagError as problem:
            raise UnusableError(str(problem)) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as problem:
            if sys.flags.dev_mode:
                raise
            said = clean(redacted(f"{type(problem).__name__}: {problem}"))
            click.echo(f"workerdiag itself failed: {said}\nSet PYTHONDEVMODE=1 to see where.", err=True)
            status = NOT_GOOD
        ctx.exit(status or GOOD)
