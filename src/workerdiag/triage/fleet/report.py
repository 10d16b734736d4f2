"""The values of a fleet report: how many workers were lost, to what, where, with which versions, since when.

Its statistics, intervals of shares and tests corrected for multiple comparisons, need only the standard library;
each names its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, inf, lgamma, log, log1p, sqrt
from typing import Literal

from attrs import field, frozen
from attrs.validators import and_, ge, le

#: Version of the JSON format; it grows with each change that a reader could notice.
FLEET_SCHEMA = 1

#: ``new``: losses began after a time without any that is too long for chance. ``rising`` and ``falling``: the
#: second half of the time has more, or fewer, than chance explains. ``steady``: neither. ``too-few``: too few
#: to judge. ``undated``: the times are not known.
Trend = Literal["new", "rising", "falling", "steady", "too-few", "undated"]
#: The unit in which deaths are counted.
Period = Literal["day", "week"]
#: Kind of a file: a table that triage wrote, or a watcher's state.
TableKind = Literal["triage", "watcher"]
#: What is missing. ``file``: a file or folder, or the rest of a file. ``rows``: some rows of a file.
#: ``input``: a log that triage could not read. ``unseen``: a time in which a watcher did not see its cluster.
MissingPart = Literal["file", "rows", "input", "unseen"]
#: A program whose version is reported.
Package = Literal["distributed", "python"]


@frozen(kw_only=True)
class FleetTable:
    """A file that was read."""

    path: str
    kind: TableKind
    #: Number of deaths and stops in it, including those that other files have too.
    row_count: int = field(default=0, validator=ge(0))


@frozen(kw_only=True)
class FleetGap:
    """Something that could not be read or seen. All counts are then "at least"."""

    part: MissingPart
    path: str
    #: Which one, and what is wrong with it, in words.
    detail: str
    remedy: str = ""


@frozen(kw_only=True)
class PeriodCount:
    """The number of workers lost in one day or week."""

    #: Its first day in UTC, such as ``2026-11-23``; a week begins on Monday.
    begin: str
    death_count: int


@frozen(kw_only=True)
class CauseShare:
    """One cause, with its share of all deaths."""

    #: Id of the cause; None: deaths with unknown causes, or causes that are only a guess.
    cause: str | None
    title: str
    family: str
    death_count: int
    #: Share of all deaths, from 0 to 1, and its interval.
    share: float
    interval: Interval
    #: Number of joint losses: workers lost together, on one host or in one cascade, are one joint loss.
    loss_count: int
    host_count: int = 0
    #: Run time of the tasks that ran when their worker died, in seconds: at least, since it is known for only
    #: *lost_known_count* deaths. None: not known for any.
    lost_compute_s: float | None = None
    lost_known_count: int = 0
    #: Seconds since the epoch; None: not known.
    first_at: float | None = None
    last_at: float | None = None
    trend: Trend = "undated"
    #: P-value of *trend*, corrected for the number of causes; None: not tested.
    trend_p: float | None = None
    #: Only days, or weeks, in which workers were lost, oldest first.
    periods: tuple[PeriodCount, ...] = ()


@frozen(kw_only=True)
class HostLoad:
    """A host on which at least five workers were lost."""

    host: str
    death_count: int
    loss_count: int
    #: Its losses divided by the average losses of the other hosts in the tables.
    ratio: float
    #: Probability that chance alone gives a host this many, corrected for the number of hosts.
    p_value: float
    #: Whether it is far above the rate.
    is_above: bool
    #: The cause of most of its deaths; None: not known.
    cause: str | None
    cause_count: int


@frozen(kw_only=True)
class VersionShare:
    """The deaths under one version of a package."""

    package: Package
    #: The version; None: deaths with an unknown version.
    version: str | None
    death_count: int
    share: float
    interval: Interval
    cause: str | None
    cause_count: int
    first_at: float | None
    last_at: float | None


@frozen(kw_only=True)
class FleetFindings:
    """What kills the workers of a fleet."""

    #: Number of workers lost, without those that were asked to stop.
    death_count: int
    #: Whether something could not be read or seen; each count is then "at least".
    is_partial: bool
    loss_count: int
    #: Number of workers that somebody asked to stop.
    requested_count: int
    #: Number of reports of deaths that another table has too.
    duplicate_count: int
    undated_count: int
    #: Number of cluster runs, and of named hosts.
    run_count: int
    host_count: int
    first_at: float | None
    last_at: float | None
    lost_compute_s: float | None
    lost_known_count: int
    period: Period
    #: Most deaths first; deaths of unknown cause last.
    causes: tuple[CauseShare, ...] = ()
    #: Most deaths first; only hosts with at least five.
    hosts: tuple[HostLoad, ...] = ()
    #: By package, most deaths first.
    versions: tuple[VersionShare, ...] = ()
    tables: tuple[FleetTable, ...] = ()
    gaps: tuple[FleetGap, ...] = ()
    #: How shares, hosts and trends were computed, one sentence each.
    methods: tuple[str, ...] = ()


#: The two-sided 95 % quantile of the standard normal distribution.
_Z_95 = 1.959963984540054
#: A term smaller than the sum so far by this many powers of e changes no visible digit.
_NEGLIGIBLE = 40.0

_share = and_(ge(0.0), le(1.0))


@frozen(kw_only=True)
class Interval:
    """The 95 % confidence interval of a share, from 0 to 1."""

    low: float = field(validator=_share)
    high: float = field(validator=_share)


def wilson_interval(share: float, size: float) -> Interval:
    """Return the interval of a *share* observed in a sample of *size* independent observations.

    Wilson's score interval (E. B. Wilson, Journal of the American Statistical Association 22, 1927, 209-212).
    It stays within 0 and 1 and is valid for small samples, unlike the share plus or minus two standard errors
    (R. G. Newcombe, Statistics in Medicine 17, 1998, 857-872). Of dependent observations, *size* is their
    `effective_size`.
    """
    z2 = _Z_95**2
    center = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = _Z_95 / (1 + z2 / size) * sqrt(share * (1 - share) / size + z2 / (4 * size**2))
    return Interval(low=max(0.0, min(share, center - half)), high=min(1.0, max(share, center + half)))


def effective_size(group_sizes: Iterable[int]) -> float:
    """Return the number of independent observations worth as much as groups of identical observations.

    Kish's approximation, the square of the sum over the sum of squares (L. Kish, Survey Sampling, 1965).
    """
    sizes = list(group_sizes)
    return sum(sizes) ** 2 / sum(each**2 for each in sizes)


def binomial_tail(count: int, trials: int, chance: float) -> float:
    """Return the probability that at least *count* of *trials* succeed, each with the same *chance*.

    This is the exact one-sided binomial test.
    """
    if count <= 0:
        return 1.0
    if count > trials or chance <= 0:
        return 0.0
    if chance >= 1:
        return 1.0
    if count <= trials * chance:  # the other tail has fewer terms, and rounding does not matter here
        return 1.0 - binomial_tail(trials - count + 1, trials, 1 - chance)
    ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
    term = first = ways + count * log(chance) + (trials - count) * log1p(-chance)
    total = 0.0
    odds = log(chance) - log1p(-chance)
    for successes in range(count, trials + 1):
        if term - first < -_NEGLIGIBLE:
            break
        total += exp(term - first)
        term += odds + log((trials - successes) / (successes + 1)) if successes < trials else -inf
    return min(1.0, exp(first) * total)


def halves_p_value(early: int, late: int) -> float:
    """Return the probability that two equal spans differ at least this much by chance, at the same rate.

    This is the exact two-sided test of two Poisson rates, given their sum (J. Przyborowski and H. Wilenski,
    Biometrika 31, 1940, 313-323).
    """
    return min(1.0, 2 * binomial_tail(max(early, late), early + late, 0.5))


def holm(p_values: Sequence[float], comparisons: int | None = None) -> list[float]:
    """Return the p-values of several comparisons, corrected for their number.

    If no comparison has an effect, the probability that any falls below a level is at most that level (S.
    Holm, Scandinavian Journal of Statistics 6, 1979, 65-70). *comparisons* includes those not worth a test.
    """
    left = len(p_values) if comparisons is None else comparisons
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for place in sorted(range(len(p_values)), key=p_values.__getitem__):
        highest = max(highest, min(1.0, p_values[place] * left))
        corrected[place] = highest
        left -= 1
    return corrected
