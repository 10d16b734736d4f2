"""``workerdiag settings``: which settings hold, and where they were set."""

from __future__ import annotations

import click

from workerdiag.cli.commands import EXIT_NOT_OK, EXIT_OK, command
from workerdiag.cli.terminal import warn
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import printable


@command("workerdiag settings")
def settings() -> int:
    """List the settings: key, value, and where it was set.

    They are those of Dask's configuration in this process, under "workerdiag". Workers, nannies and
    schedulers each have their own.

    Exit status: 0 all can be used, 1 there are unknown keys or wrong values.
    """
    from workerdiag.settings import ROOT, defaults, origin, setting, unusable_entries

    problems = tuple(unusable_entries())
    rows = [(f"{ROOT}.{key}", setting(key), key) for key in defaults()]
    columns = max(len(name) for name, _, _ in rows)
    for name, value, key in rows:
        shown = redact_text("null" if value is None else str(value))
        click.echo(printable(f"{name:<{columns}}  {shown}  ({origin(key, value)})"))
    for each in problems:
        warn(each)
    return EXIT_NOT_OK if problems else EXIT_OK
