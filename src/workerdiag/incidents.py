"""Turns settled deaths into incidents: one for each trouble, with its diagnosis.

All deaths are judged together first, in their context. Then the deaths of each cause are judged again by
their own evidence, for the final diagnosis and its key. Of a log, that are the records that may be about them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import DEFAULT_RULEBOOK, answer, read_arguments
from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.diagnosis import SURE_ENOUGH, Death
from workerdiag.model.evidence import Event, Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.incident import NameIndex
from workerdiag.model.normalize import EventValue
from workerdiag.model.rules import Rulebook
from workerdiag.model.signals import UNREADABLE_STATUS
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.rendering.wording import one_line
from workerdiag.scoring.findings import exit_class, fingerprint
from workerdiag.sources.recorder.death_evidence import evidence_of_one
from workerdiag.values import evolve, field, frozen
from workerdiag.wire.recorded_death import RecordedDeath, identity_of_death

#: ``PRAGMA application_id`` of our files: "wdia" in ASCII.
APPLICATION_ID: Final = 0x77646961
#: ``PRAGMA user_version``, increased with each change that older versions cannot read.
SCHEMA_VERSION: Final = 1
#: Key of the case that is open while the watcher is blind.
BLIND_KEY: Final = "blind"
#: A nanny kills a worker four seconds after asking it to stop (0.8 * 5 s, ``kill`` in nanny.py). An earlier
#: silent end has another reason.
LEAST_KILL_S = 3.0


@frozen(kw_only=True)
class WatchedDeath:
    """A worker that the scheduler lost, with the first evidence."""

    #: The same in every reading of the death, from any place.
    id: str
    #: When the scheduler noticed it, in seconds since the epoch by its clock.
    when: float
    identity: Identity
    #: Whether it was requested: a deliberate stop is not an incident.
    is_expected: bool = False
    #: Whether the scheduler lost it before it announced its end.
    is_unannounced: bool = False
    #: Evidence about this death alone; empty if it must be asked for.
    evidence: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)


def watched_deaths(deaths: Iterable[RecordedDeath]) -> tuple[WatchedDeath, ...]:
    """Return the deaths with their evidence, oldest first; deliberate stops have none, as they are not judged."""
    known = sorted(deaths, key=lambda each: each.time)
    return tuple(_watched_death(each, known) for each in known)


def _watched_death(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> WatchedDeath:
    record = death.record
    is_expected = record is not None and is_deliberate(
        announced=record.is_expected, close_reason=record.close_reason
    )
    is_unannounced = record is not None and not is_expected and record.close_reason is None
    evidence = () if is_expected else tuple(evidence_of_one(death, deaths))
    if is_unannounced and _was_killed_while_awake(death):
        evidence = tuple(each for each in evidence if not _is_order(each))
    return WatchedDeath(
        id=death.id,
        when=death.time,
        identity=identity_of_death(death),
        is_expected=is_expected,
        is_unannounced=is_unannounced,
        evidence=evidence,
    )


def _was_killed_while_awake(death: RecordedDeath) -> bool:
    """Whether a SIGKILL ended a worker whose event loop was running just before.

    A nanny kills only a worker that does not stop, and a running event loop announces the end as soon as it
    is asked. So this worker was killed by something else, and the request came too late.
    """
    record, report = death.record, death.report
    ending = report.exit if report is not None else None
    if record is None or ending is None or ending.signal != 9:
        return False
    age_s = record.last_heartbeat.age_s
    return age_s is not None and 0 <= age_s < LEAST_KILL_S


def _is_order(piece: Evidence) -> bool:
    return isinstance(piece, Event) and piece.fields.get("action") == "asked-to-stop"


@frozen(kw_only=True)
class WatchedIncident:
    """Deaths of one trouble that belong together, with a common diagnosis; or a standstill."""

    #: `Diagnosis.fingerprint`: equal for repeats of the same trouble.
    key: str
    diagnosis: Diagnosis
    #: Oldest first: the first one is the first victim. Empty for a standstill.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Its start, in seconds since the epoch.
    when: float
    #: Whether neither an exit nor a cause is known of any of the deaths.
    is_unexplained: bool = False


def is_likely(diagnosis: Diagnosis) -> bool:
    """Whether its first cause is more likely than not; else it is a guess."""
    top = diagnosis.top
    return diagnosis.outcome == "explained" and top is not None and top.probability >= SURE_ENOUGH


def title_of(diagnosis: Diagnosis) -> str:
    """Return the likeliest cause in one line, or that it is not known."""
    top = diagnosis.top
    if top is None:
        return "cause unknown"
    title = one_line(top.title)
    return title if is_likely(diagnosis) else f"cause unknown, best guess: {title}"


def victim_name(identity: Identity) -> str:
    """Return a short name of the worker: its address, else its name, else its process id."""
    pid = f"pid {identity.pid}" if identity.pid is not None else ""
    return one_line(identity.worker or identity.name or pid)


def is_deliberate_stop(death: Death, book: Rulebook) -> bool:
    """Whether it was requested, by a rule too; a stop by the platform (SIGTERM from outside) is not."""
    if death.stop_requested:
        return True
    cause = book.cause(death.cause)
    is_stop = cause is not None and cause.ends == "stopped" and cause.blame != "platform"
    return is_stop and death.probability >= 0.8


#: Maximum number of deaths judged together: `explain` evaluates no more one by one.
_TOGETHER = 200
#: Minimum time for each step, in seconds, even if it is late: a wrong key is worse than a late one.
_LEAST_S = 2.0


#: A death, and what all deaths together say of it; of one that their diagnosis does not list, nothing.
Judged = tuple[WatchedDeath, Death]


def judge(deaths: Sequence[WatchedDeath], *, timeout_s: float) -> list[WatchedIncident]:
    """Return the incidents of *deaths*, the oldest first, without deliberate stops. Never raises."""
    lost = sorted((each for each in deaths if not each.is_expected), key=lambda each: each.when)
    if not lost:
        return []
    deadline = Deadline.after(timeout_s)
    with guarded("judging deaths") as judging:
        incidents = _incidents(lost, DEFAULT_RULEBOOK.within(deadline)[0], deadline)
    return incidents if judging.problem is None else [_incident(lost, _failed(judging.problem))]


def judge_standstill(pieces: Sequence[Evidence], *, when: float, timeout_s: float) -> WatchedIncident | None:
    """Return the incident of a standstill since *when*; None if nothing has to change. Never raises."""
    if not pieces:
        return None
    diagnosis = _explained(pieces, Deadline.after(timeout_s))
    if diagnosis.outcome == "no-death" or diagnosis.blame.verdict == "nobody":
        return None
    return WatchedIncident(key=_key(diagnosis), diagnosis=diagnosis, when=when)


def _incidents(lost: Sequence[WatchedDeath], book: Rulebook, deadline: Deadline) -> list[WatchedIncident]:
    judged = [
        each
        for begin in range(0, len(lost), _TOGETHER)
        for each in _judged(lost[begin : begin + _TOGETHER], deadline)
        if not is_deliberate_stop(each[1], book)
    ]
    by_key: dict[str, WatchedIncident] = {}
    samples: dict[str, list[WatchedDeath]] = {}
    for group in _groups(judged):
        members = [death for death, _ in group]
        sample = _sample(group)
        diagnosis = _explained_sample(sample, len(members), deadline)
        if diagnosis.outcome == "no-death":
            continue
        key = _key(diagnosis)
        if key in by_key:
            members = sorted((*by_key[key].deaths, *members), key=lambda each: each.when)
            sample = samples[key]
            diagnosis = _explained_sample(sample, len(members), deadline)
        samples[key] = sample
        is_unexplained = not is_likely(diagnosis) and not any(_exit_of(found) for _, found in group)
        is_unexplained &= key not in by_key or by_key[key].is_unexplained
        by_key[key] = evolve(_incident(members, diagnosis), key=key, is_unexplained=is_unexplained)
    return sorted(by_key.values(), key=lambda each: each.when)


def _judged(lost: Sequence[WatchedDeath], deadline: Deadline) -> Iterator[Judged]:
    """Yield each death with the process that all deaths together gave it, without what logs say of others.

    By its own evidence alone, the exit of a worker that died beside it could be taken for its own.
    """
    diagnosis = _explained(_evidence(lost), deadline)
    for death, found in pair_deaths(lost, diagnosis.deaths):
        if death.identity.pid is not None or found.identity.pid is None:
            yield death, found
        else:
            known = evolve(death, identity=death.identity.merged_with(found.identity))
            yield evolve(known, evidence=tuple(evidence_about(known, known.evidence))), found


def _groups(judged: Sequence[Judged]) -> list[list[Judged]]:
    """Group the deaths by cause, with their consequences, and the others by exit."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    had_task: dict[str, list[Judged]] = {}
    for each in judged:
        if _cause_of(each[1]) is not None:
            for task in _tasks_of(each[1]):
                had_task.setdefault(task, []).append(each)
    for each in judged:
        cause = _cause_of(each[1]) or _cause_before(each, had_task)
        groups.setdefault(("cause", cause) if cause else ("ending", _exit_of(each[1])), []).append(each)
    return list(groups.values())


def _cause_of(found: Death) -> str | None:
    """Return its own cause, if likely enough: a guess does not distinguish deaths."""
    return found.cause if found.probability >= SURE_ENOUGH else None


def _exit_of(found: Death) -> str:
    """Return the class of its exit; empty if unknown: a nanny that could not learn it says status 255."""
    is_known = found.signal is not None or found.status not in (None, UNREADABLE_STATUS)
    return exit_class([found]) if is_known else ""


def _tasks_of(found: Death) -> frozenset[str]:
    return frozenset((*found.assigned, *(found.executing or ())))


def _cause_before(judged: Judged, had_task: Mapping[str, Sequence[Judged]]) -> str | None:
    """Return the cause of the first death, at most ten seconds ago, of a worker with one of the same tasks."""
    when = _when(judged)
    before = []
    for task in _tasks_of(judged[1]):
        of_task = had_task.get(task, ())  # the oldest first
        place = bisect_left(of_task, when - 10, key=_when)
        before += [each for each in of_task[place : place + 1] if _when(each) <= when]
    return _cause_of(min(before, key=_when)[1]) if before else None


def _when(judged: Judged) -> float:
    return judged[0].when


def _sample(group: Sequence[Judged]) -> list[WatchedDeath]:
    """Return the deaths of a group on which its diagnosis rests."""
    known = [each for each in group if _cause_of(each[1]) is not None]
    return [death for death, _ in (known or group)[:20]]


def _evidence(deaths: Sequence[WatchedDeath]) -> list[Evidence]:
    return merge_log_excerpts(piece for death in deaths for piece in death.evidence or (_removal_of(death),))


def _removal_of(death: WatchedDeath) -> Event:
    topic = death.identity.worker or "recorder"
    fields: dict[str, EventValue] = {"action": "remove-worker", "expected": False}
    return Event(topic=topic, fields=fields, when=death.when, identity=death.identity)


def _explained_sample(sample: Sequence[WatchedDeath], count: int, deadline: Deadline) -> Diagnosis:
    return _explained(_evidence(sample), deadline, about=sample, more_deaths=count - len(sample))


def _explained(
    evidence: Sequence[Evidence], deadline: Deadline, about: Sequence[WatchedDeath] = (), more_deaths: int = 0
) -> Diagnosis:
    """Return the diagnosis of the evidence; logs may report other deaths than those that it is *about*."""
    arguments = read_arguments(sources=[_CollectedEvidence(evidence)], timeout=max(deadline.left_s, _LEAST_S))
    identities = tuple(each.identity for each in about)
    return answer(evolve(arguments, about=identities, more_deaths=more_deaths)).diagnosis


def _failed(problem: Exception) -> Diagnosis:
    summary = f"workers died, and workerdiag could not determine why: {describe_error(problem)}"
    return Diagnosis(outcome="unknown", summary=summary)


def _incident(deaths: Sequence[WatchedDeath], diagnosis: Diagnosis) -> WatchedIncident:
    key, when = _key(diagnosis), deaths[0].when
    return WatchedIncident(key=key, diagnosis=diagnosis, deaths=tuple(deaths), when=when)


def _key(diagnosis: Diagnosis) -> str:
    """Return the fingerprint; a failed diagnosis has none."""
    return diagnosis.fingerprint or fingerprint(diagnosis.outcome, diagnosis.causes, diagnosis.deaths, None)


@frozen
class _CollectedEvidence:
    evidence: Sequence[Evidence]
    name: str = "collected evidence"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        del budget_s
        yield from self.evidence


def pair_deaths(watched: Sequence[WatchedDeath], found: Sequence[Death]) -> Iterator[Judged]:
    """Yield each watched death with that of the diagnosis, the nearest in time, of which each is used once."""
    by_name = NameIndex.by_identity(found)
    taken: set[int] = set()
    for each in watched:
        named = (death for death in by_name.find(each.identity) if id(death) not in taken)
        same = [death for death in named if each.identity.same_process(death.identity)]
        apart_s = {id(death): inf if death.when is None else abs(each.when - death.when) for death in same}
        nearest = min(same, key=lambda death: apart_s[id(death)], default=Death(identity=NO_IDENTITY))
        taken.add(id(nearest))
        yield each, nearest


#: Log lines within these seconds before and after a death may be about it.
_BEFORE_S, _AFTER_S = 120.0, 60.0
#: The process in messages of nannies (nanny.py, worker_memory.py).
_PID = re.compile(r"Worker process (\d{1,9}) |\(pid=(\d{1,9})\)")
#: Messages of a nanny about the end of a process, and after each end (nanny.py, 2024.8.1 to 2026.8.0).
_END = re.compile(r"Worker process \d{1,9} (?:was killed|exited)")
_FOLLOWERS = ("Unregistering worker", "Restarting worker")


def evidence_about(
    death: WatchedDeath, pieces: Iterable[Evidence], others: Collection[str] = ()
) -> Iterator[Evidence]:
    """Yield the pieces, but of logs only the records that may be about the death, not one of the *others*."""
    for piece in pieces:
        if not isinstance(piece, LogChunk):
            yield piece
        elif kept := "".join(_records_about(death, piece.data.decode("utf-8", "replace"), others)):
            yield evolve(piece, data=kept.encode())


def _records_about(death: WatchedDeath, text: str, others: Collection[str]) -> Iterator[str]:
    """Yield the records of a log that may be about the death: they name it, or have its time and name no other.

    In a log of several nannies, messages that follow each end name nobody; those after another end are
    dropped.
    """
    records = [
        (each, _is_around(each, death, others))
        for each in log_records(text)
        if not _is_unanswered_order(each, death)
    ]
    is_shared = any(_END.search(record) and not is_about for record, is_about in records)
    awaited = set(() if is_shared else _FOLLOWERS)
    for record, is_about in records:
        kind = next((each for each in _FOLLOWERS if each in record), None)
        if is_about and _END.search(record):
            awaited = {*_FOLLOWERS}
        if is_about and (kind is None or kind in awaited):
            yield record
        if is_shared and kind:
            awaited.discard(kind)


def _is_around(record: str, death: WatchedDeath, others: Collection[str]) -> bool:
    """Whether a record may be about the death: it names the victim, or has its time and names no other."""
    victim = death.identity
    if victim.worker is not None and victim.worker in record:
        return True
    pids = {int(pid) for found in _PID.findall(record) for pid in found if pid}
    if victim.pid is not None and pids:
        return victim.pid in pids
    found = RECORD_TIME.match(record)
    if found is None or any(each in record for each in others):
        return False
    return -_BEFORE_S <= _utc_timestamp(found[1]) - death.when <= _AFTER_S


def _is_unanswered_order(record: str, death: WatchedDeath) -> bool:
    """Whether a record is an order to stop that did not end the worker.

    A worker that stops says so first. This one did not, and was gone before a nanny would have killed it: it
    crashed, or was killed, while its cluster was closing.
    """
    is_order = death.is_unannounced and "Retire worker " in record  # scheduler.py, ``retire_workers``
    found = RECORD_TIME.match(record) if is_order else None
    return found is not None and death.when - _utc_timestamp(found[1]) < LEAST_KILL_S


def _utc_timestamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


#: Format of the time of a record in `workerdiag.sources.cluster.session`, in UTC.
RECORD_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} - ")


def log_records(text: str) -> Iterator[str]:
    """Yield the records of a log, each with its continuation lines."""
    record = ""
    for line in text.splitlines(keepends=True):
        if RECORD_TIME.match(line) and record:
            yield record
            record = ""
        record += line
    if record:
        yield record


def merge_log_excerpts(pieces: Iterable[Evidence]) -> list[Evidence]:
    """Merge the excerpts of each log: each record once, in order of time.

    A record that repeats within a millisecond stays as often as in the excerpt with the most copies.
    """
    merged: list[Evidence] = []
    excerpts: dict[LogChunk, tuple[int, Counter[str]]] = {}
    for piece in pieces:
        text = piece.data.decode("utf-8", "replace") if isinstance(piece, LogChunk) else ""
        if not isinstance(piece, LogChunk) or not RECORD_TIME.match(text):
            merged.append(piece)
            continue
        place, counts = excerpts.setdefault(evolve(piece, data=b""), (len(merged), Counter()))
        if place == len(merged):
            merged.append(piece)
        counts |= Counter(log_records(text))
    for log, (place, counts) in excerpts.items():
        records = sorted(counts.elements(), key=lambda record: record[: len("2026-11-21 10:02:03,123")])
        merged[place] = evolve(log, data="".join(records).encode())
    return merged
