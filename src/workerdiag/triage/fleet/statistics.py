"""The statistics of a fleet report: intervals of shares, and tests corrected for multiple comparisons.

They need only the standard library. Each method names its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, inf, lgamma, log, log1p, sqrt

from attrs import field, frozen
from attrs.validators import and_, ge, le

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
    (R. G. Newcombe, Statistics in Medicine 17, 1998, 857-872).

    Args:
        share: The observed share, from 0 to 1.
        size: More than 0; for dependent observations their `effective_size`.
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
    term = _log_binomial(count, trials, chance)
    total, first = 0.0, term
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
    Holm, Scandinavian Journal of Statistics 6, 1979, 65-70).

    Args:
        p_values: The p-value of each comparison made.
        comparisons: The number of comparisons, including those not worth a test; at least as many as
            *p_values*.
    """
    left = len(p_values) if comparisons is None else comparisons
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for place in sorted(range(len(p_values)), key=p_values.__getitem__):
        highest = max(highest, min(1.0, p_values[place] * left))
        corrected[place] = highest
        left -= 1
    return corrected


def _log_binomial(count: int, trials: int, chance: float) -> float:
    ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
    return ways + count * log(chance) + (trials - count) * log1p(-chance)
