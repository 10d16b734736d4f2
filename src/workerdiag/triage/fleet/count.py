"""Counts of deaths: share, cost, first occurrence and trend of each cause, and hosts that lose far more workers.

Workers that were lost together are one observation, because the others add no information.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from math import inf

from attrs import evolve, field, frozen

from workerdiag.model.diagnosis import SURE_ENOUGH
from workerdiag.model.process_end import TOGETHER_S
from workerdiag.triage.fleet.report import (
    CauseShare,
    HostLoad,
    Interval,
    Period,
    PeriodCount,
    Trend,
    binomial_tail,
    effective_size,
    halves_p_value,
    holm,
    wilson_interval,
)
from workerdiag.triage.tables import DeathRow

#: Hosts and trends with fewer deaths are not judged.
LEAST_DEATHS = 5
#: Significance level: a higher p-value means nothing.
LEVEL = 0.05

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
    return wilson_interval(share, effective_size(len(each.deaths) for each in losses))


def period_counts(deaths: Iterable[DeathRow], period: Period) -> tuple[PeriodCount, ...]:
    """Return the number of deaths in each day or week that had any."""
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
    day = datetime.fromtimestamp(when, UTC).date()
    return (day - timedelta(days=day.weekday()) if period == "week" else day).isoformat()


UNKNOWN_CAUSE = "Cause not known"

TREND_METHOD = (
    f"A trend needs at least {LEAST_DEATHS} deaths. The second half of the time is compared with the first,"
    " and the time before the first loss with the time after it, by exact tests with Holm's correction for"
    f" the number of causes (p < {LEVEL:g}). The tables are assumed to cover the whole time evenly."
)


def cause_shares(
    losses: Sequence[JointLoss], titles: Mapping[str, str], span: Span, period: Period
) -> tuple[CauseShare, ...]:
    """Return the causes of the deaths, most deaths first; unknown causes come last.

    *titles* has the titles of causes by id; *span* is the time that the tables cover.
    """
    deaths: dict[str | None, list[DeathRow]] = {}
    times: dict[str | None, list[float]] = {}
    loss_counts: dict[str | None, int] = {}
    for loss in losses:
        for each in loss.deaths:
            deaths.setdefault(sure_cause(each), []).append(each)
        for cause in {sure_cause(each) for each in loss.deaths}:
            loss_counts[cause] = loss_counts.get(cause, 0) + 1
            times.setdefault(cause, []).extend([] if loss.at is None else [loss.at])
    total = sum(map(len, deaths.values()))
    shares = []
    for cause in sorted(deaths, key=lambda each: (each is None, -len(deaths[each]), each or "")):
        share = len(deaths[cause]) / total
        bare = CauseShare(
            cause=cause,
            title=UNKNOWN_CAUSE if cause is None else titles.get(cause, cause),
            family="" if cause is None else cause.partition(".")[0],
            death_count=len(deaths[cause]),
            share=share,
            interval=share_interval(share, losses),
            loss_count=loss_counts[cause],
        )
        shares.append(_with_particulars(bare, deaths[cause], period))
    return _with_trends(shares, times, span)


def _with_particulars(share: CauseShare, deaths: Sequence[DeathRow], period: Period) -> CauseShare:
    lost_compute_s, lost_known_count = cost_of(deaths)
    first_at, last_at = span_of(deaths) or (None, None)
    return evolve(
        share,
        host_count=len({host_of(each) for each in deaths} - {None}),
        lost_compute_s=lost_compute_s,
        lost_known_count=lost_known_count,
        first_at=first_at,
        last_at=last_at,
        periods=period_counts(deaths, period),
    )


def _with_trends(
    shares: Sequence[CauseShare], times: Mapping[str | None, Sequence[float]], span: Span
) -> tuple[CauseShare, ...]:
    changes = {
        each.cause: _change(times[each.cause], *span)
        for each in shares
        if span and span[0] < span[1] and times[each.cause] and each.death_count >= LEAST_DEATHS
    }
    corrected = dict(zip(changes, holm([p_value for _, p_value in changes.values()]), strict=True))
    return tuple(
        evolve(
            each,
            trend=changes[each.cause][0] if corrected[each.cause] < LEVEL else "steady",
            trend_p=corrected[each.cause],
        )
        if each.cause in corrected
        else evolve(each, trend="too-few" if times[each.cause] else "undated")
        for each in shares
    )


def _change(times: Sequence[float], begin: float, end: float) -> tuple[Trend, float]:
    """Return the likelier change of a rate, and its p-value: how likely it is if the rate did not change.

    There are two tests, so the smaller p-value is doubled (Bonferroni).
    """
    late = sum(each >= (begin + end) / 2 for each in times)
    early = len(times) - late
    halves_p = halves_p_value(early, late)
    new_p = ((end - min(times)) / (end - begin)) ** len(times)
    trend: Trend = "new" if new_p <= halves_p else "rising" if late > early else "falling"
    return trend, min(1.0, 2 * min(new_p, halves_p))


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


@frozen(kw_only=True)
class JointLoss:
    """Deaths on one cluster within seconds, from the same trouble."""

    #: The deaths, earliest first.
    deaths: tuple[DeathRow, ...]
    #: Time of the first death; None: not known.
    at: float | None = field(init=False)

    @at.default
    def _at(self) -> float | None:
        return self.deaths[0].died_at


def group_losses(deaths: Iterable[DeathRow]) -> tuple[JointLoss, ...]:
    """Group deaths into joint losses: same run, same case, at most `TOGETHER_S` seconds after the first.

    A death without a time is a separate loss.
    """
    groups: dict[tuple[str, str], list[DeathRow]] = {}
    for each in deaths:
        groups.setdefault((each.run, each.case), []).append(each)
    return tuple(
        JointLoss(deaths=tuple(members))
        for group in groups.values()
        for members in _split(sorted(group, key=_time))
    )


def _split(deaths: Sequence[DeathRow]) -> list[list[DeathRow]]:
    losses: list[list[DeathRow]] = []
    begin = -inf
    for each in deaths:
        if each.died_at is not None and each.died_at - begin <= TOGETHER_S:
            losses[-1].append(each)
        else:
            losses.append([each])
            begin = each.died_at if each.died_at is not None else -inf
    return losses


def _time(death: DeathRow) -> float:
    return death.died_at if death.died_at is not None else inf
