"""
``workerdiag explain``: from log files and a scheduler's address to a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workerdiag import __version__
from workerdiag.cli.errors import EXIT_NOT_OK, EXIT_OK, SafeCommand, UnusableError
from workerdiag.cli.terminal import is_colored, text_width, warn
from workerdiag.model.evidence import STREAMS, Evidence, Gap
from workerdiag.sources.budget import Budget
from workerdiag.units import parse_duration

if TYPE_CHECKING:
    from workerdiag.model.diagnosis import Findings

FORMATS = ("text", "json", "markdown", "html")


def _timeout_seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """
    A duration in seconds, more than zero, written as Dask writes durations.
    """
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise click.BadParameter(f'{value!r} is not a duration like "10s"', ctx, param) from None
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{value!r} is not more than zero seconds", ctx, param)
    return seconds


@click.command(
    cls=SafeCommand,
    examples=(
        "workerdiag explain worker.log scheduler.log.gz",
        "kubectl logs --previous my-worker | workerdiag explain -",
        "workerdiag explain --scheduler tcp://10.0.0.1:8786",
        "workerdiag explain --format json slurm-*.out > diagnosis.json",
        "workerdiag explain --save death.zip *.log",
        "workerdiag explain death.zip",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument(
    "inputs", nargs=-1, metavar="[PATH|URL|-]...", type=click.Path(readable=False, allow_dash=True)
)
@click.option("--scheduler", metavar="ADDRESS", help="Also ask this scheduler, e.g. tcp://10.0.0.1:8786.")
@click.option(
    "--stream", type=click.Choice(STREAMS), help="Who wrote the logs. Without it that is worked out by line."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="What to print."
)
@click.option(
    "--knowledge",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="A folder of rules to add to those that come with workerdiag. May be repeated.",
)
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write a death bundle, e.g. death.zip: the diagnosis with its evidence.",
)
@click.option(
    "--timeout",
    callback=_timeout_seconds,
    default="10s",
    metavar="DURATION",
    show_default=True,
    help="Give up looking after so long.",
)
def explain(  # noqa: PLR0913, PLR0917  click gives one for each option
    inputs: tuple[str, ...],
    scheduler: str | None,
    stream: str | None,
    form: str,
    knowledge: tuple[str, ...],
    save: str | None,
    timeout: float,
) -> int:
    """
    Say why a Dask worker died.

    From its logs, or from a scheduler that still runs, or both.

    Logs may be of workers, nannies, schedulers, clients, the kernel, Kubernetes or a batch
    system, mixed, and packed with gzip or zstd. Give files, folders, patterns, URLs that fsspec can
    open, or - for standard input. A death bundle is judged again by today's rules. Records that the
    flight recorder appended to a file, and black boxes, are understood too.

    Exit status: 0 a diagnosis, also that nothing died; 1 the evidence does not tell, or nothing in
    it is known; 2 bad usage, or nothing that could be read.
    """
    if not inputs and not scheduler:
        raise click.UsageError("Give a log file, - for standard input, or --scheduler ADDRESS.")
    from workerdiag.bundle.retention.evidence_tap import EvidenceTap
    from workerdiag.cli.rulebook import load_checked_rulebook
    from workerdiag.pipeline import diagnose

    book = load_checked_rulebook(knowledge)
    given_inputs = _ExplainInputs(inputs, scheduler, stream, timeout)
    evidence_tap = EvidenceTap()
    findings = diagnose(
        evidence_tap.tee(given_inputs.evidence()), book, version=__version__, observer=evidence_tap
    )
    if not given_inputs.anything_read:
        raise UnusableError(
            "nothing could be read:\n" + "\n".join(f"  {_gap_text(each)}" for each in given_inputs.unread)
        )
    for gap in given_inputs.unread:
        warn(_gap_text(gap))
    if save is not None:
        from workerdiag.bundle.writer import write_bundle

        write_bundle(findings, evidence_tap.kept_evidence(), Path(save))
    click.echo(_render(findings, form), color=True)
    return EXIT_NOT_OK if findings.outcome in ("unknown", "no-evidence") else EXIT_OK


class _ExplainInputs:
    """
    The places one call asks, and what became of them.
    """

    def __init__(
        self, inputs: Iterable[str], scheduler: str | None, stream: str | None, budget_s: float
    ) -> None:
        self._inputs = tuple(inputs)
        self._scheduler = scheduler
        self._stream = stream
        self._budget = Budget(budget_s, with_logs=bool(self._inputs))
        #: Whether any place gave anything but a gap.
        self.anything_read = False
        #: Inputs, or a scheduler, that could not be read.
        self.unread: list[Gap] = []

    def evidence(self) -> Iterator[Evidence]:
        """
        What the scheduler says (it forgets, files do not), then the logs.
        """
        for piece in self._pieces():
            if not isinstance(piece, Gap):
                self.anything_read = True
            yield piece

    def _pieces(self) -> Iterator[Evidence]:
        if self._scheduler:
            for piece in self._live(self._scheduler):
                if isinstance(piece, Gap) and piece.source == "scheduler":
                    self.unread.append(piece)
                yield piece
        if self._inputs:
            from workerdiag.bundle.reader import bundle_evidence
            from workerdiag.recorder.box.message import death_message
            from workerdiag.sources.logs import LogSource

            source = LogSource(
                self._inputs, stream=self._stream, unbundle=bundle_evidence, unbox=death_message
            )
            yield from source.collect(budget_s=self._budget.left_s)
            self.unread += source.unread
            self.anything_read |= source.readable_count > 0

    def _live(self, address: str) -> Iterator[Evidence]:
        from workerdiag.cli.live import query_scheduler
        from workerdiag.sources.runner import drop_late_text

        found = query_scheduler(address, budget_s=self._budget.live_s)
        yield from drop_late_text(found, deadline=self._budget.search_until)


def _gap_text(gap: Gap) -> str:
    text = f"{gap.source}: {gap.detail or gap.reason}"
    return f"{text} ({gap.remedy})" if gap.remedy else text


def _render(findings: Findings, form: str) -> str:
    match form:
        case "json":
            from workerdiag.rendering.json import to_json

            return to_json(findings)
        case "markdown":
            from workerdiag.rendering.markdown import render_markdown

            return render_markdown(findings).rstrip("\n")
        case "html":
            from workerdiag.rendering.html import render_html

            return render_html(findings, page=True)
    from workerdiag.rendering.text import render_text

    return render_text(findings, width=text_width(), color=is_colored())
