"""The feed of a live cluster, with or without the recorder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attrs import evolve, frozen

from workerdiag.deadline import in_thread
from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError, describe_error
from workerdiag.model.evidence import Evidence
from workerdiag.model.process_end import RECENT_S
from workerdiag.watch.feed.connection import Connection, Target, read_target
from workerdiag.watch.feed.death_feed import Cursor, FeedBatch, Look, StoredDeaths
from workerdiag.watch.feed.events import EventReader
from workerdiag.watch.feed.farewell import with_farewell
from workerdiag.watch.feed.journals import read_journal
from workerdiag.watch.feed.peer import PeerCheck
from workerdiag.watch.feed.recorder import NoRecorderError, listen_to_recorder, look_at_recorder
from workerdiag.watch.feed.standstill import StandstillWatch

#: Seconds of waiting tasks after which there is a standstill: clusters need a while to grow.
STANDSTILL_S = 60.0
_JOURNAL_S = 20.0
#: Seconds before the last answer of a scheduler from which its journal may be unread.
_OVERLAP_S = 60.0
#: The same if the time of its last answer is not known, after a restart of the watcher.
_UNKNOWN_S = 24 * 3600.0
#: A scheduler stopped by a signal may start again. Any other reason is the end of the cluster.
_SIGNAL = "signal-"
#: Number of schedulers of a cluster whose last answers are remembered.
_MAX_SCHEDULERS = 100


@frozen
class _LastWord:
    #: The scheduler's clock.
    now: float
    #: Where it appends its records; None: nowhere, or not known.
    journal: str | None


class SchedulerFeed:
    """The deaths of one cluster. It registers no client, connects again by itself, and keeps no cluster alive.

    A death is returned when its nanny has reported it, or a second after the removal, and again, with the
    same id, when more becomes known. Without the recorder it has the evidence that the scheduler and its
    nannies still have; for many deaths at once, that comes with later batches. A restarted scheduler has
    another epoch: everything that it knows is returned.

    Args:
        target: The scheduler.
        journal: Where the scheduler appends its records, if it does not say so itself, or not as seen from
            here: a path or an fsspec URL (``workerdiag.recorder.append-to``).
        lookback_s: Without a cursor, deaths of the last seconds are returned, at most this many.
        standstill_s: Seconds of waiting tasks, while nothing runs, after which there is a standstill.
    """

    def __init__(
        self,
        target: Target,
        *,
        journal: str | None = None,
        lookback_s: float = RECENT_S,
        standstill_s: float = STANDSTILL_S,
    ) -> None:
        self._target = target
        self._journal = journal
        self._lookback_s = lookback_s
        self._standstill = StandstillWatch(least_s=standstill_s)
        self._connection: Connection | None = None
        self._events: EventReader | None = None
        self._peer = PeerCheck()
        #: Whether the recorder is asked; and whether there is one of an unknown version.
        self._is_recorded = self._is_unknown_recorder = False
        #: The last answer of each scheduler, by epoch; the newest is the last.
        self._last_words: dict[str, _LastWord] = {}
        #: Address of the scheduler that said that it was closed on purpose.
        self._ended_address: str | None = None

    @property
    def cluster(self) -> str:
        """Name of the cluster for people."""
        return self._target.cluster_name

    async def poll(self, after: Cursor | None, *, wait_s: float) -> FeedBatch:
        """Return the deaths since *after*, at once if there are any, else after at most *wait_s* seconds.

        Without a cursor it returns at once.

        Raises:
            SchedulerUnreachableError: The scheduler does not answer; it may again.
            ClusterEndedError: The scheduler or the cluster object says that the cluster was closed on
                purpose.
        """
        if self._connection is None and self._target.is_closed:
            raise ClusterEndedError(self._target.last_address or self.cluster)
        address = await self._target.address()
        wait_s = 0.0 if after is None else max(0.0, wait_s)
        if (due_in_s := self._standstill.due_in_s) is not None:
            wait_s = min(wait_s, due_in_s)
        try:
            connection, events = await self._connect(address)
            await self._peer.check_again(connection)
            look = await self._look(connection, events, after, wait_s=wait_s)
            standstill = await self._standstill.evidence(look.figures, connection, now=look.now)
        except Exception as problem:  # noqa: BLE001  a scheduler that goes can be noticed in many ways
            told = await self._peer.explain(self._connection, problem)
            await self.close()
            self._raise_if_ended(address)
            raise SchedulerUnreachableError(address, told) from None
        self._peer.answered(address)
        return self._batch(look, standstill, address)

    async def stored(self, after: Cursor | None) -> StoredDeaths:
        """Return the deaths in the journal of a scheduler that is gone; some of them may be known.

        Empty if there is no journal that can be found from here.

        Raises:
            OSError: The journal exists and cannot be read.
        """
        last = self._last_words.get(after.epoch) if after is not None else None
        said = [last] if last is not None else reversed(self._last_words.values())
        journal = self._journal or next((each.journal for each in said if each.journal), None)
        if journal is None:
            return StoredDeaths()
        since = None if last is None else last.now - _OVERLAP_S
        lookback_s = self._lookback_s if after is None else _UNKNOWN_S
        read = partial(read_journal, journal, since=since, lookback_s=lookback_s)
        try:
            return await in_thread("workerdiag-watch-journal", read, timeout_s=_JOURNAL_S)
        except Exception as problem:  # noqa: BLE001  disks, stores and their libraries raise anything
            raise OSError(f"cannot read the journal {journal}: {describe_error(problem)}") from None

    async def close(self) -> None:
        """Close the connection; the next question connects again."""
        connection, self._connection, self._events = self._connection, None, None
        self._is_recorded = self._is_unknown_recorder = False
        if connection is not None:
            await connection.close()

    async def _connect(self, address: str) -> tuple[Connection, EventReader]:
        if self._connection is not None and self._connection.address != address:
            await self.close()
        if self._connection is None or self._events is None:
            self._connection = Connection(address, self._target.connection_args, self._target.cluster)
            self._events = EventReader(self._connection, lookback_s=self._lookback_s)
        return self._connection, self._events

    async def _look(
        self, connection: Connection, events: EventReader, after: Cursor | None, *, wait_s: float
    ) -> Look:
        """Ask the recorder, or read the events if there is none; it may come and go."""
        was_recorded = self._is_recorded
        if not self._is_recorded:
            or_recorder = not self._is_unknown_recorder
            look = await events.look(after, wait_s=wait_s, or_recorder=or_recorder)
            if look is not None:
                return look
        wait_s = 0.0 if events.is_behind else wait_s
        try:
            look = await look_at_recorder(connection, after, wait_s=wait_s, lookback_s=self._lookback_s)
        except NoRecorderError:
            self._is_recorded, self._is_unknown_recorder = False, not was_recorded
            return await self._look(connection, events, after, wait_s=0.0)
        self._is_recorded = True
        unreported = [each for each in look.deaths if each.id in look.unreported]
        reported = {each.id: each for each in look.deaths if each.id not in look.unreported}
        if not unreported and not events.is_behind:
            return look
        asking, listening = events.with_evidence(unreported), listen_to_recorder(connection, look.cursor)
        asked, farewell = await with_farewell(asking, listening)
        told = {each.id: each for each in asked}
        deaths = {**told, **reported}  # a report that a nanny sent meanwhile has more
        by_time = tuple(sorted(deaths.values(), key=lambda each: each.when))
        return evolve(look, deaths=by_time, closing_reason=look.closing_reason or farewell)

    def _batch(self, look: Look, standstill: Sequence[Evidence], address: str) -> FeedBatch:
        """Return the batch of a look.

        Raises:
            SchedulerUnreachableError: A signal stops the scheduler.
            ClusterEndedError: It closes on purpose.
        """
        self._note_word(look)
        self._ended_address = None
        if look.closing_reason is not None:
            if not look.closing_reason.startswith(_SIGNAL):
                self._ended_address = address
            if not look.deaths:
                self._raise_if_ended(address)
                raise SchedulerUnreachableError(address, f"it is being stopped ({look.closing_reason})")
        return FeedBatch(
            cluster=self.cluster,
            cursor=look.cursor,
            now=look.now,
            deaths=look.deaths,
            missed_count=look.missed_count,
            standstill=tuple(standstill),
        )

    def _note_word(self, look: Look) -> None:
        """Note when a scheduler last answered, and its journal: its successor does not know that."""
        before = self._last_words.pop(look.cursor.epoch, None)
        journal = look.journal or (before.journal if before is not None else None)
        self._last_words[look.cursor.epoch] = _LastWord(look.now, journal)
        if len(self._last_words) > _MAX_SCHEDULERS:
            del self._last_words[next(iter(self._last_words))]

    def _raise_if_ended(self, address: str) -> None:
        if self._ended_address == address or self._target.is_closed:
            raise ClusterEndedError(address) from None


def open_feed(
    target: object,
    *,
    name: str | None = None,
    journal: str | None = None,
    security: object = None,
    lookback_s: float = RECENT_S,
    standstill_s: float = STANDSTILL_S,
) -> SchedulerFeed:
    """Return the feed of a cluster. It connects at the first question, and raises nothing before that.

    Args:
        target: A ``distributed.Client``, an address, the path of a scheduler file, or a callable that returns
            an address, called before each question.
        name: Name of the cluster for people; None: the name of the client's cluster object, else the address
            or the path.
        journal: Path or URL of the journal (``workerdiag.recorder.append-to``); None: as the scheduler says.
        security: A ``distributed.Security``; None: the client's, or that of Dask's configuration.
        lookback_s: Without a cursor, deaths of the last seconds are returned, at most this many.
        standstill_s: Seconds of waiting tasks, while nothing runs, after which there is a standstill.

    Raises:
        TypeError: The target is something else.
    """
    found = read_target(target, name=name, security=security)
    return SchedulerFeed(found, journal=journal, lookback_s=lookback_s, standstill_s=standstill_s)
