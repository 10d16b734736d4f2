"""Deaths without a known cause, and the case with which they are counted.

If many workers end at once, a nanny may not learn how its worker ended, or is not asked in time. Such a death
is not news while a case fires to which it may belong: it is listed there with an unknown cause.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from workerdiag.incidents.incident import MOST_TIMES, WatchedIncident, is_likely
from workerdiag.incidents.state_file_reader import BLIND_KEY
from workerdiag.model.diagnosis import SURE_ENOUGH
from workerdiag.watch.case_content import hosts_of
from workerdiag.watch.settings import WatchSettings
from workerdiag.watch.watched_case import WatchedCase


def case_beside(
    incident: WatchedIncident, cases: Iterable[WatchedCase], settings: WatchSettings
) -> WatchedCase | None:
    """Return the case with the nearest deaths to those of *incident*; None if the incident is news.

    It is news if a cause is likely; if an exit is known and no case has the best guess as its cause; if
    nobody died of a likely cause on the same machines within the window in which deaths are judged together;
    or if such deaths are fewer than the unexplained ones.
    """
    if is_likely(incident.diagnosis) or not incident.deaths:
        return None
    hosts = hosts_of(incident.deaths)
    guess = _guess(incident)
    near = [
        (_distance_s(incident, case), -case.death_count, case)
        for case in cases
        if _is_near(incident, case, settings)
        and case.probability >= SURE_ENOUGH
        and hosts <= case.hosts
        and (incident.is_unexplained or guess == case.cause)
    ]
    unexplained_count = len(incident.deaths) + sum(len(case.unexplained_ids) for *_, case in near)
    if unexplained_count > sum(case.death_count for *_, case in near):
        return None
    return min(near, key=lambda each: each[:2])[-1]


def case_of_guess(
    incident: WatchedIncident, cases: Iterable[WatchedCase], settings: WatchSettings
) -> WatchedCase | None:
    """Return the case with the cause of *incident* as its guess; None if there is none.

    For a standstill, return the open one without a known cause.
    """
    if not is_likely(incident.diagnosis):
        return None
    if not incident.deaths:
        standstills = (
            case for case in cases if case.is_open and not case.death_count and case.key != BLIND_KEY
        )
        return next((case for case in standstills if case.probability < SURE_ENOUGH), None)
    cause = _guess(incident)
    return next((case for case in cases if case.cause == cause and _is_near(incident, case, settings)), None)


def with_unexplained(case: WatchedCase, incident: WatchedIncident, now: float) -> WatchedCase:
    """Return the case with the deaths of *incident* as unexplained ones. It stays open while they continue."""
    return evolve(
        case,
        unexplained_ids=case.unexplained_ids | {each.id for each in incident.deaths},
        last_death_at=max(case.last_death_at, *(each.when for each in incident.deaths)),
        progress=evolve(case.progress, quiet_s=0.0, seen_at=now),
    )


def without_deaths(case: WatchedCase, ids: frozenset[str]) -> WatchedCase:
    """Return the case without deaths that turned out to have another cause."""
    own_count = len(ids - case.unexplained_ids)
    return evolve(
        case,
        death_count=max(0, case.death_count - own_count),
        unexplained_ids=case.unexplained_ids - ids,
    )


def _guess(incident: WatchedIncident) -> str | None:
    top = incident.diagnosis.top
    return top.id if top is not None else None


def _is_near(incident: WatchedIncident, case: WatchedCase, settings: WatchSettings) -> bool:
    """Whether the deaths of both are within the window in which deaths are judged together."""
    within_s = MOST_TIMES * settings.settle_s
    return case.is_open and case.death_count > 0 and _distance_s(incident, case) <= within_s


def _distance_s(incident: WatchedIncident, case: WatchedCase) -> float:
    """Return the seconds between the deaths of both, by the scheduler's clock; 0 if they overlap."""
    last_at = max(each.when for each in incident.deaths)
    return max(0.0, case.opened_at - last_at, incident.when - case.last_death_at)
