"""``workerdiag explain``: from log files and a scheduler's address to a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import click

from workerdiag.cli.commands import (
    EXIT_NOT_OK,
    EXIT_OK,
    UnusableError,
    command,
    format_option,
    gap_text,
    is_colored,
    knowledge_option,
    load_checked_rulebook,
    note,
    status_line,
    text_width,
    warn,
)
from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import REPORT_FORMATS, STREAMS, Outcome, Place, ReportFormat, Stream
from workerdiag.rendering.wording import pluralize
from workerdiag.settings import seconds as setting_in_seconds
from workerdiag.units import parse_duration
from workerdiag.values import evolve, frozen

if TYPE_CHECKING:
    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.api.explain import Answer


def _timeout_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float:
    """A duration above zero in seconds, written as Dask writes durations; by default the setting's."""
    if value is None:
        return setting_in_seconds("explain.timeout")
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise click.BadParameter(f'{value!r} is not a duration like "10s"', ctx, param) from None
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f'{value!r} is not above zero: give a duration like "10s"', ctx, param)
    return seconds


@command(
    "workerdiag explain worker.log scheduler.log.gz",
    "kubectl logs --previous my-worker | workerdiag explain -",
    "workerdiag explain --scheduler tcp://10.0.0.1:8786",
    "workerdiag explain --format json slurm-*.out > diagnosis.json",
    "workerdiag explain --save death.zip *.log",
    "workerdiag explain death.zip",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("inputs", nargs=-1, metavar="[PATH|URL|-]...", type=click.Path(readable=False, allow_dash=True))
@click.option("--scheduler", metavar="ADDRESS", help="Also query this scheduler, e.g. tcp://10.0.0.1:8786.")
@click.option(
    "--stream", type=click.Choice(STREAMS), help="Who wrote the logs. By default this is read from each line."
)
@format_option(*REPORT_FORMATS, text="What to print.")
@click.option("--full", is_flag=True, help="Print the whole report as text, not only the first screen.")
@click.option("--factors", is_flag=True, help="Also print every factor of the first three probabilities.")
@knowledge_option
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write a death bundle, e.g. death.zip: the diagnosis with its evidence.",
)
@click.option(
    "--timeout",
    callback=_timeout_seconds,
    metavar="DURATION",
    help="Stop reading and searching after this time. By default 10s (workerdiag.explain.timeout).",
)
def explain(  # noqa: PLR0913, PLR0917  click gives one for each option
    inputs: tuple[str, ...],
    scheduler: str | None,
    stream: Stream | None,
    form: ReportFormat,
    full: bool,  # noqa: FBT001  click passes each option by its name
    factors: bool,  # noqa: FBT001
    knowledge: tuple[str, ...],
    save: str | None,
    timeout: float,
) -> int:
    """Say why a Dask worker died.

    Reads logs, or queries a scheduler that still runs, or both.

    Logs can be those of workers, nannies, schedulers, clients, the kernel, Kubernetes or a batch
    system, mixed, and packed with gzip, zstd, bzip2 or xz. Give files, folders, patterns, URLs that
    fsspec can open, or - for standard input. A death bundle is evaluated again with today's rules.
    Black boxes, and files of death records, are recognised by their content.

    Exit status: 0 a diagnosis, also that nothing died; 1 the evidence is not conclusive, or nothing in
    it is recognised; 2 bad usage, or nothing could be read.
    """
    if not inputs and not scheduler:
        raise click.UsageError("Give a log file, - for standard input, or --scheduler ADDRESS.")
    if factors and form != "text":
        raise click.UsageError("--factors is for text; --format json has them under causes.")
    for each in inputs:
        _tell_files_of_folder(each)
        _tell_unreadable_zip(each)
    asking = [f"asking {scheduler}"] if scheduler else []
    reading = [f"reading {pluralize(len(inputs), 'input')}"] if inputs else []
    with status_line(" and ".join(asking + reading), limit_s=timeout):
        found = _answer(inputs, scheduler, stream, load_checked_rulebook(knowledge), timeout)
    unread = [each for each in found.diagnosis.gaps if each.place == "scheduler"] + list(found.unread)
    if not found.has_evidence:
        raise UnusableError("nothing could be read:\n" + "\n".join(f"  {gap_text(each)}" for each in unread))
    if found.failure is not None:
        raise found.failure
    for gap in unread:
        warn(gap_text(gap))
    if save is not None:
        found.diagnosis.save(save)
    click.echo(_render(found.diagnosis, form, full=full), color=True)
    if factors:
        from workerdiag.rendering.text import render_factors

        click.echo(f"\n{render_factors(found.diagnosis, width=text_width())}")
    return _exit_status(found.diagnosis.outcome)


def _tell_files_of_folder(place: str) -> None:
    """Say on standard error which files of a folder are read as logs, where some are not."""
    from workerdiag.sources.logs.inputs import files_of_folder

    with suppress(OSError):  # that it may not be read is said where it is read
        if not Path(place).is_dir():
            return
        logs, others = files_of_folder(Path(place))
        if logs and others:
            note(f"{place}: read as logs: {_names(logs)}; not read: {_names(others)}")


def _tell_unreadable_zip(place: str) -> None:
    """Warn that a file is a zip by its name alone."""
    path = Path(place)
    with suppress(OSError):
        if path.suffix == ".zip" and path.is_file():
            with path.open("rb") as file:
                if not file.read(2).startswith(b"PK"):
                    warn(f"{place} is not a zip file and is read as text (copy or download it again)")


def _names(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(path.name for path in paths[:5]) + more


def _exit_status(outcome: Outcome) -> int:
    match outcome:
        case "explained" | "no-death":
            return EXIT_OK
        case "unknown" | "no-evidence":
            return EXIT_NOT_OK
        case _:
            assert_never(outcome)


def _answer(
    inputs: Sequence[str], scheduler: str | None, stream: Stream | None, book: Rulebook, timeout_s: float
) -> Answer:
    from workerdiag.api.explain import answer, read_arguments

    if scheduler:
        import distributed  # noqa: F401  here, as a thread that imports it cannot be given up

    sources = [SchedulerSource(scheduler, book)] if scheduler else []
    arguments = read_arguments(logs=inputs, sources=sources, rulebook=book, timeout=timeout_s)
    with quiet_dask() if scheduler else nullcontext():
        return answer(evolve(arguments, stream=stream))


def _render(diagnosis: Diagnosis, form: ReportFormat, *, full: bool) -> str:
    match form:
        case "json":
            return diagnosis.to_json()
        case "markdown":
            return diagnosis.to_markdown().rstrip("\n")
        case "html":
            return diagnosis.to_html()
        case "text":
            from workerdiag.rendering.text import render_text

            again = "the same command with --full"
            return render_text(diagnosis, width=text_width(), color=is_colored(), full=full, whole_by=again)
        case _:
            assert_never(form)


#: Share of the time that connecting may take, and seconds for disconnecting.
_CONNECT_SHARE, _CLOSE_S = 0.6, 1.0


@frozen
class SchedulerSource:
    """The scheduler at an address and the platforms below it: connects, queries, disconnects, all in time."""

    address: str
    book: Rulebook
    name: str = "scheduler"
    place: Place = "scheduler"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield what there is; one gap of source ``scheduler`` if it cannot be reached."""
        from workerdiag.errors import describe_connection_error
        from workerdiag.model.rules import scheduler_topics
        from workerdiag.sources.cluster.queries import connect
        from workerdiag.sources.discovery import Discovery

        deadline = Deadline.after(budget_s)
        with guarded("connecting to the scheduler") as connecting:
            client = connect(self.address, timeout_s=round(budget_s * _CONNECT_SHARE, 1))
        if connecting.problem is not None:
            why = describe_connection_error(connecting.problem)
            yield Gap(
                source=self.name,
                place=self.place,
                reason="unreachable",
                detail=f"cannot connect to {self.address}: {why}"[:500],
                remedy="an address looks like tcp://10.0.0.1:8786; check it, and that the scheduler is running",
            )
            return
        try:
            topics = scheduler_topics(self.book)
            yield from Discovery(client, (), deadline, topics=topics).collect()
        finally:
            with suppress(Exception):
                client.close(timeout=_CLOSE_S)  # type: ignore[no-untyped-call]


@contextmanager
def quiet_dask() -> Iterator[None]:
    """Suppress the log lines of Dask, which would stand between the lines of the report."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
