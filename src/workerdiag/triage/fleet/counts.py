"""
Counts of deaths that causes, hosts and versions all need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address

from workerdiag.model.diagnosis import SURE_ENOUGH
from workerdiag.triage.fleet.losses import JointLoss
from workerdiag.triage.fleet.statistics import Interval, effective_size, wilson_interval
from workerdiag.triage.fleet.values import Period, PeriodCount
from workerdiag.triage.rows import DeathRow

#: Hosts and trends of fewer deaths are not judged.
LEAST_DEATHS = 5
#: What chance alone gives more often than this says nothing.
LEVEL = 0.05

#: The first and the last moment, in seconds since the epoch; None: nobody knows.
Span = tuple[float, float] | None


def sure_cause(death: DeathRow) -> str | None:
    """
    The cause of a death, if it is likelier than not; a guess is none.
    """
    return death.cause if death.probability >= SURE_ENOUGH else None


def main_cause(deaths: Iterable[DeathRow]) -> tuple[str | None, int]:
    """
    The known cause of most of the deaths, and of how many; None: no cause is known.
    """
    known = Counter(cause for each in deaths if (cause := sure_cause(each)) is not None)
    return min(known.items(), key=lambda each: (-each[1], each[0])) if known else (None, 0)


def span_of(deaths: Iterable[DeathRow]) -> Span:
    """
    When the first and the last of the deaths were.
    """
    times = [each.died_at for each in deaths if each.died_at is not None]
    return (min(times), max(times)) if times else None


def cost_of(deaths: Iterable[DeathRow]) -> tuple[float | None, int]:
    """
    The lost compute seconds, and of how many deaths they are known.
    """
    known = [each.lost_compute_s for each in deaths if each.lost_compute_s is not None]
    return (sum(known), len(known)) if known else (None, 0)


def share_interval(share: float, losses: Collection[JointLoss]) -> Interval:
    """
    Where the *share* of all deaths, which are these losses, lies.
    """
    return wilson_interval(share, effective_size(len(each.deaths) for each in losses))


def period_counts(deaths: Iterable[DeathRow], period: Period) -> tuple[PeriodCount, ...]:
    """
    How many deaths there were in each day or week that had one.
    """
    counts = Counter(_begin_of(each.died_at, period) for each in deaths if each.died_at is not None)
    return tuple(PeriodCount(begin=begin, death_count=count) for begin, count in sorted(counts.items()))


def host_of(death: DeathRow) -> str | None:
    """
    The machine, unless it only names itself: ``127.0.0.1`` is another one in each log.
    """
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
