"""The life of a case: how incidents, time and the end of a cluster change it, and the notices that result.

Pure functions without a clock. *now* is a time by the watcher's clock; deaths have times by the scheduler's
clock, and the two are never compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import inf

from attrs import evolve

from workerdiag.incidents.incident import WatchedDeath, WatchedIncident, victim_name
from workerdiag.incidents.state_file_reader import BLIND_KEY
from workerdiag.model.diagnosis import SURE_ENOUGH
from workerdiag.model.vocabulary import NoticeReason
from workerdiag.rendering.wording import one_line
from workerdiag.watch.case_content import escalation_level, hosts_of, with_deaths, with_diagnosis
from workerdiag.watch.settings import WatchSettings
from workerdiag.watch.watched_case import CaseProgress, WatchedCase

#: Key of the case for deaths that are not judged yet.
SETTLING_KEY = "settling"

__all__ = [
    "BLIND_KEY",
    "SETTLING_KEY",
    "Step",
    "WatchSettings",
    "blind_case",
    "case_id",
    "confirmed",
    "ended",
    "rejudged",
    "settling_case",
    "with_incident",
    "with_time",
]

#: Who works on a case.
_MAX_NAME_CHARS = 100
#: A case, and the reason for a notice now; None: there is nothing to say.
Step = tuple[WatchedCase, NoticeReason | None]


def case_id(cluster: str, key: str) -> str:
    """Return the id of the case of *key* on *cluster*: twelve hexadecimal digits, equal for all watchers."""
    return hashlib.sha256(f"{cluster}\n{key}".encode("utf-8", "backslashreplace")).hexdigest()[:12]


def with_incident(
    case: WatchedCase | None, incident: WatchedIncident, cluster: str, now: float, settings: WatchSettings
) -> Step:
    """Return the case with one more settled incident, and the reason for a notice now.

    Args:
        case: The case of this key on this cluster, open or not; None if there was none. A settling case moves
            to
            the key of the incident, as no notice has gone out for it.
        incident: The incident; all its deaths are new to the case.
        cluster: Name of the cluster.
        now: Time by the watcher's clock.
        settings: When to speak.
    """
    if case is None or case.state == "settling":
        return _spoken(_opened(None, incident, cluster, now), "new", now)
    if case.is_open:
        grown = with_diagnosis(with_deaths(case, incident.deaths, settings), incident.diagnosis)
        progress = evolve(grown.progress, quiet_s=0.0, seen_at=now)
        last_at = max(case.last_death_at, incident.when, *(each.when for each in incident.deaths))
        return _news(evolve(grown, progress=progress, last_death_at=last_at), now, settings)
    closed_at = case.progress.closed_at
    opened = _opened(case, incident, cluster, now)
    if closed_at is not None and now - closed_at <= settings.recur_s:
        return _spoken(evolve(opened, state="recurring"), "recurring", now)
    return _spoken(opened, "new", now)


def rejudged(case: WatchedCase, incident: WatchedIncident, now: float, settings: WatchSettings) -> Step:
    """Return the case after its deaths were judged again with late evidence.

    It keeps its key. A notice says, once for each cause, that a new cause is now certain.
    """
    return _news(with_diagnosis(case, incident.diagnosis), now, settings) if case.is_open else (case, None)


def with_time(case: WatchedCase, now: float, *, seen_at: float, settings: WatchSettings) -> Step:
    """Return the case as time passes: resolved, with a reminder, or with news that had to wait.

    Args:
        case: Any case.
        now: Time by the watcher's clock.
        seen_at: When the scheduler last answered, by the same clock.
        settings: When to speak.
    """
    if not case.is_open or case.state == "settling":
        return case, None
    seen = _seen(case, seen_at, settings)
    is_blind_case = case.key == BLIND_KEY
    if seen.progress.quiet_s >= settings.resolve_s or (is_blind_case and seen_at > _last_seen(case)):
        progress = evolve(seen.progress, closed_at=now)
        return _spoken(evolve(seen, state="resolved", progress=progress), "resolved", now)
    is_seen = is_blind_case or now - seen_at <= settings.blind_s
    if is_seen and not seen.progress.confirmed_by and now - _last_word(case) >= settings.remind_s:
        return _spoken(seen, "reminder", now)
    return _news(seen, now, settings)


def confirmed(case: WatchedCase, by: str) -> WatchedCase:
    """Return the case with somebody at work on it: no reminders until it is opened again."""
    return evolve(case, progress=evolve(case.progress, confirmed_by=one_line(by)[:_MAX_NAME_CHARS]))


def ended(case: WatchedCase, now: float) -> Step:
    """Return the case after its cluster is gone: whether its trouble is over is not known."""
    if not case.is_open:
        return case, None
    progress = evolve(case.progress, closed_at=now)
    gone = evolve(case, state="ended", progress=progress)
    return (gone, None) if case.state == "settling" else _spoken(gone, "ended", now)


def blind_case(cluster: str, now: float, problem: str, previous: WatchedCase | None = None) -> WatchedCase:
    """Return the case of a blind watcher, advanced to its notice; `with_time` says that it sees again.

    Args:
        cluster: Name of the cluster.
        now: Time by the watcher's clock.
        problem: Why it is blind, for a person: ``the scheduler has not answered for 2 minutes``.
        previous: The earlier blind case of this cluster, if any. If it is still open, it is returned
            unchanged,
            and there is nothing to say.
    """
    if previous is not None and previous.is_open:
        return previous
    case = WatchedCase(
        id=case_id(cluster, BLIND_KEY),
        key=BLIND_KEY,
        cluster=cluster,
        state="firing",
        title=one_line(problem),
        opened_at=now,
        last_death_at=now,
        sequence=previous.sequence if previous is not None else 0,
        progress=CaseProgress(seen_at=now),
    )
    return _spoken(case, "blind", now)[0]


def settling_case(cluster: str, deaths: Sequence[WatchedDeath]) -> WatchedCase | None:
    """Return a case for display with the deaths that are not judged yet; None if no death is unexpected."""
    lost = [each for each in deaths if not each.is_expected]
    if not lost:
        return None
    return WatchedCase(
        id=case_id(cluster, SETTLING_KEY),
        key=SETTLING_KEY,
        cluster=cluster,
        state="settling",
        title="not judged yet, evidence still arrives",
        opened_at=min(each.when for each in lost),
        last_death_at=max(each.when for each in lost),
        death_count=len(lost),
        hosts=hosts_of(lost),
        first_victim=victim_name(lost[0].identity),
    )


def _opened(case: WatchedCase | None, incident: WatchedIncident, cluster: str, now: float) -> WatchedCase:
    """Return a case at its first incident, or at the first one after it was closed; its numbers continue."""
    deaths = incident.deaths
    hosts = hosts_of(deaths)
    opened = WatchedCase(
        id=case.id if case is not None else case_id(cluster, incident.key),
        key=case.key if case is not None else incident.key,
        cluster=cluster,
        state="firing",
        title="",
        opened_at=min((incident.when, *(each.when for each in deaths))),
        last_death_at=max((incident.when, *(each.when for each in deaths))),
        death_count=len(deaths),
        hosts=hosts,
        first_victim=victim_name(deaths[0].identity) if deaths else "",
        sequence=case.sequence if case is not None else 0,
        bundle=case.bundle if case is not None else "",
        progress=CaseProgress(
            seen_at=now,
            first_death_count=len(deaths),
            first_host_count=len(hosts),
            window_at=incident.when,
            window_count=len(deaths),
            peak_count=len(deaths),
        ),
    )
    return with_diagnosis(opened, incident.diagnosis)


def _seen(case: WatchedCase, seen_at: float, settings: WatchSettings) -> WatchedCase:
    """Return the case with the time for which the cluster was seen alive, without blind periods."""
    step_s = seen_at - _last_seen(case)
    if -settings.blind_s <= step_s <= 0:
        return case
    seen_s = step_s if 0 < step_s <= settings.blind_s else 0.0  # else blind, or the clock was set
    progress = evolve(case.progress, seen_at=seen_at, quiet_s=case.progress.quiet_s + seen_s)
    return evolve(case, progress=progress)


def _news(case: WatchedCase, now: float, settings: WatchSettings) -> Step:
    """Return the news since the last notice, if that is long enough ago."""
    if 0 <= now - _last_word(case) < settings.collect_s:
        return case, None
    told = case.progress.told_causes
    if _is_likely(case) and case.cause not in told:
        return _spoken(case, "changed", now)
    level = escalation_level(case, settings)
    if level > case.progress.told_level:
        worse = evolve(case, state="escalating", progress=evolve(case.progress, told_level=level))
        return _spoken(worse, "escalating", now)
    return case, None


def _spoken(case: WatchedCase, reason: NoticeReason, now: float) -> Step:
    told = case.progress.told_causes
    if _is_likely(case) and case.cause is not None and case.cause not in told:
        told = (*told, case.cause)
    progress = evolve(case.progress, told_causes=told)
    return evolve(case, sequence=case.sequence + 1, last_notice_at=now, progress=progress), reason


def _is_likely(case: WatchedCase) -> bool:
    return case.cause is not None and case.probability >= SURE_ENOUGH


def _last_seen(case: WatchedCase) -> float:
    return case.progress.seen_at if case.progress.seen_at is not None else -inf


def _last_word(case: WatchedCase) -> float:
    return case.last_notice_at if case.last_notice_at is not None else -inf
