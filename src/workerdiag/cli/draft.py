"""``workerdiag knowledge draft``: the draft of a rule."""

from __future__ import annotations

import click

from workerdiag.cli.commands import EXIT_OK, UnusableError, command
from workerdiag.cli.terminal import gap_text, warn
from workerdiag.model.evidence import LogChunk
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import printable

#: Reading logs for a draft may take this long; nobody waits for it in an except block.
_READING_S = 120.0
_MAX_BYTES = 64 * 2**20


@command(
    "workerdiag knowledge draft worker.log > draft.toml",
    "kubectl logs my-worker --previous | workerdiag knowledge draft -",
)
@click.argument("logs", metavar="PATH|URL|-...", nargs=-1, required=True)
def draft(logs: tuple[str, ...]) -> int:
    """Draft a rule from logs, bundles or boxes that no rule explains.

    Prints a rule file whose signs are the lines that healthy clusters do not write and no rule
    knows. What a person must think about is marked TODO. Exit status: 0 a draft, or nothing
    unusual; 2 nothing could be read.
    """
    from workerdiag.authoring.draft import draft_rule, line_template, unusual_lines
    from workerdiag.bundle.reader import bundle_evidence
    from workerdiag.recorder.box.found_box import death_message
    from workerdiag.rulebook.load import load_rulebook, quiet_lines
    from workerdiag.sources.logs import LogSource

    chunks: list[LogChunk] = []
    size = 0
    source = LogSource(logs, unbundle=bundle_evidence, unbox=death_message)
    for piece in source.collect(budget_s=_READING_S):
        if isinstance(piece, LogChunk) and size < _MAX_BYTES:
            chunks.append(piece)
            size += len(piece.data)
    if not source.has_read_any:
        unread = (f"  {gap_text(each)}" for each in source.unread)
        raise UnusableError("\n".join(("nothing could be read:", *unread)))
    for gap in source.unread:
        warn(gap_text(gap))
    quiet = {line_template(each.partition(" - ")[2].partition(" - ")[2]) for each in quiet_lines()}
    lines = unusual_lines(chunks, load_rulebook(), quiet=quiet)
    if not lines:
        click.echo("# Nothing unusual: rules know every line, or healthy clusters write it too.")
        return EXIT_OK
    click.echo(printable(redact_text(draft_rule(lines))))
    return EXIT_OK
