"""
The statistics of a fleet report: intervals of shares, and tests that many comparisons do not fool.

Standard library only; each method is named with its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, inf, lgamma, log, log1p, sqrt

from attrs import field, frozen
from attrs.validators import and_, ge, le

#: Both ends of a standard normal distribution beyond this have 5 % together.
_Z_95 = 1.959963984540054
#: A term this much smaller than the sum so far, in powers of e, changes no digit that anybody sees.
_NEGLIGIBLE = 40.0

_share = and_(ge(0.0), le(1.0))


@frozen(kw_only=True)
class Interval:
    """
    Where a share lies with 95 % confidence, from 0 to 1.
    """

    low: float = field(validator=_share)
    high: float = field(validator=_share)


def wilson_interval(share: float, size: float) -> Interval:
    """
    The interval of a *share* that was seen in a sample of this many independent observations.

    Wilson's score interval (E. B. Wilson, Journal of the American Statistical Association 22, 1927, 209-212).
    It stays within 0 and 1 and holds for small samples, where the share plus or minus two standard errors
    does not (R. G. Newcombe, Statistics in Medicine 17, 1998, 857-872).

    Args:
        share: From 0 to 1.
        size: More than 0; `effective_size` of observations that are not independent.
    """
    z2 = _Z_95**2
    center = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = _Z_95 / (1 + z2 / size) * sqrt(share * (1 - share) / size + z2 / (4 * size**2))
    return Interval(low=max(0.0, min(share, center - half)), high=min(1.0, max(share, center + half)))


def effective_size(group_sizes: Iterable[int]) -> float:
    """
    How many independent observations tell as much as these groups, whose members all say the same.

    Kish's approximation, the square of the sum over the sum of squares (L. Kish, Survey Sampling, 1965).
    """
    sizes = list(group_sizes)
    return sum(sizes) ** 2 / sum(each**2 for each in sizes)


def binomial_tail(count: int, trials: int, chance: float) -> float:
    """
    How likely at least *count* of this many *trials* succeed, each with the same *chance*.

    The exact binomial test, on one side.
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
    """
    How likely counts of two equal spans differ at least so much by chance, if nothing has changed.

    The exact test of two Poisson rates, given their sum, on both sides (J. Przyborowski and H. Wilenski,
    Biometrika 31, 1940, 313-323).
    """
    return min(1.0, 2 * binomial_tail(max(early, late), early + late, 0.5))


def holm(p_values: Sequence[float], comparisons: int | None = None) -> list[float]:
    """
    The p-values of several comparisons, corrected so that all together are rarely wrong.

    Where there is nothing to find in any of them, one or more fall below a level at most that often (S. Holm,
    Scandinavian Journal of Statistics 6, 1979, 65-70).

    Args:
        p_values: One for each comparison that was made.
        comparisons: How many there were, where some were not worth a test; at least as many as *p_values*.
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
