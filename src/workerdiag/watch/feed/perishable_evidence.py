"""
Perishable evidence: what a scheduler and its nannies still know about a worker that has just died.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

from attrs import evolve

from workerdiag.incidents.log_excerpts import RECORD_TIME, log_records
from workerdiag.incidents.watched_incident import LEAST_KILL_S, WatchedDeath
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Event, Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.asker import Asker
from workerdiag.sources.cluster.evidence import event_evidence

#: Deaths per question: at most this many nannies are asked (`selection.MAX_NANNIES`).
_PER_ROUND = 4
#: Rounds per call, which share one snapshot of the scheduler; further deaths wait for the next call.
_MAX_ROUNDS = 3
#: Maximum number of waiting deaths; for further ones only the removal is known.
_MAX_WAITING = 200
_ROUND_S = 5.0
#: Deaths with remembered evidence, as a question may be repeated.
_MAX_KEPT = 100
#: Log lines within these seconds before and after a death may be about it.
_BEFORE_S, _AFTER_S = 120.0, 60.0
#: The process in messages of nannies (nanny.py, worker_memory.py).
_PID = re.compile(r"Worker process (\d{1,9}) |\(pid=(\d{1,9})\)")
#: Messages of a nanny about the end of a process, and after each end (nanny.py, 2024.8.1 to 2026.8.0).
_END = re.compile(r"Worker process \d{1,9} (?:was killed|exited)")
_FOLLOWERS = ("Unregistering worker", "Restarting worker")
#: Message of the scheduler that it retires workers (scheduler.py, ``retire_workers``).
_ORDER = "Retire worker "


class PerishableEvidence:
    """
    Asks like `workerdiag.explain`, for a few deaths at a time, and remembers the evidence.

    Args:
        client: A connection to the scheduler.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Evidence by the id of the death.
        self._kept: dict[str, tuple[Evidence, ...]] = {}
        self._waiting: dict[str, WatchedDeath] = {}

    @property
    def is_behind(self) -> bool:
        """
        Whether deaths wait to be asked about.
        """
        return bool(self._waiting)

    async def ask(
        self, deaths: Sequence[WatchedDeath], *, known_events: Sequence[tuple[float, object]] = ()
    ) -> tuple[WatchedDeath, ...]:
        """
        Return the *deaths*, the first dozen with evidence, and earlier ones that waited; takes seconds.

        Args:
            deaths: The deaths to ask about.
            known_events: The scheduler's events of ``all``; empty: it is asked for them.
        """
        for each in deaths:
            if each.id not in self._kept and len(self._waiting) < _MAX_WAITING:
                self._waiting[each.id] = each
        asked = [self._waiting.pop(id_) for id_ in list(self._waiting)[: _PER_ROUND * _MAX_ROUNDS]]
        await self._ask_rounds(asked, {"events all": known_events} if known_events else {})
        told = {each.id: self._with_kept(each) for each in (*deaths, *asked)}
        while len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return tuple(told.values())

    async def _ask_rounds(self, deaths: Sequence[WatchedDeath], answered: Reply) -> None:
        source = ClusterSource(self._client, asker=Asker(self._client, answered))
        for begin in range(0, len(deaths), _PER_ROUND):
            group = deaths[begin : begin + _PER_ROUND]
            source = source.next_round(about=tuple(each.identity for each in group))
            pieces = await source.collect_async(budget_s=_ROUND_S)
            self._kept |= {each.id: tuple(_evidence_of(each, pieces)) for each in group}

    def _with_kept(self, death: WatchedDeath) -> WatchedDeath:
        return evolve(death, evidence=(*death.evidence, *self._kept.get(death.id, ())))


def removal_evidence(when: float, message: Reply, identity: Identity) -> tuple[Evidence, ...]:
    """
    Return the scheduler's event as evidence.
    """
    worker = str(identity.worker)
    own = {name: each for name, each in message.items() if name != "worker"}
    return tuple(event_evidence(worker, [(when, own)], {worker: identity}))


def _evidence_of(death: WatchedDeath, pieces: Sequence[Evidence]) -> Iterator[Evidence]:
    """
    Yield the pieces that can be about this death: of logs only the records around it.
    """
    others = frozenset(
        each.identity.worker
        for each in pieces
        if isinstance(each, Event) and each.fields.get("action") == "remove-worker" and each.identity.worker
    ) - {death.identity.worker}
    for piece in pieces:
        if not _may_be_about(getattr(piece, "identity", NO_IDENTITY), death.identity):
            continue
        if isinstance(piece, LogChunk):
            text = piece.data.decode("utf-8", "replace")
            kept = "".join(_records_about(text, death, others))
            if kept:
                yield evolve(piece, data=kept.encode())
        else:
            yield piece


def _may_be_about(identity: Identity, victim: Identity) -> bool:
    if identity.worker is not None or identity.pid is not None:
        return identity.same_process(victim)
    if identity.nanny is not None and victim.nanny is not None:
        return identity.nanny == victim.nanny
    return not identity.conflicts_with(victim)


def _records_about(text: str, death: WatchedDeath, others: Collection[str]) -> Iterator[str]:
    """
    Yield the records that may be about the death: they name the victim, or have its time and name no other.

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
    """
    Whether a record may be about the death: it names the victim, or has its time and names no other.
    """
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
    """
    Whether a record is an order to stop that did not end the worker.

    A worker that stops says so first. This one did not, and was gone before a nanny would have killed it: it
    crashed, or was killed, while its cluster was closing.
    """
    found = RECORD_TIME.match(record) if death.is_unannounced and _ORDER in record else None
    return found is not None and death.when - _utc_timestamp(found[1]) < LEAST_KILL_S


def _utc_timestamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
