"""``workerdiag mcp``: a server for assistants, over standard input and output."""

from __future__ import annotations

import click

from workerdiag.cli.commands import (
    FolderPath,
    UnusableError,
    command,
    knowledge_option,
    load_checked_rulebook,
)


@command(
    "workerdiag mcp --root /var/log/dask",
    "workerdiag mcp --root . --scheduler tcp://10.0.0.1:8786",
)
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
