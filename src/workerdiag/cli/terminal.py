"""
What standard output is, and a line for the person in front of it.
"""

from __future__ import annotations

import os
import shutil
import sys

import click

from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import printable

#: Lines longer than this are hard to read, however wide the terminal.
_MAX_COLUMNS = 100


def text_width() -> int:
    """
    Columns of the terminal, at most 100; 80 where the output goes elsewhere.
    """
    return min(shutil.get_terminal_size().columns, _MAX_COLUMNS) if sys.stdout.isatty() else 80


def is_colored() -> bool:
    """
    Whether the output goes to a terminal with colours whose user did not set ``NO_COLOR`` (no-color.org).
    """
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(message: str) -> None:
    """
    One line on standard error that is worth knowing.
    """
    click.echo(printable(redact_text(f"Note: {message}")), err=True)


def warn(message: str) -> None:
    """
    One line for a person on standard error.
    """
    click.echo(printable(redact_text(f"Warning: {message}")), err=True)
