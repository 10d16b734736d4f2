"""
``workerdiag.fleet()``: the function that users call.
"""

from __future__ import annotations

import os

from attrs import evolve

from workerdiag.incidents.watched_incident import is_deliberate_stop
from workerdiag.model.diagnosis import Death
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.load import load_rulebook
from workerdiag.triage.fleet.collect import Collector
from workerdiag.triage.fleet.merge import merge_tables
from workerdiag.triage.fleet.summarize import summarize
from workerdiag.triage.fleet.values import FleetReport
from workerdiag.triage.rows import DeathRow


def fleet(*places: str | os.PathLike[str]) -> FleetReport:
    """
    What kills workers, from the tables of triage and the state files of watchers.

    A death that several of them report counts once; a stop that somebody asked for is no loss. What cannot be
    read is a gap of the report, and then its numbers are "at least".

    Args:
        places: Folders with all below them, or files: tables of triage (``.parquet``, which needs pyarrow,
            ``.csv``, ``.jsonl``) and a watcher's state (``.db``, ``.sqlite``, ``.sqlite3``; a file that is
            named may end in anything). None of them is written to.

    Raises:
        UnreadableInputError: A place is not there, or there is no table and no state in any of them.
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
    """
    The row as a stop that was asked for, if a rule knows that though nobody told the scheduler.
    """
    if row.stop_requested or row.cause is None:
        return row
    death = Death(identity=NO_IDENTITY, cause=row.cause, probability=row.probability)
    return evolve(row, stop_requested=True) if is_deliberate_stop(death, book) else row
