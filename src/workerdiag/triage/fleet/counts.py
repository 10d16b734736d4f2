"""Counts of deaths for causes, hosts and versions."""

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
