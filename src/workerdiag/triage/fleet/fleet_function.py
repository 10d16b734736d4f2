"""``workerdiag.fleet()``: the function that users call."""

from __future__ import annotations

import os

from attrs import evolve

from workerdiag.incidents.incident import is_deliberate_stop
from workerdiag.model.diagnosis import Death
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.load import load_rulebook
from workerdiag.triage.fleet.collect import Collector
from workerdiag.triage.fleet.merge import merge_tables
from workerdiag.triage.fleet.summarize import summarize
from workerdiag.triage.fleet.values import FleetReport
from workerdiag.triage.tables import DeathRow


def fleet(*places: str | os.PathLike[str]) -> FleetReport:
    """Report what kills workers, from tables of triage and state files of watchers.

    A death in several of them counts once. A stop that somebody asked for is not a loss. What cannot be read
    becomes a gap of the report, and its numbers are then "at least".

    Args:
        places: Folders with all below them, or files: tables of triage (``.parquet``, which needs pyarrow,
            ``.csv``, ``.jsonl``) and a watcher's state (``.db``, ``.sqlite``, ``.sqlite3``; a file named
            explicitly may have any extension). All stay unchanged.

    Raises:
        UnreadableInputError: A place does not exist, or none of them holds a table or state file.
    """
    collector = Collector()
    collector.read(places)
    book = load_rulebook()
    merged = merge_tables(collector.deaths)
    return summarize(
        evolve(merged, deaths=tuple(_with_stop(each, book) for each in merged.deaths)),
        {each.id: each.title for each in book.causes},
        is_partial=bool(collector.gaps),
        tables=tuple(collector.tables),
        gaps=tuple(collector.gaps),
    )


def _with_stop(row: DeathRow, book: Rulebook) -> DeathRow:
    """Return the row as a requested stop if a rule says so, although the scheduler was not told."""
    if row.stop_requested or row.cause is None:
        return row
    death = Death(identity=NO_IDENTITY, cause=row.cause, probability=row.probability)
    return evolve(row, stop_requested=True) if is_deliberate_stop(death, book) else row
