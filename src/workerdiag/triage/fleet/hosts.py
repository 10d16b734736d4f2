"""Find hosts that lose far more workers than others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import evolve

from workerdiag.triage.fleet.counts import LEAST_DEATHS, LEVEL, host_of, main_cause
from workerdiag.triage.fleet.losses import JointLoss
from workerdiag.triage.fleet.statistics import binomial_tail, holm
from workerdiag.triage.fleet.values import HostLoad
from workerdiag.triage.tables import DeathRow

#: A host is far above the rate from this ratio on, if chance does not explain it.
FAR_RATIO = 2.0

HOST_METHOD = (
    f"A host is far above the rate if it has at least {LEAST_DEATHS} deaths, {FAR_RATIO:g} times as many"
    " losses as the other hosts on average, and more than an equal share by the exact binomial test with"
    f" Holm's correction for the number of hosts (Holm 1979; p < {LEVEL:g}). Hosts on which nothing died, and"
    " how long each host worked, are not in the tables."
)


def host_loads(losses: Sequence[JointLoss]) -> tuple[HostLoad, ...]:
    """Return the hosts with enough deaths to be ranked, most deaths first."""
    deaths: dict[str, list[DeathRow]] = {}
    loss_counts: Counter[str] = Counter()
    for loss in losses:
        by_host = [(host, each) for each in loss.deaths if (host := host_of(each)) is not None]
        loss_counts.update({host for host, _ in by_host})
        for host, each in by_host:
            deaths.setdefault(host, []).append(each)
    ranked = sorted(
        (host for host, its in deaths.items() if len(its) >= LEAST_DEATHS),
        key=lambda host: (-len(deaths[host]), host),
    )
    loads = [_load(host, deaths[host], loss_counts) for host in ranked]
    corrected = holm([each.p_value for each in loads], len(loss_counts))
    return tuple(
        evolve(each, p_value=p_value, is_above=each.ratio >= FAR_RATIO and p_value < LEVEL)
        for each, p_value in zip(loads, corrected, strict=True)
    )


def _load(host: str, deaths: Sequence[DeathRow], loss_counts: Counter[str]) -> HostLoad:
    """Return the load of one host, not yet corrected for the number of hosts."""
    count, total, host_count = loss_counts[host], loss_counts.total(), len(loss_counts)
    cause, cause_count = main_cause(deaths)
    return HostLoad(
        host=host,
        death_count=len(deaths),
        loss_count=count,
        ratio=count * (host_count - 1) / (total - count) if host_count > 1 else 1.0,
        p_value=binomial_tail(count, total, 1 / host_count),
        is_above=False,
        cause=cause,
        cause_count=cause_count,
    )
