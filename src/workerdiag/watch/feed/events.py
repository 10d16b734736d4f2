"""Reads deaths from the events of a scheduler without the recorder, with further evidence that it still has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attrs import field, frozen

from workerdiag.deadline import Deadline
from workerdiag.incidents.incident import WatchedDeath
from workerdiag.model.dask import Method, Reply, is_disallowed
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.cluster.queries import answer_in_time
from workerdiag.watch.feed.connection import LATE_S, Connection
from workerdiag.watch.feed.death_feed import Cursor, Look
from workerdiag.watch.feed.farewell import LISTEN_S, with_farewell
from workerdiag.watch.feed.look_handler import LOOK, LookReply, LookRequest, look_installer
from workerdiag.watch.feed.perishable_evidence import PerishableEvidence, removal_evidence
from workerdiag.watch.feed.plain_events import PlainEvents
from workerdiag.wire.recorded_death import removal_id
from workerdiag.wire.watch_answer import ClusterFigures

#: Maximum removals in a batch, which are shortened in one step on the scheduler's event loop.
_MOST = 50
#: Beginnings of an epoch, before the id of the scheduler: positions are counts of events, or times.
_COUNTED, _TIMED = "events", "times"


@frozen
class Removed:
    """A removal in the scheduler's events."""

    when: float
    #: Why the worker closes, in its own words; None: not known.
    close_reason: str | None
    #: Its process, nanny and name; None: not known.
    who: tuple[object, object, object] | None
    message: Reply = field(hash=False)

    def death(self) -> WatchedDeath:
        """Return the death, with the removal as its only evidence."""
        worker = str(self.message.get("worker"))
        announced = bool(self.message.get("expected"))
        pid, nanny, name = self.who or (None, None, None)
        identity = identity_of(worker=worker, pid=pid, nanny=nanny, name=name)
        is_expected = is_deliberate(announced=announced, close_reason=self.close_reason)
        return WatchedDeath(
            id=removal_id(worker, str(self.message.get("stimulus_id"))[:500]),
            when=self.when,
            identity=identity,
            is_expected=is_expected,
            is_unannounced=not announced and self.close_reason is None,
            evidence=() if is_expected else removal_evidence(self.when, self.message, identity),
        )


class EventReader:
    """Reads the removals of one scheduler, and asks at once for the perishable evidence of unexpected ones.

    Args:
        client: A connection to the scheduler.
        lookback_s: Without a cursor, removals of the last seconds are returned, at most this many.
    """

    def __init__(self, client: Connection, *, lookback_s: float) -> None:
        self._client = client
        self._lookback_s = lookback_s
        self._perishable = PerishableEvidence(client)
        self._plain = PlainEvents(client)
        #: Whether the scheduler answers `LOOK`; None: not tried.
        self._can_look: bool | None = None

    async def look(self, after: Cursor | None, *, wait_s: float, or_recorder: bool) -> Look | None:
        """Return the removals after a cursor; without one, those of the last seconds. None: there is a recorder.

        Args:
            after: The cursor.
            wait_s: How long to wait for a removal.
            or_recorder: Whether to return None if there is a recorder, which knows more.

        Raises:
            TimeoutError: The scheduler does not answer in time.
        """
        wait_s = 0.0 if self.is_behind else wait_s
        ask = partial(self._reply, after, wait_s=wait_s)
        kind, reply = await answer_in_time(ask, Deadline.after(wait_s + LATE_S))
        if reply["has_recorder"] and or_recorder:
            return None
        deaths = [Removed(*each).death() for each in reply["removals"]]
        told, farewell = await self._with_evidence_or_farewell(deaths, reply)
        return Look(
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
        asking = self.with_evidence(deaths, known_events=self._plain.entries)
        is_short = not self.is_behind and all(each.is_expected for each in deaths)
        if is_short or not self._can_look:
            return await asking, None
        request: LookRequest = {
            "since": reply["position"],
            "scheduler_id": reply["scheduler_id"],
            "wait_s": LISTEN_S,
            "most": 0,
            "lookback_s": None,
        }
        ask: Method = getattr(self._client.scheduler, LOOK)
        return await with_farewell(asking, ask(wanted=request))

    async def with_evidence(
        self, deaths: Sequence[WatchedDeath], *, known_events: Sequence[tuple[float, object]] = ()
    ) -> tuple[WatchedDeath, ...]:
        """Return the deaths, unexpected ones with the evidence that the scheduler and its nannies still have.

        At most a dozen are asked about at a time. The others are returned again when their evidence is known.
        """
        wanted = [each for each in deaths if not each.is_expected]
        told = await self._perishable.ask(wanted, known_events=known_events)
        return tuple({each.id: each for each in (*deaths, *told)}.values())

    @property
    def is_behind(self) -> bool:
        """Whether deaths wait to be asked about, so that the next question must not wait."""
        return self._perishable.is_behind

    async def _reply(self, after: Cursor | None, *, wait_s: float) -> tuple[str, LookReply]:
        """Return how the scheduler counts, and its reply."""
        if self._can_look is None:
            self._can_look = await self._is_look_installed()
        if self._can_look:
            ask: Method = getattr(self._client.scheduler, LOOK)
            reply: LookReply = await ask(wanted=self._request(after, _COUNTED, wait_s))
            return _COUNTED, reply
        return _TIMED, await self._plain.ask(self._request(after, _TIMED, wait_s))

    async def _is_look_installed(self) -> bool:
        """Install the handler of `LOOK`; False if our functions cannot or may not run."""
        if not await self._client.has_same_python():
            return False
        try:
            await self._client.run_on_scheduler(look_installer(), LOOK)
        except Exception as problem:
            if not is_disallowed(problem):
                raise
            return False
        return True

    def _request(self, after: Cursor | None, kind: str, wait_s: float) -> LookRequest:
        counts, _, scheduler_id = after.epoch.partition(" ") if after is not None else ("", "", "")
        is_usable = after is not None and counts == kind
        return LookRequest(
            since=after.position if after is not None and is_usable else 0,
            scheduler_id=scheduler_id if is_usable else "",
            wait_s=wait_s,
            most=_MOST,
            lookback_s=self._lookback_s if after is None else None,
        )
