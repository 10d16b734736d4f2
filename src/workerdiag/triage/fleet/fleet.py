"""``workerdiag.fleet()``: the function that users call. It summarizes deaths in a fleet report.

Workers that were lost together are one observation, because the others add no information.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any

from attrs import evolve

from workerdiag.incidents import is_deliberate_stop
from workerdiag.model.diagnosis import SURE_ENOUGH, Death
from workerdiag.model.identity import NO_IDENTITY
from workerdiag.model.process_end import TOGETHER_S
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.load import load_rulebook
from workerdiag.triage.fleet.collect import WATCHED, Collector, MergedDeaths, merge_tables
from workerdiag.triage.fleet.report import (
    CauseShare,
    FleetReport,
    HostShare,
    InputCount,
    Interval,
    Package,
    Period,
    PeriodCount,
    Unexplained,
    VersionShare,
    effective_size,
    wilson_interval,
)
from workerdiag.triage.tables import DeathRow, InputRow, InputStatus

#: Deaths on one cluster within seconds, from the same trouble; the earliest first.
JointLoss = tuple[DeathRow, ...]
#: The first and the last moment, in seconds since the epoch; None: not known.
Span = tuple[float, float] | None


def sure_cause(death: DeathRow) -> str | None:
    """Return the cause of a death if it is likelier than not, else None."""
    return death.cause if death.probability >= SURE_ENOUGH else None


def main_cause(deaths: Iterable[DeathRow]) -> tuple[str | None, int]:
    """Return the known cause of most of the deaths, and their number; None: no cause is known."""
    known = Counter(cause for each in deaths if (cause := sure_cause(each)) is not None)
    return min(known.items(), key=lambda each: (-each[1], each[0])) if known else (None, 0)


def span_of(deaths: Iterable[DeathRow]) -> Span:
    """Return the times of the first and the last death."""
    times = [each.died_at for each in deaths if each.died_at is not None]
    return (min(times), max(times)) if times else None


def cost_of(deaths: Iterable[DeathRow]) -> tuple[float | None, int]:
    """Return the lost compute seconds, and the number of deaths for which they are known."""
    known = [each.lost_compute_s for each in deaths if each.lost_compute_s is not None]
    return (sum(known), len(known)) if known else (None, 0)


def share_interval(share: float, losses: Collection[JointLoss]) -> Interval:
    """Return the interval of the *share* of all deaths in these losses."""
    return wilson_interval(share, effective_size(map(len, losses)))


def period_counts(deaths: Iterable[DeathRow], period: Period) -> tuple[PeriodCount, ...]:
    """Return the number of deaths in each hour, day or week that had any."""
    counts = Counter(_begin_of(each.died_at, period) for each in deaths if each.died_at is not None)
    return tuple(PeriodCount(begin=begin, death_count=count) for begin, count in sorted(counts.items()))


def host_of(death: DeathRow) -> str | None:
    """Return the machine, unless its name is local: ``127.0.0.1`` means a different machine in each log."""
    return death.host if death.host and not _names_itself(death.host) else None


@lru_cache(maxsize=10_000)
def _names_itself(host: str) -> bool:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _begin_of(when: float, period: Period) -> str:
    hour = datetime.fromtimestamp(when, UTC).replace(tzinfo=None, minute=0, second=0, microsecond=0)
    if period == "hour":
        return hour.isoformat(timespec="minutes")
    day = hour.date()
    return (day - timedelta(days=day.weekday()) if period == "week" else day).isoformat()


def cause_shares(
    losses: Sequence[JointLoss], titles: Mapping[str, str], half_at: float | None, period: Period
) -> tuple[CauseShare, ...]:
    """Return the causes of the deaths, with their *titles* by id, most deaths first; unknown causes come last."""
    deaths: dict[str | None, list[DeathRow]] = {}
    loss_counts: Counter[str | None] = Counter()
    for loss in losses:
        for each in loss:
            deaths.setdefault(sure_cause(each), []).append(each)
        loss_counts.update({sure_cause(each) for each in loss})
    total = sum(map(len, deaths.values()))
    shares = []
    for cause in sorted(deaths, key=lambda each: (each is None, -len(deaths[each]), each or "")):
        its = deaths[cause]
        lost_compute_s, lost_known_count = cost_of(its)
        first_at, last_at = span_of(its) or (None, None)
        shares.append(
            CauseShare(
                cause=cause,
                title="Cause not known" if cause is None else titles.get(cause, cause),
                family="" if cause is None else cause.partition(".")[0],
                death_count=len(its),
                share=len(its) / total,
                interval=share_interval(len(its) / total, losses),
                loss_count=loss_counts[cause],
                host_count=len({host_of(each) for each in its} - {None}),
                lost_compute_s=lost_compute_s,
                lost_known_count=lost_known_count,
                first_at=first_at,
                last_at=last_at,
                late_count=count_after(its, half_at),
                periods=period_counts(its, period),
            )
        )
    return tuple(shares)


def count_after(deaths: Iterable[DeathRow], half_at: float | None) -> int:
    """Return the number of deaths from the moment on; none if it or their times are not known."""
    return sum(half_at is not None and each.died_at is not None and each.died_at >= half_at for each in deaths)


def input_counts(inputs: Iterable[InputRow]) -> tuple[InputCount, ...]:
    """Return the number of parts by status. A part that one of several triages could read did not fail."""
    status_of: dict[tuple[str, int], InputStatus] = {}
    for each in sorted(inputs, key=lambda row: row.status == "failed"):
        status_of.setdefault((each.url, each.first_byte), each.status)
    return tuple(
        InputCount(status=each, count=count) for each, count in sorted(Counter(status_of.values()).items())
    )


def unexplained(deaths: Iterable[DeathRow]) -> tuple[Unexplained, ...]:
    """Return the groups of deaths without any likely cause, in logs from which a rule can be drafted."""
    groups: dict[tuple[str, str], list[DeathRow]] = {}
    for row in deaths:
        if row.cause is None and not row.url.startswith(WATCHED):
            groups.setdefault((row.case, _exit(row)), []).append(row)
    found = (
        Unexplained(
            case=case, death_count=len(group), exit=exit_, urls=tuple(sorted({row.url for row in group})[:3])
        )
        for (case, exit_), group in groups.items()
    )
    return tuple(sorted(found, key=lambda each: (-each.death_count, each.case, each.exit)))


def _exit(row: DeathRow) -> str:
    if row.signal is not None:
        return f"signal {row.signal}"
    return "unknown" if row.exit_code is None else f"status {row.exit_code}"


def host_shares(losses: Sequence[JointLoss]) -> tuple[HostShare, ...]:
    """Return the hosts, most losses first."""
    deaths: dict[str, list[DeathRow]] = {}
    loss_counts: Counter[str] = Counter()
    for loss in losses:
        by_host = [(host, each) for each in loss if (host := host_of(each)) is not None]
        loss_counts.update({host for host, _ in by_host})
        for host, each in by_host:
            deaths.setdefault(host, []).append(each)
    return tuple(
        HostShare(
            host=host,
            death_count=len(its),
            loss_count=loss_counts[host],
            share=loss_counts[host] / loss_counts.total(),
            cause=cause,
            cause_count=cause_count,
        )
        for host, its in sorted(deaths.items(), key=lambda each: (-loss_counts[each[0]], -len(each[1]), each[0]))
        for cause, cause_count in [main_cause(its)]
    )


def group_losses(deaths: Iterable[DeathRow]) -> tuple[JointLoss, ...]:
    """Group deaths into joint losses: same run, same case, at most `TOGETHER_S` seconds after the first."""
    groups: dict[tuple[str, str], list[DeathRow]] = {}
    for each in deaths:
        groups.setdefault((each.run, each.case), []).append(each)
    losses: list[list[DeathRow]] = []
    for group in groups.values():
        begin = -inf
        for each in sorted(group, key=lambda death: inf if death.died_at is None else death.died_at):
            if each.died_at is not None and each.died_at - begin <= TOGETHER_S:
                losses[-1].append(each)
            else:
                losses.append([each])
                begin = each.died_at if each.died_at is not None else -inf
    return tuple(map(tuple, losses))


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
    period: Period = "week" if lost_s > 31 * 86_400 else "day" if lost_s > 86_400 else "hour"
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
