"""
How much of a trouble there is: deaths by time and hosts, and when that is worse than people know.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from workerdiag.incidents.alert_incident import WatchedDeath
from workerdiag.rendering.wording import one_line
from workerdiag.sources.addresses import host_of
from workerdiag.watch.alerts import AlertCase
from workerdiag.watch.settings import WatchSettings

#: Hosts that a case keeps.
_MAX_HOSTS = 1000


def with_deaths(case: AlertCase, deaths: Sequence[WatchedDeath], settings: WatchSettings) -> AlertCase:
    """
    The case with more deaths.
    """
    begin, count = case.progress.window_at, case.progress.window_count
    peak = case.progress.peak_count
    for when in sorted(each.when for each in deaths):
        if when >= begin + settings.collect_s:
            begin, count = when, 0
        count += 1
        peak = max(peak, count)
    hosts = frozenset(sorted(case.hosts | hosts_of(deaths))[:_MAX_HOSTS])
    progress = evolve(case.progress, window_at=begin, window_count=count, peak_count=peak)
    return evolve(case, death_count=case.death_count + len(deaths), hosts=hosts, progress=progress)


def escalation_level(case: AlertCase, settings: WatchSettings) -> int:
    """
    How often deaths and hosts reached another multiple of those of the first incident.
    """
    progress = case.progress
    return _powers(progress.peak_count, progress.first_death_count, settings.escalate_factor) + _powers(
        len(case.hosts), progress.first_host_count, settings.escalate_hosts
    )


def hosts_of(deaths: Sequence[WatchedDeath]) -> frozenset[str]:
    """
    The machines that the deaths happened on, as far as they are known.
    """
    named = (each.identity.host or host_of(each.identity.worker) for each in deaths)
    return frozenset(sorted({one_line(host) for host in named if host})[:_MAX_HOSTS])


def _powers(count: float, first: float, factor: float) -> int:
    powers = 0
    while first > 0 and count >= (first := first * factor):
        powers += 1
    return powers
