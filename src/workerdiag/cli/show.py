"""``workerdiag settings``, ``sources`` and ``mcp``: settings, places to query, and a server for assistants."""

from __future__ import annotations

from math import isinf

import click

from workerdiag.cli.commands import (
    EXIT_NOT_OK,
    EXIT_OK,
    FolderPath,
    UnusableError,
    command,
    knowledge_option,
    load_checked_rulebook,
    warn,
    wrapped,
)
from workerdiag.model.evidence import Gap
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import printable
from workerdiag.units import format_duration


@command("workerdiag settings")
def settings() -> int:
    """List the settings: key, value, and where it was set.

    They are those of Dask's configuration in this process, under "workerdiag". Workers, nannies and
    schedulers each have their own.

    Exit status: 0 all are valid, 1 there are unknown keys or wrong values.
    """
    from workerdiag.settings import ROOT, SETTINGS, origin, setting, unusable_entries

    problems = tuple(unusable_entries())
    rows = [(f"{ROOT}.{key}", setting(key), key) for key in SETTINGS]
    columns = max(len(name) for name, _, _ in rows)
    for name, value, key in rows:
        shown = redact_text("null" if value is None else str(value))
        click.echo(printable(f"{name:<{columns}}  {shown}  ({origin(key, value)})"))
    for each in problems:
        warn(each)
    return EXIT_NOT_OK if problems else EXIT_OK


@command("workerdiag sources")
def sources() -> None:
    """List the places to query besides Dask, and what a query takes.

    The most short-lived come first. The cluster decides which of them apply.
    """
    from workerdiag.sources.registry import source_terms

    for name, terms in source_terms():
        click.echo(printable(name))
        if isinstance(terms, Gap):
            properties = {"cannot be asked": f"{terms.detail}; {terms.remedy}"}
        else:
            keeps = isinf(terms.lasts_s)
            properties = {
                "lasts": "as long as the place keeps it" if keeps else f"about {format_duration(terms.lasts_s)}",
                "permission": terms.permission or "none",
                "extra": f"pip install 'workerdiag[{terms.extra}]'" if terms.extra else "none",
                "cost": terms.cost,
            }
        for what, text in properties.items():
            head = f"  {what + ':':<12}"
            for line in wrapped(text, first=head, rest=" " * len(head)) if text else ():
                click.echo(line)


@command("workerdiag mcp --root /var/log/dask", "workerdiag mcp --root . --scheduler tcp://10.0.0.1:8786")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    type=FolderPath(),
    help="A folder whose files may be read. May be repeated. Without it, none may.",
)
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    metavar="ADDRESS",
    help="A scheduler that may be queried, e.g. tcp://10.0.0.1:8786. May be repeated.",
)
@knowledge_option
def mcp(roots: tuple[str, ...], schedulers: tuple[str, ...], knowledge: tuple[str, ...]) -> None:
    """Let an assistant ask why workers died.

    A server of the Model Context Protocol, to be started by the assistant. It explains logs, bundles and
    schedulers, and searches the knowledge base. It reads only what is allowed here, changes nothing, and
    hides secrets. Needs the extra: pip install 'workerdiag[mcp]'.

    Exit status: 0 the assistant has closed it; 2 bad usage, or the extra is missing.
    """
    try:
        from workerdiag.integrations.mcp import DeathTools, make_server
    except ImportError as problem:
        raise UnusableError(str(problem)) from None
    from workerdiag.integrations.allowed_files import AllowedFiles

    tools = DeathTools(load_checked_rulebook(knowledge), AllowedFiles.below(roots), schedulers)
    make_server(tools).run("stdio")
