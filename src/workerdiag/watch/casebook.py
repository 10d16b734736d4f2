"""The cases of a cluster: each step changes deaths, cases and outbox in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, evolve, field

from workerdiag.errors import BundleError, describe_error
from workerdiag.guard import guarded
from workerdiag.incidents import BLIND_KEY, WatchedDeath, WatchedIncident, is_likely
from workerdiag.model.vocabulary import NoticeReason
from workerdiag.watch.case import (
    WatchedCase,
    WatchSettings,
    blind_case,
    case_beside,
    case_id,
    case_of_guess,
    ended,
    rejudged,
    settling_case,
    with_incident,
    with_time,
    with_unexplained,
    without_deaths,
)
from workerdiag.watch.feed.events import Cursor, FeedBatch
from workerdiag.watch.notices import notice_of
from workerdiag.watch.store import Store


@define(eq=False, kw_only=True)
class Casebook:
    """The cases of one cluster in the store, and their notices."""

    store: Store
    settings: WatchSettings
    #: The sinks of each notice.
    sink_names: Callable[[], Iterable[str]]
    #: Called when there is something to deliver.
    wake: Callable[[], None]
    cluster: str
    #: Why bundles could not be saved, until somebody takes it.
    bundle_problems: list[Exception] = field(factory=list, init=False)
    #: Deaths that are in a case and came again, as when a nanny reports minutes later, with the id of the case.
    #: If they are lost, as nothing writes them down, the first judgement stays.
    late: dict[str, tuple[WatchedDeath, str]] = field(factory=dict, init=False)
    _has_said: bool = field(default=False, init=False)
    _pruned_at: float = field(default=0.0, init=False)

    def cursor(self) -> Cursor | None:
        """Return the cursor of an earlier watcher of the cluster; None if there was none."""
        return self.store.cursor(self.cluster)

    def pending(self) -> tuple[WatchedDeath, ...]:
        """Return the deaths that are not judged yet, oldest first."""
        return self.store.pending_deaths(self.cluster)

    def to_judge(self) -> tuple[WatchedDeath, ...]:
        """Return the deaths that are not judged yet, and those with late evidence."""
        return (*self.pending(), *(death for death, _ in self.late.values()))

    def receive(self, batch: FeedBatch) -> int:
        """Store the deaths of a batch and its cursor. Returns the number of new deaths."""
        with self.store.transaction():
            new_count = self.add(batch.deaths)
            self.store.set_cursor(self.cluster, batch.cursor)
        return new_count

    def add(self, deaths: Sequence[WatchedDeath]) -> int:
        """Store deaths from another place. Returns the number of new deaths."""
        case_ids = self.store.case_ids([each.id for each in deaths])
        again = (each for each in deaths if each.id in case_ids and each.evidence and not each.is_expected)
        self.late |= {each.id: (each, case_ids[each.id]) for each in again}
        return self.store.add_deaths(self.cluster, deaths) if deaths else 0

    def conclude(self, incidents: Sequence[WatchedIncident], deaths: Sequence[WatchedDeath], now: float) -> None:
        """Put judged incidents into cases, and say what is new; *deaths* are then judged."""
        bundles = {each.key: path for each in incidents if (path := self._saved_bundle(each))}
        with self._transaction():
            for incident in sorted(incidents, key=lambda each: each.is_unexplained):
                staying = self._take_late_evidence(incident, now)
                fresh = tuple(each for each in incident.deaths if each.id not in staying)
                if fresh or not incident.deaths:
                    when = fresh[0].when if fresh else incident.when
                    incident_of_fresh = evolve(incident, deaths=fresh, when=when)
                    self._add_incident(incident_of_fresh, now, bundles.get(incident.key, ""))
            told = {each.id for incident in incidents for each in incident.deaths}
            others = (each for each in deaths if each.id not in told and each.id not in self.late)
            self.store.assign([each.id for each in others], None)
        for each in deaths:
            self.late.pop(each.id, None)

    def pass_time(self, now: float, *, seen_at: float | None, problem: str | None) -> None:
        """Say what is due by time. The scheduler last answered at *seen_at*; *problem* says why we are blind."""
        with self._transaction():
            before = self.store.case(case_id(self.cluster, BLIND_KEY))
            if problem is not None and (blind := blind_case(self.cluster, now, problem, before)) is not before:
                self._keep(before, blind, "blind", now)
            for case in self._open_cases():
                if seen_at is not None and not (case.key == BLIND_KEY and problem is not None):
                    self._keep(case, *with_time(case, now, seen_at=seen_at, settings=self.settings), now)
        if not 0 <= now - self._pruned_at < 86_400:
            self.store.prune()
            self._pruned_at = now

    def end(self, now: float) -> None:
        """Say for each open case that its cluster is gone."""
        with self._transaction():
            for case in self._open_cases():
                self._keep(case, *ended(case, now), now)

    def cases(self) -> tuple[WatchedCase, ...]:
        """Return all cases of the cluster, the last one for deaths that settle."""
        settling = settling_case(self.cluster, self.pending())
        return (*self.store.cases(self.cluster), *([settling] if settling is not None else []))

    def _saved_bundle(self, incident: WatchedIncident) -> str:
        """Save the evidence of an incident that opens a case, and return its path; empty for others."""
        id_, folder = case_id(self.cluster, incident.key), self.settings.bundle_folder
        known = self.store.case(id_)
        if folder is None or (known is not None and known.is_open):
            return ""
        base = self.settings.bundle_url.rstrip("/")
        with guarded("saving a death bundle", self.bundle_problems.append):
            moment = datetime.fromtimestamp(incident.when, UTC)
            path = incident.diagnosis.save(folder / f"{id_}-{moment:%Y%m%dT%H%M%SZ}.zip")
            return f"{base}/{Path(path).name}" if base else str(path)
        return ""

    def _add_incident(self, incident: WatchedIncident, now: float, bundle: str) -> None:
        known = self.store.case(case_id(self.cluster, incident.key))
        others = () if known is not None and known.is_open else self._open_cases()
        known = case_of_guess(incident, others, self.settings) or known
        beside = case_beside(incident, others, self.settings)
        if beside is not None:
            case = with_unexplained(beside, incident, now)
            self._keep(beside, case, None, now)
        else:
            case, reason = with_incident(known, incident, self.cluster, now, self.settings)
            self._keep(known, evolve(case, bundle=bundle) if bundle else case, reason, now)
        self.store.assign([each.id for each in incident.deaths], case.id)

    def _take_late_evidence(self, incident: WatchedIncident, now: float) -> frozenset[str]:
        """Update cases with the new judgement of their deaths. Returns the ids of the deaths that stay.

        If at least half of the deaths of a case are judged again, the new judgement holds for the case.
        Otherwise the deaths leave it whose cause was not known, and those whose cause has its own open case.
        """
        staying: frozenset[str] = frozenset()
        own = self.store.case(case_id(self.cluster, incident.key))
        late = {each.id: self.late[each.id][1] for each in incident.deaths if each.id in self.late}
        for id_ in dict.fromkeys(late.values()):
            ids = frozenset(death_id for death_id, its_case in late.items() if its_case == id_)
            known = self.store.case(id_)
            if known is None or not known.is_open or not is_likely(incident.diagnosis):
                leaving: frozenset[str] = frozenset()
            elif own is not None and own.is_open and own.id != id_ and 2 * len(ids) < known.death_count:
                leaving = ids
            else:
                leaving = ids & known.unexplained_ids
            if known is not None and leaving:
                self._keep(known, without_deaths(known, leaving), None, now)
            elif known is not None and 2 * len(ids - known.unexplained_ids) >= known.death_count > 0:
                self._keep(known, *rejudged(known, incident, now, self.settings), now)
            staying |= ids - leaving
        return staying

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._has_said = False
        with self.store.transaction():
            yield
        if self._has_said:
            self.wake()

    def _open_cases(self) -> list[WatchedCase]:
        return [case for case in self.store.cases(self.cluster) if case.is_open]

    def _keep(self, before: WatchedCase | None, case: WatchedCase, reason: NoticeReason | None, now: float) -> None:
        if case != before:
            self.store.put_case(case)
        if reason is not None:
            self._has_said = True
            self.store.outbox.enqueue(notice_of(case, reason, now), self.sink_names())


def made_folder(path: Path) -> Path:
    """Return the folder, created if necessary for its owner only; raises BundleError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        why = "it is a file" if path.is_file() else describe_error(problem)
        raise BundleError(str(path), why, "name a folder that can be written") from None
    return path
