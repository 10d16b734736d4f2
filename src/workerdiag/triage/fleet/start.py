"""
``workerdiag.fleet()``: the function that users call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from workerdiag.rulebook.load import load_rulebook
from workerdiag.triage.fleet.collect import Collector
from workerdiag.triage.fleet.merge import merge_tables
from workerdiag.triage.fleet.summarize import summarize
from workerdiag.triage.fleet.values import FleetReport


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
    return summarize(
        merge_tables(collector.deaths),
        _titles(),
        is_partial=bool(collector.gaps),
        tables=tuple(collector.tables),
        gaps=tuple(collector.gaps),
    )


def _titles() -> Mapping[str, str]:
    return {each.id: each.title for each in load_rulebook().causes}
