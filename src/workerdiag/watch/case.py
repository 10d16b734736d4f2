"""Cases, and the life of a case: how incidents, time and the end of a cluster change it.

Pure functions without a clock. *now* is a time by the watcher's clock; deaths have times by the scheduler's
clock, and the two are never compared.

If many workers end at once, a nanny may not learn how its worker ended, or is not asked in time. Such a death
is not news while a case fires to which it may belong: it is listed there with an unknown cause.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs.validators import ge

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.deadline import MOST_TIMES
from workerdiag.incidents import BLIND_KEY, WatchedDeath, WatchedIncident, is_likely, title_of, victim_name
from workerdiag.model.diagnosis import SURE_ENOUGH
from workerdiag.model.evidence import Event
from workerdiag.model.identity import host_of
from workerdiag.model.vocabulary import CaseState, NoticeReason, Verdict
from workerdiag.rendering.outline import outline
from workerdiag.rendering.wording import one_line
from workerdiag.settings import seconds, setting
from workerdiag.values import evolve, field, frozen


def _configured_folder() -> Path | None:
    folder = setting("watch.bundles")
    return Path(folder).expanduser() if folder else None


@frozen(kw_only=True)
class WatchSettings:
    """The settings of a watcher. Some defaults come from ``workerdiag.watch`` in Dask's configuration."""

    #: Seconds that deaths wait for more evidence before they are judged.
    settle_s: float = 10.0
    #: Minimum seconds between a notice and one that only adds to it (escalating, changed), and the length of
    #: the windows in which deaths are counted.
    collect_s: float = field(factory=lambda: seconds("watch.collect"))
    #: Seconds without a death of its key, on a cluster seen alive, after which a case is resolved.
    resolve_s: float = field(factory=lambda: seconds("watch.resolve"))
    #: Seconds after its resolution within which a case recurs; later it is new.
    recur_s: float = 7 * 86_400.0
    #: Seconds without seeing the cluster after which the watcher is blind.
    blind_s: float = 120.0
    #: Escalate when the deaths within one window exceed this multiple of those of the first incident, ...
    escalate_factor: float = field(default=10.0, validator=ge(1.1))
    #: ... or when the hosts do so; each power of these numbers is one more level.
    escalate_hosts: float = field(default=2.0, validator=ge(1.1))
    #: Folder for a death bundle of each case that is opened; None: no bundles.
    bundle_folder: Path | None = field(factory=_configured_folder)
    #: URL at which that folder is served, for links; empty: notices name the path.
    bundle_url: str = field(factory=lambda: setting("watch.bundles-url") or "")


@frozen(kw_only=True)
class CaseProgress:
    """The internal state of a case since it was opened, or opened again; notices do not show it."""

    #: When the cluster was last seen alive, by the watcher's clock.
    seen_at: float = 0.0
    #: Seconds for which it was seen alive since the last death of this key.
    quiet_s: float = 0.0
    #: When the case was resolved or ended, by the watcher's clock.
    closed_at: float | None = None
    #: Deaths and hosts of the first incident.
    first_death_count: int = 0
    first_host_count: int = 0
    #: Deaths are counted in windows of equal length: start and count of the last one, and the highest count.
    window_at: float = 0.0
    window_count: int = 0
    peak_count: int = 0
    #: How often workers died again after the first time, and how many finished results were lost in all.
    rounds: int = 0
    lost_results: int = 0
    #: The escalation level of the last notice.
    told_level: int = 0
    #: The certain causes in notices, in order.
    told_causes: tuple[str, ...] = ()


@frozen(kw_only=True)
class WatchedCase:
    """All incidents of one key on one cluster. A notice is a case as it was when the watcher spoke of it.

    In a notice, texts are free of secrets and of characters that act on a terminal.
    """

    #: The same for the same key and cluster, for all watchers.
    id: str
    key: str
    cluster: str
    state: CaseState
    #: The likeliest cause of the last judgement. The key stays when it changes.
    cause: str | None = None
    #: The title of the cause, or what else is wrong.
    what: str
    probability: float = 0.0
    blame: Verdict = "unknown"
    #: What to do, one sentence each, most helpful first.
    advice: tuple[str, ...] = ()
    #: What `workerdiag.rescue` did about it, one sentence each.
    acts: tuple[str, ...] = ()
    #: Seconds since the epoch.
    opened_at: float
    last_death_at: float
    #: Since the case was opened, or opened again.
    death_count: int = field(default=0, validator=ge(0))
    #: Ids of deaths without a known cause that came with these; they are not counted.
    unexplained_ids: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    #: Address or name of the worker that died first.
    first_victim: str = ""
    #: Key of the task that Dask blames, or the only one on the first victim, by the last judgement.
    task: str = ""
    #: Number of the last notice, from 1; 0: none yet.
    sequence: int = field(default=0, validator=ge(0))
    #: When that was, in seconds since the epoch.
    at: float = 0.0
    #: Path or URL of the death bundle, if one was saved.
    bundle: str = ""
    #: What follows has the value of its default but in a notice. Case, opening time and number, the same in every
    #: delivery to any sink.
    notice_id: str = ""
    reason: NoticeReason = "new"
    #: One line of at most 120 characters: ``3 workers of prod died: memory limit (93%)``.
    title: str = ""
    #: Several lines for a terminal or a chat: what, how sure, how many, where, what to do.
    text: str = ""
    #: By name: ``cause`` the address of the cause's page, or the command that shows it; ``bundle`` where the
    #: evidence is.
    links: Mapping[str, str] = field(factory=dict, hash=False)
    progress: CaseProgress = CaseProgress()
    #: `Diagnosis.to_json` of the last incident.
    diagnosis_json: str = field(default="", repr=False)

    @property
    def unexplained_count(self) -> int:
        """Number of deaths without a known cause that came with these."""
        return len(self.unexplained_ids)

    @property
    def is_open(self) -> bool:
        """Whether it may have further notices without another incident."""
        return self.state not in ("resolved", "ended")

    @property
    def is_churn(self) -> bool:
        """Whether workers died again and again and took finished results with them: work is done twice."""
        return self.progress.rounds >= _CHURN_ROUNDS and self.progress.lost_results > 0


#: Key of the case for deaths that are not judged yet.
SETTLING_KEY = "settling"
_MAX_ADVICE, _MAX_HOSTS = 5, 1000
#: So many times workers die after the first time before it is said that they do so again and again.
_CHURN_ROUNDS = 3
#: A case, and the reason for a notice now; None: there is nothing to say.
Step = tuple[WatchedCase, NoticeReason | None]


def case_id(cluster: str, key: str) -> str:
    """Return the id of the case of *key* on *cluster*: twelve hexadecimal digits, equal for all watchers."""
    return hashlib.sha256(f"{cluster}\n{key}".encode("utf-8", "backslashreplace")).hexdigest()[:12]


def with_incident(
    case: WatchedCase | None, incident: WatchedIncident, cluster: str, now: float, settings: WatchSettings
) -> Step:
    """Return the case with one more settled incident, and the reason for a notice now.

    *case* is that of this key on this cluster, open or not; None if there was none. All deaths of the incident
    are new to it.
    """
    if case is not None and case.is_open:
        grown = with_diagnosis(with_deaths(case, incident.deaths, settings), incident.diagnosis)
        rounds = grown.progress.rounds + bool(incident.deaths)
        progress = evolve(grown.progress, quiet_s=0.0, seen_at=now, rounds=rounds)
        last_at = max(case.last_death_at, incident.when, *(each.when for each in incident.deaths))
        return _news(evolve(grown, progress=progress, last_death_at=last_at), now, settings)
    closed_at = case.progress.closed_at if case is not None else None
    opened = _opened(case, incident, cluster, now)
    if closed_at is not None and now - closed_at <= settings.recur_s:
        return _spoken(evolve(opened, state="recurring"), "recurring", now)
    return _spoken(opened, "new", now)


def rejudged(case: WatchedCase, incident: WatchedIncident, now: float, settings: WatchSettings) -> Step:
    """Return the case, with its key, after its deaths were judged again: a new cause that is certain is news."""
    return _news(with_diagnosis(case, incident.diagnosis), now, settings) if case.is_open else (case, None)


def with_time(case: WatchedCase, now: float, *, seen_at: float, settings: WatchSettings) -> Step:
    """Return the case as time passes; the scheduler last answered at *seen_at*, by the watcher's clock."""
    if not case.is_open:
        return case, None
    seen = _seen(case, seen_at, settings)
    is_blind_case = case.key == BLIND_KEY
    if seen.progress.quiet_s >= settings.resolve_s or (is_blind_case and seen_at > case.progress.seen_at):
        progress = evolve(seen.progress, closed_at=now)
        return _spoken(evolve(seen, state="resolved", progress=progress), "resolved", now)
    return _news(seen, now, settings)


def ended(case: WatchedCase, now: float) -> Step:
    """Return the case after its cluster is gone: whether its trouble is over is not known."""
    if not case.is_open:
        return case, None
    progress = evolve(case.progress, closed_at=now)
    return _spoken(evolve(case, state="ended", progress=progress), "ended", now)


def blind_case(cluster: str, now: float, problem: str, previous: WatchedCase | None = None) -> WatchedCase:
    """Return the case, advanced to its notice, of a watcher that is blind; a *previous* open one stays."""
    if previous is not None and previous.is_open:
        return previous
    case = WatchedCase(
        id=case_id(cluster, BLIND_KEY),
        key=BLIND_KEY,
        cluster=cluster,
        state="firing",
        what=one_line(problem),
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
        what="not diagnosed yet, evidence is still arriving",
        opened_at=min(each.when for each in lost),
        last_death_at=max(each.when for each in lost),
        death_count=len(lost),
        hosts=hosts_of(lost),
        first_victim=victim_name(lost[0].identity),
    )


def _opened(case: WatchedCase | None, incident: WatchedIncident, cluster: str, now: float) -> WatchedCase:
    """Return a case at its first incident, or at the first one after it was closed; its numbers continue."""
    deaths = incident.deaths
    hosts, times = hosts_of(deaths), [incident.when, *(each.when for each in deaths)]
    key = case.key if case is not None else incident.key
    opened = WatchedCase(
        id=case_id(cluster, key),
        key=key,
        cluster=cluster,
        state="firing",
        what="",
        opened_at=min(times),
        last_death_at=max(times),
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
            lost_results=sum(map(_lost_results, deaths)),
        ),
    )
    return with_diagnosis(opened, incident.diagnosis)


def _seen(case: WatchedCase, seen_at: float, settings: WatchSettings) -> WatchedCase:
    """Return the case with the time for which the cluster was seen alive, without blind periods."""
    step_s = seen_at - case.progress.seen_at
    if -settings.blind_s <= step_s <= 0:
        return case
    seen_s = step_s if 0 < step_s <= settings.blind_s else 0.0  # else blind, or the clock was set
    progress = evolve(case.progress, seen_at=seen_at, quiet_s=case.progress.quiet_s + seen_s)
    return evolve(case, progress=progress)


def _news(case: WatchedCase, now: float, settings: WatchSettings) -> Step:
    """Return the news since the last notice, if that is long enough ago."""
    if case.sequence and 0 <= now - case.at < settings.collect_s:
        return case, None
    if _untold_cause(case):
        return _spoken(case, "changed", now)
    level = escalation_level(case, settings)
    if level > case.progress.told_level:
        worse = evolve(case, state="escalating", progress=evolve(case.progress, told_level=level))
        return _spoken(worse, "escalating", now)
    return case, None


def _spoken(case: WatchedCase, reason: NoticeReason, now: float) -> Step:
    progress = evolve(case.progress, told_causes=(*case.progress.told_causes, *_untold_cause(case)))
    return evolve(case, sequence=case.sequence + 1, at=now, progress=progress), reason


def _untold_cause(case: WatchedCase) -> tuple[str, ...]:
    """Return its cause if that is certain and in no notice yet; else nothing."""
    is_news = case.probability >= SURE_ENOUGH and case.cause not in case.progress.told_causes
    return (case.cause,) if case.cause is not None and is_news else ()


def with_diagnosis(case: WatchedCase, diagnosis: Diagnosis) -> WatchedCase:
    """Return the case with the content of *diagnosis*."""
    top, lead = diagnosis.top, dict(outline(diagnosis).lead)
    mitigations = top.mitigations[:_MAX_ADVICE] if is_likely(diagnosis) and top is not None else ()
    advice = [  # the first as at the top of a report, the others with their conditions
        one_line(f"If {each.when}: {each.do}" if number and each.when else each.do)
        for number, each in enumerate(mitigations)
    ]
    running = diagnosis.deaths[0].executing if diagnosis.deaths else None
    only_task = running[0] if running is not None and len(running) == 1 else ""
    return evolve(
        case,
        cause=top.id if top is not None else None,
        what=title_of(diagnosis),
        probability=top.probability if top is not None else 0.0,
        blame=diagnosis.blame.verdict,
        task=one_line(diagnosis.blame.task or only_task),
        advice=tuple(advice) or (lead["Do now"],),
        acts=tuple(map(one_line, diagnosis.acts[-_MAX_ADVICE:])),
        diagnosis_json=diagnosis.to_json(),
    )


def with_deaths(case: WatchedCase, deaths: Sequence[WatchedDeath], settings: WatchSettings) -> WatchedCase:
    """Return the case with more deaths."""
    begin, count = case.progress.window_at, case.progress.window_count
    peak = case.progress.peak_count
    for when in sorted(each.when for each in deaths):
        if when >= begin + settings.collect_s:
            begin, count = when, 0
        count += 1
        peak = max(peak, count)
    hosts = frozenset(sorted(case.hosts | hosts_of(deaths))[:_MAX_HOSTS])
    lost = case.progress.lost_results + sum(map(_lost_results, deaths))
    progress = evolve(case.progress, window_at=begin, window_count=count, peak_count=peak, lost_results=lost)
    return evolve(case, death_count=case.death_count + len(deaths), hosts=hosts, progress=progress)


def escalation_level(case: WatchedCase, settings: WatchSettings) -> int:
    """Return the multiples of its first incident that a case has reached, of which a churn is one."""
    progress = case.progress
    worse = _powers(progress.peak_count, progress.first_death_count, settings.escalate_factor)
    return worse + _powers(len(case.hosts), progress.first_host_count, settings.escalate_hosts) + case.is_churn


def _lost_results(death: WatchedDeath) -> int:
    """Return how many finished results were lost with a worker, as the scheduler's event says."""
    removals = (each.fields for each in death.evidence if isinstance(each, Event))
    name = "lost-computed-tasks"
    counts = (fields.get(f"{name}_count", fields.get(name)) for fields in removals)
    return max((each for each in counts if isinstance(each, int)), default=0)


def hosts_of(deaths: Sequence[WatchedDeath]) -> frozenset[str]:
    """Return the known hosts of the deaths."""
    named = (each.identity.host or host_of(each.identity.worker) for each in deaths)
    return frozenset(sorted({one_line(host) for host in named if host})[:_MAX_HOSTS])


def _powers(count: float, first: float, factor: float) -> int:
    powers = 0
    while first > 0 and count >= (first := first * factor):
        powers += 1
    return powers


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
    unexplained_count = len(incident.deaths) + sum(case.unexplained_count for *_, case in near)
    if unexplained_count > sum(case.death_count for *_, case in near):
        return None
    return min(near, key=lambda each: each[:2])[-1]


def case_of_guess(
    incident: WatchedIncident, cases: Iterable[WatchedCase], settings: WatchSettings
) -> WatchedCase | None:
    """Return the case with the cause of *incident* as its guess; of a standstill, the open one without a cause."""
    if not is_likely(incident.diagnosis):
        return None
    if not incident.deaths:
        standstills = (case for case in cases if case.is_open and not case.death_count and case.key != BLIND_KEY)
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
        case, death_count=max(0, case.death_count - own_count), unexplained_ids=case.unexplained_ids - ids
    )


def _guess(incident: WatchedIncident) -> str | None:
    top = incident.diagnosis.top
    return top.id if top is not None else None


def _is_near(incident: WatchedIncident, case: WatchedCase, settings: WatchSettings) -> bool:
    within_s = MOST_TIMES * settings.settle_s
    return case.is_open and case.death_count > 0 and _distance_s(incident, case) <= within_s


def _distance_s(incident: WatchedIncident, case: WatchedCase) -> float:
    """Return the seconds between the deaths of both, by the scheduler's clock; 0 if they overlap."""
    last_at = max(each.when for each in incident.deaths)
    return max(0.0, case.opened_at - last_at, incident.when - case.last_death_at)
