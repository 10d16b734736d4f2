"""Summarize deaths in a fleet report: arithmetic only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workerdiag.model.process_end import TOGETHER_S
from workerdiag.triage.fleet.causes import TREND_METHOD, cause_shares
from workerdiag.triage.fleet.counts import cost_of, host_of, main_cause, share_interval, span_of
from workerdiag.triage.fleet.hosts import HOST_METHOD, host_loads
from workerdiag.triage.fleet.losses import JointLoss, group_losses
from workerdiag.triage.fleet.merge import MergedDeaths
from workerdiag.triage.fleet.values import FleetReport, Package, Period, VersionShare
from workerdiag.triage.tables import DeathRow

#: A longer time is counted in weeks.
_MAX_DAYS_S = 31 * 86400.0

_INTERVAL_METHOD = (
    f"Workers of one cluster that were lost to the same trouble within {TOGETHER_S:g} seconds are one joint"
    " loss. Shares are of workers; their intervals are Wilson's score intervals of 95% (Wilson 1927), for as"
    " many independent observations as the joint losses are worth by Kish's formula (Kish 1965)."
)


def summarize(merged: MergedDeaths, titles: Mapping[str, str], **facts: Any) -> FleetReport:
    """Return the report of all deaths.

    Args:
        merged: The deaths and stops of all tables, each once.
        titles: Titles of causes by id.
        facts: Other attributes of the report: what was read, and what could not be.
    """
    lost = [each for each in merged.deaths if not each.stop_requested]
    losses = group_losses(lost)
    span, lost_span = span_of(merged.deaths), span_of(lost)
    period: Period = "week" if lost_span and lost_span[1] - lost_span[0] > _MAX_DAYS_S else "day"
    lost_compute_s, lost_known_count = cost_of(lost)
    first_at, last_at = lost_span or (None, None)
    return FleetReport(
        death_count=len(lost),
        loss_count=len(losses),
        requested_count=len(merged.deaths) - len(lost),
        duplicate_count=merged.duplicate_count,
        undated_count=sum(each.died_at is None for each in lost),
        run_count=len({each.run for each in lost}),
        host_count=len({host_of(each) for each in lost} - {None}),
        first_at=first_at,
        last_at=last_at,
        lost_compute_s=lost_compute_s,
        lost_known_count=lost_known_count,
        period=period,
        causes=cause_shares(losses, titles, span, period),
        hosts=host_loads(losses),
        versions=tuple(_versions(lost, losses)),
        methods=(_INTERVAL_METHOD, HOST_METHOD, TREND_METHOD),
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
