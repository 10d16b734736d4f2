"""Deaths from the events of a scheduler without the recorder, with what it and its nannies still know of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from workerdiag.deadline import Deadline
from workerdiag.incidents import WatchedDeath, evidence_about
from workerdiag.model.dask import Client, Method, Reply, is_disallowed
from workerdiag.model.evidence import Event, Evidence
from workerdiag.model.identity import NO_IDENTITY, Identity, identity_of
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.sources.cluster import ClusterSource, queries, state
from workerdiag.sources.cluster.event_evidence import event_evidence
from workerdiag.sources.cluster.losses import last_noted, with_action
from workerdiag.sources.cluster.queries import answer_in_time
from workerdiag.sources.cluster.workers import fetch_identity
from workerdiag.sources.recorder.recorded_deaths import is_recording
from workerdiag.values import evolve, field, frozen
from workerdiag.watch.feed.connection import LATE_S, Connection
from workerdiag.watch.feed.look_handler import LOOK, LookReply, LookRequest, look_installer
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.recorded_death import ClusterFigures, removal_id


@frozen(kw_only=True)
class Cursor:
    """The position up to which the deaths of a cluster were read."""

    #: Identifies the run of the scheduler: a restarted one counts from the beginning.
    epoch: str
    #: Number of the last death or event read, as the scheduler counts them.
    position: int = 0


@frozen(kw_only=True)
class FeedBatch:
    """The result of one question to a scheduler, its recorder, or of reading its events."""

    cursor: Cursor
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: Oldest first.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Ids of those without a report of a nanny.
    unreported: frozenset[str] = frozenset()
    #: Number of deaths or events that were overwritten unread.
    missed_count: int = 0
    figures: ClusterFigures = field(factory=ClusterFigures)
    #: New evidence of a standstill; empty without one.
    standstill: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)
    #: Why the scheduler closes; None: it does not.
    closing_reason: str | None = None
    #: The journal of the scheduler; None: none, or not known.
    journal: str | None = None


#: A closing scheduler answers all questions, and then closes all connections; the answer may arrive later.
_GRACE_S = 0.05
#: Longest wait for a farewell, in seconds: the question lasts this long even if its asker is gone.
LISTEN_S = 10.0

_T = TypeVar("_T")


async def with_farewell(asking: Awaitable[_T], listening: Awaitable[Reply]) -> tuple[_T, str | None]:
    """Return the result of *asking*, and why the scheduler began to close meanwhile; None if unknown.

    It answers *listening* with its ``closing_reason`` as soon as it closes: programs often end soon after a death.
    """
    heard = asyncio.ensure_future(listening)
    try:
        found = await asking
        done, _ = await asyncio.wait({heard}, timeout=_GRACE_S)
    finally:
        heard.cancel()
    if not done or heard.cancelled() or heard.exception() is not None:
        return found, None
    reason = heard.result().get("closing_reason")
    return found, None if reason is None else str(reason)


#: Maximum removals in a batch, which are shortened in one step on the scheduler's event loop.
_MOST = 50
#: Beginnings of an epoch, before the id of the scheduler: positions are counts of events, or times.
_COUNTED, _TIMED = "events", "times"


def removed_worker(
    when: float, close_reason: str | None, who: tuple[object, object, object] | None, message: Reply
) -> WatchedDeath:
    """Return the death of a removal in the scheduler's events; *who* are its process, nanny and name, if known."""
    worker = str(message.get("worker"))
    announced = bool(message.get("expected"))
    pid, nanny, name = who or (None, None, None)
    identity = identity_of(worker=worker, pid=pid, nanny=nanny, name=name)
    is_expected = is_deliberate(announced=announced, close_reason=close_reason)
    own = {name: each for name, each in message.items() if name != "worker"}
    return WatchedDeath(
        id=removal_id(worker, str(message.get("stimulus_id"))[:500]),
        when=when,
        identity=identity,
        is_expected=is_expected,
        is_unannounced=not announced and close_reason is None,
        evidence=() if is_expected else tuple(event_evidence(worker, [(when, own)], {worker: identity})),
    )


class EventReader:
    """Reads the removals of one scheduler, and asks at once for the perishable evidence of unexpected ones."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.perishable = PerishableEvidence(connection)
        self._plain = PlainEvents(connection)
        #: Whether the scheduler answers `LOOK`; None: not tried.
        self._can_look: bool | None = None

    async def look(self, after: Cursor | None, *, wait_s: float, or_recorder: bool) -> FeedBatch | None:
        """Return the removals after a cursor, or of the last `RECENT_S` seconds; wait *wait_s* for the first.

        With *or_recorder* it returns None if there is a recorder, which knows more. Raises TimeoutError.
        """
        wait_s = 0.0 if self.perishable.is_behind else wait_s
        ask = partial(self._reply, after, wait_s=wait_s)
        kind, reply = await answer_in_time(ask, Deadline.after(wait_s + LATE_S))
        if reply["has_recorder"] and or_recorder:
            return None
        deaths = [removed_worker(*each) for each in reply["removals"]]
        told, farewell = await self._with_evidence_or_farewell(deaths, reply)
        return FeedBatch(
            cursor=Cursor(epoch=f"{kind} {reply['scheduler_id']}", position=reply["position"]),
            now=reply["now"],
            deaths=told,
            missed_count=reply["missed_count"],
            figures=ClusterFigures(**reply["figures"]),
            closing_reason=reply["closing_reason"] or farewell,
        )

    async def _with_evidence_or_farewell(
        self, deaths: Sequence[WatchedDeath], reply: LookReply
    ) -> tuple[tuple[WatchedDeath, ...], str | None]:
        """Return the deaths with evidence, and why the scheduler closes if it begins to meanwhile."""
        asking = self.perishable.ask(deaths, known_events=self._plain.entries)
        is_short = not self.perishable.is_behind and all(each.is_expected for each in deaths)
        if is_short or not self._can_look:
            return await asking, None
        at, id_ = reply["position"], reply["scheduler_id"]
        request = LookRequest(since=at, scheduler_id=id_, wait_s=LISTEN_S, most=0, lookback_s=None)
        ask: Method = getattr(self.connection.scheduler, LOOK)
        return await with_farewell(asking, ask(wanted=request))

    async def _reply(self, after: Cursor | None, *, wait_s: float) -> tuple[str, LookReply]:
        if self._can_look is None:
            self._can_look = await self._is_look_installed()
        if self._can_look:
            ask: Method = getattr(self.connection.scheduler, LOOK)
            reply: LookReply = await ask(wanted=self._request(after, _COUNTED, wait_s))
            return _COUNTED, reply
        return _TIMED, await self._plain.ask(self._request(after, _TIMED, wait_s))

    async def _is_look_installed(self) -> bool:
        if not await self.connection.has_same_python():
            return False
        try:
            await self.connection.run_on_scheduler(look_installer(), LOOK)
        except Exception as problem:
            if not is_disallowed(problem):
                raise
            return False
        return True

    def _request(self, after: Cursor | None, kind: str, wait_s: float) -> LookRequest:
        cursor = after or Cursor(epoch="")
        counts, _, scheduler_id = cursor.epoch.partition(" ")
        is_usable = counts == kind
        return LookRequest(
            since=cursor.position if is_usable else 0,
            scheduler_id=scheduler_id if is_usable else "",
            wait_s=wait_s,
            most=_MOST,
            lookback_s=RECENT_S if after is None else None,
        )


#: Seconds between two questions to a scheduler without `LOOK`.
_PLAIN_POLL_S = 5.0
_MAX_KNOWN = 20_000


class PlainEvents:
    """Reads the removals of one scheduler with handlers that every scheduler has.

    For another Python there, or forbidden functions. It is asked every five seconds, for all its events; their
    times, in microseconds, replace their numbers. Whether it closes, and which workers are paused, is not known.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: The events of ``all`` at the last question, oldest first; empty before that.
        self.entries: Sequence[tuple[float, object]] = ()
        #: Process (not known here), nanny and name of workers, by address, including lost ones.
        self._known: dict[str, tuple[object, object, object]] = {}

    async def ask(self, wanted: LookRequest) -> LookReply:
        """Return the removals after a time, at once if there are any, else after ``wait_s`` seconds."""
        deadline = Deadline.after(wanted["wait_s"])
        while True:
            reply = await self._ask_once(wanted)
            if reply["removals"] or reply["has_recorder"] or deadline.is_over:
                return reply
            await asyncio.sleep(deadline.share(at_most_s=_PLAIN_POLL_S).left_s)

    async def _ask_once(self, wanted: LookRequest) -> LookReply:
        identity = await fetch_identity(self._client, most_workers=50)  # an argument since 2025.4.0
        since = wanted["since"] if wanted["scheduler_id"] == identity["id"] else 0
        self._remember(identity["workers"])
        worker_count = int(identity.get("n_workers", len(identity["workers"])))
        self.entries = entries = await queries.fetch_events(self._client, "all")
        now = last_noted(identity["workers"], entries)
        new = [(when, each) for when, each in entries if _position(when) > since]
        ages_s = wanted["lookback_s"]
        not_before = 0.0 if ages_s is None else now - ages_s
        recent = (each for each in with_action(new, "remove-worker") if each[0] >= not_before)
        removals = list(islice(recent, wanted["most"]))
        last = removals[-1][0] if len(removals) == wanted["most"] else max([since / 1e6, *(at for at, _ in new)])
        states: Mapping[str, int] = (await state.count_states(self._client))["states"]
        return {
            "scheduler_id": str(identity["id"]),
            "position": max(since, _position(last)),
            "now": now,
            "removals": [
                (when, await _close_reason(self._client, each), self._known.get(str(each["worker"])), each)
                for when, each in removals
            ],
            # the event of the cursor is kept, unless others have replaced it
            "missed_count": int(bool(since and entries and _position(entries[0][0]) > since)),
            "figures": {
                "worker_count": worker_count,
                "running_worker_count": worker_count,
                "waiting_count": sum(states.get(each, 0) for each in ("no-worker", "queued")),
                "assigned_count": states.get("processing", 0),
            },
            "closing_reason": None,
            "has_recorder": is_recording(await queries.fetch_events(self._client, DEATH_TOPIC)),
        }

    def _remember(self, workers: Mapping[str, Reply]) -> None:
        for address, each in workers.items():
            self._known.pop(address, None)  # the newest last
            self._known[address] = (None, each.get("nanny"), each.get("name"))
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]


async def _close_reason(client: Client, removal: Reply) -> str | None:
    """Return why the worker closes, in its own words; None if it did not say."""
    if removal.get("expected"):
        return None
    events: Sequence[tuple[float, object]] = await queries.fetch_events(client, str(removal.get("worker")))
    reasons = [str(each.get("reason")) for _, each in with_action(events, "closing-worker")]
    return reasons[-1] if reasons else None


def _position(when: float) -> int:
    return round(when * 1e6)


#: Deaths per question: at most this many nannies are asked (`selection.MAX_NANNIES`).
_PER_ROUND = 4
#: Maximum number of waiting deaths; for further ones only the removal is known.
_MAX_WAITING = 200


class PerishableEvidence:
    """Asks like `workerdiag.explain`, for a few deaths at a time, and remembers the evidence."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[str, tuple[Evidence, ...]] = {}
        self._waiting: dict[str, WatchedDeath] = {}

    @property
    def is_behind(self) -> bool:
        """Whether deaths wait to be asked about."""
        return bool(self._waiting)

    async def ask(
        self, deaths: Sequence[WatchedDeath], *, known_events: Sequence[tuple[float, object]] = ()
    ) -> tuple[WatchedDeath, ...]:
        """Return the *deaths*, and earlier ones that waited, with what the scheduler and nannies still have.

        A dozen unexpected ones is asked about at a time, which takes seconds; the others are returned again when
        their evidence is known. Without *known_events*, the scheduler is asked for its events of ``all``.
        """
        for each in deaths:
            if not each.is_expected and each.id not in self._kept and len(self._waiting) < _MAX_WAITING:
                self._waiting[each.id] = each
        asked = [self._waiting.pop(id_) for id_ in list(self._waiting)[: 3 * _PER_ROUND]]
        known = {"events all": known_events} if known_events else {}
        source = ClusterSource(self._client, known=known)  # all rounds share its snapshot of the scheduler
        for begin in range(0, len(asked), _PER_ROUND):
            group = asked[begin : begin + _PER_ROUND]
            source = source.next_round(about=tuple(each.identity for each in group))
            pieces = await source.collect_async(budget_s=5.0)
            self._kept |= {each.id: tuple(_evidence_of(each, pieces)) for each in group}
        told = {
            each.id: evolve(each, evidence=(*each.evidence, *self._kept.get(each.id, ())))
            for each in (*deaths, *asked)
        }
        while len(self._kept) > 100:
            del self._kept[next(iter(self._kept))]
        return tuple(told.values())


def _evidence_of(death: WatchedDeath, pieces: Sequence[Evidence]) -> Iterator[Evidence]:
    others = frozenset(
        each.identity.worker
        for each in pieces
        if isinstance(each, Event) and each.fields.get("action") == "remove-worker" and each.identity.worker
    ) - {death.identity.worker}
    about = (each for each in pieces if _may_be_about(getattr(each, "identity", NO_IDENTITY), death.identity))
    return evidence_about(death, about, others)


def _may_be_about(identity: Identity, victim: Identity) -> bool:
    if identity.worker is not None or identity.pid is not None:
        return identity.same_process(victim)
    if identity.nanny is not None and victim.nanny is not None:
        return identity.nanny == victim.nanny
    return not identity.conflicts_with(victim)
