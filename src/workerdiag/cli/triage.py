"""``workerdiag triage`` reads many logs on a Dask cluster; ``workerdiag fleet`` says what kills workers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, assert_never

import click

from workerdiag.cli.commands import (
    EXIT_NOT_OK,
    EXIT_OK,
    UnusableError,
    command,
    format_option,
    is_colored,
    knowledge_option,
    load_checked_rulebook,
    note,
    status_line,
    table_width,
    warn,
)
from workerdiag.errors import TriageError, describe_connection_error
from workerdiag.rendering.wording import pluralize

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.triage.tables import TableFormat
    from workerdiag.triage.work import Progress, TriageResult

_CONNECT_S = 30.0
#: At most this many unreadable inputs are named.
_MAX_NAMED = 5


@command(
    "workerdiag triage /var/log/dask",
    "workerdiag triage s3://logs/2026/ --scheduler tcp://10.0.0.1:8786 --output triaged/",
    "workerdiag triage 's3://logs/*/*.log.gz' --runs 's3://logs/*/' --output triaged/ --format csv",
    "workerdiag fleet triaged/",
)
@click.argument("urls", metavar="PATH|URL...", nargs=-1, required=True)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on this cluster, whose workers have workerdiag installed. By default one is started here.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Write tables of deaths and inputs. The same command continues after an interruption.",
)
@format_option("parquet", "csv", "jsonl", text="Of the tables; parquet needs pyarrow.")
@click.option(
    "--runs",
    metavar="PATTERN",
    help="How URLs of one cluster run begin, with * for a name: s3://logs/*/. By default the logs tell.",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Of the threads of each worker, with --scheduler.",
)
@knowledge_option
def triage(  # noqa: PLR0913, PLR0917  click gives one for each option
    urls: tuple[str, ...],
    scheduler: str | None,
    output: str | None,
    form: TableFormat,
    runs: str | None,
    share: float,
    knowledge: tuple[str, ...],
) -> int:
    """Find all deaths in many logs, on a Dask cluster.

    Reads files, folders with all below them, patterns and URLs that fsspec can open, packed or not, in parts
    of 256 MiB. Prints what `workerdiag fleet` says of the deaths: by cause, host and version, and what stays
    unexplained, with the command that drafts a rule. A part that cannot be read is a row of the table of inputs.

    Exit status: 0 all was read; 1 some of it could not be read; 2 bad usage, or nothing could be read.
    """
    from workerdiag.triage.work import triage as run_triage

    rulebook = load_checked_rulebook(knowledge) if knowledge else None
    with ExitStack() as stack:
        client = None if scheduler is None else stack.enter_context(_client_of(scheduler))
        on_progress = stack.enter_context(_progress_bar())
        try:
            result = run_triage(
                urls,
                client,
                output=output,
                form=form,
                runs=runs,
                rulebook=rulebook,
                share=share,
                on_progress=on_progress,
            )
        except KeyboardInterrupt:
            if output is not None:
                note(f"what was read is kept in {output}: the same command resumes from here")
            raise
    failed = _warn_of_failed(result)
    click.echo(result.summary.to_text(width=table_width(), color=is_colored()))
    if result.output is not None:
        tables = " and ".join(f"{result.output / kind}.{form}" for kind in ("deaths", "inputs"))
        note(f"wrote {tables}; the same for several triages: workerdiag fleet {shlex.quote(str(result.output))}")
    return EXIT_NOT_OK if failed or result.notes else EXIT_OK


def _warn_of_failed(result: TriageResult) -> bool:
    """Name the first inputs that could not be read, and return whether there are any; with no other, raise."""
    failed = [each for each in result.inputs if each.status == "failed"]
    if all(each.status != "done" for each in result.inputs):
        lines = [f"  {each.url}: {each.reason}" for each in result.inputs[:_MAX_NAMED]]
        if len(result.inputs) > _MAX_NAMED:
            lines.append(f"  and {len(result.inputs) - _MAX_NAMED:,} more")
        raise UnusableError("\n".join(("no log could be read:", *lines)))
    for row in failed[:_MAX_NAMED]:
        warn(f"{row.url}: {row.reason}")
    if len(failed) > _MAX_NAMED:
        warn(f"and {pluralize(len(failed) - _MAX_NAMED, 'more part')} could not be read")
    for sentence in result.notes:
        warn(sentence)
    return bool(failed)


@contextmanager
def _client_of(address: str) -> Iterator[Client]:
    from workerdiag.sources.cluster.queries import connect

    try:
        with status_line(f"connecting to {address}", limit_s=_CONNECT_S):
            client = connect(address, timeout_s=_CONNECT_S, name="workerdiag-triage")
    except Exception as problem:
        raise TriageError(
            f"cannot connect to {address}: {describe_connection_error(problem)}",
            "check the address, and that the scheduler is running",
        ) from problem
    with client:
        yield client


@contextmanager
def _progress_bar() -> Iterator[Callable[[Progress], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=1, file=sys.stderr, item_show_func=_progress_text) as bar:

        def show(progress: Progress) -> None:
            bar.length = max(1, progress.bytes)
            bar.update(progress.bytes_done - bar.pos, progress)

        yield show


def _progress_text(progress: Progress | None) -> str | None:
    if progress is None:
        return None
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (
        f"{progress.parts_done} of {pluralize(progress.parts, 'part')}, "
        f"{pluralize(progress.reports, 'report')} of deaths{failed}"
    )


@command(
    "workerdiag fleet triaged/",
    "workerdiag fleet triaged/ ~/.local/state/workerdiag/watch.db",
    "workerdiag fleet triaged/ --format html > fleet.html",
)
@click.argument("places", metavar="FOLDER...", nargs=-1, required=True, type=click.Path())
@format_option("text", "json", "html", text="`workerdiag schema fleet` prints the schema of the JSON.")
def fleet(places: tuple[str, ...], form: Literal["text", "json", "html"]) -> int:
    """Say what kills workers: shares, hosts, versions, since when.

    A FOLDER is what `workerdiag triage --output` wrote, or has a watcher's state files (.db, .sqlite) in it;
    a table or a state can be named too. A death that several of them report counts once; stops that somebody
    asked for are not counted.

    Exit status: 0 a report; 1 none of the files could be read; 2 bad usage, or there is no such file.
    """
    from workerdiag.triage.fleet.fleet import fleet as read_fleet

    with status_line("reading the tables"):
        report = read_fleet(*places)
    match form:
        case "text":
            text = report.to_text(width=table_width(), color=is_colored())
        case "json":
            text = report.to_json()
        case "html":
            text = report.to_html()
        case _:
            assert_never(form)
    click.echo(text)
    return EXIT_OK if report.tables else EXIT_NOT_OK
