"""
``workerdiag knowledge suggest``: the draft of a rule.
"""

from __future__ import annotations

import click

from workerdiag.cli.errors import GOOD, Guarded, UnusableError

#: Reading logs for a draft may take this long; nobody waits for it in an except block.
_READING_S = 120.0
_MOST_BYTES = 64 * 2**20


@click.command(
    cls=Guarded,
    examples=(
        "workerdiag knowledge suggest worker.log > draft.toml",
        "kubectl logs my-worker --previous | workerdiag knowledge suggest -",
    ),
)
@click.argument("logs", metavar="PATH|URL|-...", nargs=-1, required=True)
def suggest(logs: tuple[str, ...]) -> int:
    """
    Draft a rule from logs that no rule explains.

    Prints a rule file whose signs are the lines that healthy clusters do not write and no rule
    knows. What a person must think about is marked TODO. Exit status: 0 a draft, or nothing
    unusual; 2 nothing could be read.
    """
    from workerdiag.authoring.draft import draft, template, unusual_lines
    from workerdiag.model.evidence import Gap, LogChunk
    from workerdiag.redaction.secrets import redacted
    from workerdiag.rendering.wording import clean
    from workerdiag.rulebook import load_rulebook, quiet_lines
    from workerdiag.sources.logs import LogSource

    chunks: list[LogChunk] = []
    size = 0
    for piece in LogSource(logs).collect(budget_s=_READING_S):
        if isinstance(piece, LogChunk) and size < _MOST_BYTES:
            chunks.append(piece)
            size += len(piece.data)
        elif isinstance(piece, Gap):
            click.echo(clean(redacted(f"Warning: {piece.detail or piece.source}")), err=True)
    if not chunks:
        raise UnusableError("nothing could be read")
    quiet = {template(each.partition(" - ")[2].partition(" - ")[2]) for each in quiet_lines()}
    lines = unusual_lines(chunks, load_rulebook(), quiet=quiet)
    if not lines:
        click.echo("# Nothing unusual: rules know every line, or healthy clusters write it too.")
        return GOOD
    click.echo(clean(redacted(draft(lines))))
    return GOOD
