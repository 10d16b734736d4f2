"""``workerdiag.fleet()``: the function that users call. It summarizes deaths in a fleet report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from workerdiag.incidents.incident import is_deliberate_stop
from workerdiag.model.diagnosis import Death
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.process_end import TOGETHER_S
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.load import load_rulebook
from workerdiag.triage.fleet.collect import Collector, MergedDeaths, merge_tables
from workerdiag.triage.fleet.count import (
    JointLoss,
    cause_shares,
    cost_of,
    count_after,
    group_losses,
    host_shares,
    input_counts,
    main_cause,
    share_interval,
    span_of,
    unexplained,
)
from workerdiag.triage.fleet.report import Package, Period, VersionShare
from workerdiag.triage.fleet.show import FleetReport
from workerdiag.triage.tables import DeathRow, InputRow


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
    return _report(collector, load_rulebook())


def report_triage(
    path: Path, deaths: Sequence[DeathRow], inputs: Iterable[InputRow], book: Rulebook
) -> FleetReport:
    """Report what a triage found, as `fleet` does of its tables; *path* stands for them."""
    collector = Collector()
    collector.add_triage(path, deaths, inputs)
    return _report(collector, book)


def _report(collector: Collector, book: Rulebook) -> FleetReport:
    merged = merge_tables(collector.deaths)
    return summarize(
        evolve(merged, deaths=[_with_stop(each, book) for each in merged.deaths]),
        {each.id: each.title for each in book.causes},
        is_partial=bool(collector.gaps),
        inputs=input_counts(row for _, row in collector.inputs),
        tables=tuple(collector.tables),
        gaps=tuple(collector.gaps),
    )


def _with_stop(row: DeathRow, book: Rulebook) -> DeathRow:
    """Return the row as a requested stop if a rule says so, although the scheduler was not told."""
    if row.stop_requested or row.cause is None:
        return row
    death = Death(identity=NO_IDENTITY, cause=row.cause, probability=row.probability)
    return evolve(row, stop_requested=True) if is_deliberate_stop(death, book) else row


#: A longer time is counted in days, and in weeks.
_MAX_HOURS_S, _MAX_DAYS_S = 86400.0, 31 * 86400.0

_INTERVAL_METHOD = (
    f"Workers of one cluster that were lost to the same trouble within {TOGETHER_S:g} seconds are one joint"
    " loss. Shares are of workers; their intervals are Wilson's score intervals of 95% (Wilson 1927), for as"
    " many independent observations as the joint losses are worth by Kish's formula (Kish 1965)."
)
_HOST_METHOD = (
    "Shares of hosts are of joint losses. Hosts on which nothing died, and how long each host worked, are not in"
    " the tables."
)
_HALF_METHOD = "The tables are assumed to cover the first half of the time as well as the second."


def summarize(merged: MergedDeaths, titles: Mapping[str, str], **facts: Any) -> FleetReport:
    """Return the report of all deaths; *facts* are other attributes: what was read, and what could not be."""
    lost = [each for each in merged.deaths if not each.stop_requested]
    losses = group_losses(lost)
    span, lost_span = span_of(merged.deaths), span_of(lost)
    lost_s = lost_span[1] - lost_span[0] if lost_span else 0.0
    period: Period = "week" if lost_s > _MAX_DAYS_S else "day" if lost_s > _MAX_HOURS_S else "hour"
    half_at = sum(span) / 2 if span and span[0] < span[1] else None
    hosts = host_shares(losses)
    lost_compute_s, lost_known_count = cost_of(lost)
    first_at, last_at = lost_span or (None, None)
    return FleetReport(
        death_count=len(lost),
        loss_count=len(losses),
        requested_count=len(merged.deaths) - len(lost),
        duplicate_count=merged.duplicate_count,
        undated_count=sum(each.died_at is None for each in lost),
        run_count=len({each.run for each in lost}),
        host_count=len(hosts),
        host_loss_count=sum(each.loss_count for each in hosts),
        first_at=first_at,
        last_at=last_at,
        half_at=half_at,
        late_count=count_after(lost, half_at),
        lost_compute_s=lost_compute_s,
        lost_known_count=lost_known_count,
        period=period,
        causes=cause_shares(losses, titles, half_at, period),
        hosts=hosts,
        versions=tuple(_versions(lost, losses)),
        unexplained=unexplained(lost),
        methods=(_INTERVAL_METHOD, _HOST_METHOD, _HALF_METHOD),
        **facts,
    )


def _versions(lost: Sequence[DeathRow], losses: Sequence[JointLoss]) -> Iterator[VersionShare]:
    packages: dict[Package, list[str | None]] = {
        "distributed": [each.distributed_version for each in lost],
        "python": [each.python_version for each in lost],
    }
    for package, versions in packages.items():
        for version, count in sorted(Counter(versions).items(), key=lambda each: (-each[1], each[0] or "")):
            deaths = [each for each, its in zip(lost, versions, strict=True) if its == version]
            cause, cause_count = main_cause(deaths)
            first_at, last_at = span_of(deaths) or (None, None)
            yield VersionShare(
                package=package,
                version=version,
                death_count=count,
                share=count / len(lost),
                interval=share_interval(count / len(lost), losses),
                cause=cause,
                cause_count=cause_count,
                first_at=first_at,
                last_at=last_at,
            )
