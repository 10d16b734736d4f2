"""The share, cost, first occurrence and trend of each cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from workerdiag.triage.fleet.counts import (
    LEAST_DEATHS,
    LEVEL,
    Span,
    cost_of,
    host_of,
    period_counts,
    share_interval,
    span_of,
    sure_cause,
)
from workerdiag.triage.fleet.losses import JointLoss
from workerdiag.triage.fleet.statistics import halves_p_value, holm
from workerdiag.triage.fleet.values import CauseShare, Period, Trend
from workerdiag.triage.tables import DeathRow

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

    Args:
        losses: All joint losses.
        titles: Titles of causes by id.
        span: The time that the tables cover.
        period: The unit in which deaths are counted.
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
    """Return the share with its hosts, times and cost."""
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
    """Return the shares with their trends, where there are enough deaths."""
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
