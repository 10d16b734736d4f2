"""Perishable evidence: what a scheduler and its nannies still know about a worker that has just died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

from workerdiag.incidents.incident import WatchedDeath
from workerdiag.incidents.judge import records_about
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Event, Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.evidence import event_evidence
from workerdiag.sources.cluster.queries import Asker

#: Deaths per question: at most this many nannies are asked (`selection.MAX_NANNIES`).
_PER_ROUND = 4
#: Rounds per call, which share one snapshot of the scheduler; further deaths wait for the next call.
_MAX_ROUNDS = 3
#: Maximum number of waiting deaths; for further ones only the removal is known.
_MAX_WAITING = 200
_ROUND_S = 5.0
#: Deaths with remembered evidence, as a question may be repeated.
_MAX_KEPT = 100


class PerishableEvidence:
    """Asks like `workerdiag.explain`, for a few deaths at a time, and remembers the evidence.

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
        """Whether deaths wait to be asked about."""
        return bool(self._waiting)

    async def ask(
        self, deaths: Sequence[WatchedDeath], *, known_events: Sequence[tuple[float, object]] = ()
    ) -> tuple[WatchedDeath, ...]:
        """Return the *deaths*, the first dozen with evidence, and earlier ones that waited; takes seconds.

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
    """Return the scheduler's event as evidence."""
    worker = str(identity.worker)
    own = {name: each for name, each in message.items() if name != "worker"}
    return tuple(event_evidence(worker, [(when, own)], {worker: identity}))


def _evidence_of(death: WatchedDeath, pieces: Sequence[Evidence]) -> Iterator[Evidence]:
    """Yield the pieces that can be about this death: of logs only the records around it."""
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
            kept = "".join(records_about(death, text, others))
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
