"""The feed of a live cluster, with or without the recorder.

It asks the flight recorder on the scheduler by a long poll, or reads the scheduler's events, or the journal
that a scheduler left in a file or a store. It notices a standstill, when tasks wait and nothing runs, by cheap
figures, and collects evidence only then. Only a peer that never answered like a scheduler is asked for its
identity: that of a large scheduler names all its workers.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve

from workerdiag.deadline import CALL_FAILURES, Deadline, in_thread
from workerdiag.errors import (
    ClusterEndedError,
    SchedulerUnreachableError,
    WorkerdiagError,
    describe_error,
    error_text,
    system_error,
    utf8_safe,
)
from workerdiag.guard import guarded
from workerdiag.incidents import WatchedDeath, watched_deaths
from workerdiag.model.dask import Client, is_disallowed
from workerdiag.model.evidence import Evidence
from workerdiag.model.process_end import RECENT_S
from workerdiag.recorder.journal import MAX_FILE_BYTES, MAX_OBJECTS
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.queries import answer_in_time
from workerdiag.sources.recorder.records import RecordParser
from workerdiag.watch.feed.connection import LATE_S, Connection, read_target
from workerdiag.watch.feed.events import LISTEN_S, Cursor, EventReader, FeedBatch, with_farewell
from workerdiag.wire import MESSAGE_SCHEMA
from workerdiag.wire.messages import DeathMessage
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import ClusterFigures, RecordedDeath, WatchAnswer, merge_messages

#: Seconds of waiting tasks after which there is a standstill: clusters need a while to grow.
STANDSTILL_S = 60.0


class SchedulerFeed:
    """The deaths of one cluster, as `read_target` takes it.

    It registers no client, connects again by itself, and keeps no cluster alive. A death is returned when its nanny
    has reported it, or a second after the removal, and again, with the same id, when more becomes known. Without
    the recorder it has the evidence that the scheduler and its nannies still have; for many deaths at once, that
    comes with later batches. A restarted scheduler has another epoch: everything that it knows is returned.
    """

    def __init__(self, target: object, *, name: str | None = None) -> None:
        self._target = read_target(target, name)
        self._standstill = StandstillWatch()
        self._events: EventReader | None = None
        self._peer = PeerCheck()
        #: Whether the recorder is asked; and whether there is one of an unknown version.
        self._is_recorded = self._is_unknown_recorder = False
        #: The last answer of each scheduler without its deaths, by epoch; the newest is the last.
        self._last_words: dict[str, FeedBatch] = {}
        #: Address of the scheduler that said that it was closed on purpose.
        self._ended_address: str | None = None

    @property
    def cluster(self) -> str:
        """Name of the cluster for people."""
        return self._target.cluster_name

    async def poll(self, after: Cursor | None, *, wait_s: float) -> FeedBatch:
        """Return the deaths since *after*, at once if there are any, else after at most *wait_s* seconds.

        Without a cursor it returns at once. Raises SchedulerUnreachableError if the scheduler does not answer, and
        ClusterEndedError if it or the cluster object says that the cluster was closed on purpose.
        """
        if self._events is None and self._target.is_closed:
            raise ClusterEndedError(self._target.last_address or self.cluster)
        address = await self._target.address()
        wait_s = 0.0 if after is None else max(0.0, wait_s)
        if (due_in_s := self._standstill.due_in_s) is not None:
            wait_s = min(wait_s, due_in_s)
        with guarded("asking the scheduler for deaths") as asking:
            events = await self._connect(address)
            await self._peer.check_again(events.connection)
            look = await self._look(events, after, wait_s=wait_s)
            standstill = await self._standstill.evidence(look.figures, events.connection, now=look.now)
        if asking.problem is not None:
            told = await self._peer.explain(self._events.connection if self._events else None, asking.problem)
            await self.close()
            self._raise_if_ended(address)
            raise SchedulerUnreachableError(address, told)
        self._peer.answered(address)
        self._note_word(look)
        self._check_open(look, address)
        return evolve(look, standstill=standstill)

    async def stored(self, after: Cursor | None) -> tuple[Sequence[WatchedDeath], int]:
        """Return what `read_journal` does, of the journal of a scheduler that is gone, if any. Raises OSError."""
        last = self._last_words.get(after.epoch) if after is not None else None
        said = [last] if last is not None else reversed(self._last_words.values())
        journal = next((each.journal for each in said if each.journal), None)
        if journal is None:
            return (), 0
        since = None if last is None else last.now - 60.0
        lookback_s = RECENT_S if after is None else 24 * 3600.0  # the watcher was restarted
        read = partial(read_journal, journal, since=since, lookback_s=lookback_s)
        try:
            return await in_thread("workerdiag-watch-journal", read, timeout_s=20.0)
        except CALL_FAILURES as problem:
            raise OSError(f"cannot read the journal {journal}: {error_text(problem)}") from None

    async def close(self) -> None:
        """Close the connection; the next question connects again."""
        events, self._events = self._events, None
        self._is_recorded = self._is_unknown_recorder = False
        if events is not None:
            await events.connection.close()

    async def _connect(self, address: str) -> EventReader:
        if self._events is not None and self._events.connection.address != address:
            await self.close()
        if self._events is None:
            connection = Connection(address, self._target.connection_args, self._target.cluster)
            self._events = EventReader(connection)
        return self._events

    async def _look(self, events: EventReader, after: Cursor | None, *, wait_s: float) -> FeedBatch:
        """Ask the recorder, or read the events if there is none; it may come and go."""
        was_recorded = self._is_recorded
        if not self._is_recorded:
            or_recorder = not self._is_unknown_recorder
            look = await events.look(after, wait_s=wait_s, or_recorder=or_recorder)
            if look is not None:
                return look
        wait_s = 0.0 if events.perishable.is_behind else wait_s
        try:
            look = await look_at_recorder(events.connection, after, wait_s=wait_s)
        except NoRecorderError:
            self._is_recorded, self._is_unknown_recorder = False, not was_recorded
            return await self._look(events, after, wait_s=0.0)
        self._is_recorded = True
        unreported = [each for each in look.deaths if each.id in look.unreported]
        reported = {each.id: each for each in look.deaths if each.id not in look.unreported}
        if not unreported and not events.perishable.is_behind:
            return look
        asking, ask = events.perishable.ask(unreported), events.connection.scheduler.workerdiag_watch
        listening = ask(since=sys.maxsize, epoch=look.cursor.epoch, wait_s=LISTEN_S)
        asked, farewell = await with_farewell(asking, listening)
        told = {each.id: each for each in asked}
        deaths = {**told, **reported}  # a report that a nanny sent meanwhile has more
        by_time = tuple(sorted(deaths.values(), key=lambda each: each.when))
        return evolve(look, deaths=by_time, closing_reason=look.closing_reason or farewell)

    def _check_open(self, look: FeedBatch, address: str) -> None:
        """Note whether the scheduler closes; raise as `poll` does if it has nothing more to say."""
        self._ended_address = None
        if look.closing_reason is not None:
            if not look.closing_reason.startswith("signal-"):  # after a signal it may start again
                self._ended_address = address
            if not look.deaths:
                self._raise_if_ended(address)
                raise SchedulerUnreachableError(address, f"it is being stopped ({look.closing_reason})")

    def _note_word(self, look: FeedBatch) -> None:
        """Note when a scheduler last answered, and its journal: its successor does not know that."""
        before = self._last_words.pop(look.cursor.epoch, None)
        journal = look.journal or (before.journal if before is not None else None)
        self._last_words[look.cursor.epoch] = evolve(look, deaths=(), journal=journal)

    def _raise_if_ended(self, address: str) -> None:
        if self._ended_address == address or self._target.is_closed:
            raise ClusterEndedError(address)


#: Number of the newest messages to keep while reading all: some 6 MB, and seconds to compare them.
_MAX_MESSAGES = 4000
#: Address and pid: successive workers of a nanny may have the same address.
_Worker = tuple[str | None, int | None]


def read_journal(target: str, *, since: float | None, lookback_s: float) -> tuple[Sequence[WatchedDeath], int]:
    """Return the newest deaths in a journal (``workerdiag.recorder.append-to``), and the number of further ones.

    Deaths count from *since*, in seconds since the epoch, or from *lookback_s* seconds before the last death.
    Raises OSError, or ImportError without the library of its store.
    """
    blocks = _store_blocks(target) if "://" in target else _file_blocks(Path(target).expanduser())
    counted: dict[_Worker, float] = {}
    messages = heapq.nlargest(_MAX_MESSAGES, _counting(_messages(blocks), counted), key=_time)
    last = _time(messages[0]) if messages else 0.0
    first = last - lookback_s if since is None else since
    deaths = merge_messages(sorted((each for each in messages if _time(each) >= first), key=_time))
    wanted = {worker for worker, when in counted.items() if when >= first}
    missed = wanted - {(each.worker_address, each.pid) for each in messages}
    return watched_deaths(deaths), len(missed)


def _counting(messages: Iterable[DeathMessage], counted: dict[_Worker, float]) -> Iterator[DeathMessage]:
    for each in messages:
        worker = each.worker_address, each.pid
        counted[worker] = max(_time(each), counted.get(worker, 0.0))
        yield each


def _time(message: DeathMessage) -> float:
    return RecordedDeath.of(message).time


def _messages(files: Iterable[Iterable[bytes]]) -> Iterator[DeathMessage]:
    """Yield the messages in files. Torn lines, such as the last one, are skipped."""
    for blocks in files:
        parser = RecordParser()
        for block in blocks:
            yield from (record.message for record in parser.take(block))
        yield from (record.message for record in parser.end())


def _file_blocks(path: Path) -> Iterator[Iterator[bytes]]:
    aside = path.with_name(f"{path.name}.1")
    for each in (aside, path) if aside.exists() else (path,):
        with each.open("rb") as file:
            yield (file.read(2**20) for _ in range(2 * MAX_FILE_BYTES // 2**20))


def _store_blocks(target: str) -> Iterator[list[bytes]]:
    """Yield the newest objects of a store. Their names end with the start time of the scheduler."""
    import fsspec

    filesystem, folder = fsspec.core.url_to_fs(target)
    names = [str(each) for each in filesystem.ls(folder, detail=False) if str(each).endswith(".jsonl")]
    newest = sorted(names, key=lambda name: name.rsplit("-", 2)[-2:])[-MAX_OBJECTS:]
    for name in newest:
        yield [filesystem.cat_file(name)]


class NoRecorderError(Exception):
    """The scheduler does not record, or has an unknown version of the recorder."""


async def look_at_recorder(client: Client, after: Cursor | None, *, wait_s: float) -> FeedBatch:
    """Return the deaths after a cursor, or of the last `RECENT_S` seconds; raises NoRecorderError, TimeoutError."""
    cursor, lookback_s = after or Cursor(epoch=""), RECENT_S if after is None else None
    ask = partial(
        client.scheduler.workerdiag_watch,
        since=cursor.position,
        epoch=cursor.epoch,
        wait_s=wait_s,
        lookback_s=lookback_s,
    )
    try:
        reply = await answer_in_time(ask, Deadline.after(wait_s + LATE_S))
    except Exception as problem:
        if is_disallowed(problem):
            raise NoRecorderError from None
        raise
    if not isinstance(reply, dict) or reply.get("schema") != MESSAGE_SCHEMA:
        raise NoRecorderError  # a server without this handler answers nothing
    dropped: list[str] = []
    answer = from_plain(WatchAnswer, {name: reply[name] for name in reply if name != "schema"}, dropped)
    return FeedBatch(
        cursor=Cursor(epoch=answer.epoch, position=answer.position),
        now=answer.now,
        deaths=watched_deaths(answer.deaths),
        unreported=frozenset(each.id for each in answer.deaths if each.report is None),
        missed_count=answer.missed_count if cursor.epoch == answer.epoch else 0,
        figures=answer.figures,
        closing_reason=answer.closing_reason,
        journal=answer.journal,
    )


_ASK_S = 5.0
_CHECK = (
    "if a scheduler is there, it is stuck; else give the scheduler's own port (8786 by default), not that of "
    "its dashboard or of another program, with tcp:// or tls:// as the scheduler has it"
)


class WrongPeerError(WorkerdiagError):
    """A worker, a nanny or another Dask server answers instead of a scheduler."""


class PeerCheck:
    """Checks whether a scheduler answers at the address."""

    def __init__(self) -> None:
        self._scheduler = self._other = ""

    def answered(self, address: str) -> None:
        """Note that a scheduler answers at the address."""
        self._scheduler, self._other = address, ""

    async def check_again(self, connection: Connection) -> None:
        """Raise WrongPeerError if it is still no scheduler: other questions cause tracebacks in its log."""
        if connection.address == self._other and (problem := await _other_server(connection)):
            raise WrongPeerError(problem)

    async def explain(self, connection: Connection | None, problem: Exception) -> str:
        """Return the message for people about a failed question."""
        if isinstance(problem, WrongPeerError):
            return str(problem)
        said = await _described(problem, connection)
        if connection is None or connection.address == self._scheduler or _is_nobody_there(problem):
            return said
        if _may_be_foreign(problem):
            return f"{said} ({_CHECK})"
        other = await _other_server(connection)
        self._other = connection.address if other else ""
        return other or said


async def _described(problem: Exception, connection: Connection | None) -> str:
    """Return the problem with the error of the system: to Dask every failure to connect is a time-out.

    Dask's last attempt may have had too little time to fail by itself (comm/core.py, 2024.8.1 to 2026.8.0).
    """
    reason = system_error(problem)
    if not reason and connection is not None and _is_nobody_there(problem):
        reason = await _connection_error(connection.address)
    return f"{describe_error(problem)}: {reason}" if reason else describe_error(problem)


async def _connection_error(address: str) -> str:
    """Return the error of the system for a plain connection, such as "Connection refused"; empty without one."""
    from distributed.comm.addressing import get_address_host_port

    with guarded("connecting to the address") as connecting:
        _, writer = await asyncio.wait_for(asyncio.open_connection(*get_address_host_port(address)), _ASK_S)
        writer.close()
    number = connecting.problem.errno if isinstance(connecting.problem, OSError) else None
    return os.strerror(number) if number and number > 0 else ""


async def _other_server(connection: Connection) -> str | None:
    """Return the Dask server that answers instead of a scheduler; None for a scheduler, or if it does not say."""
    reply: object = None
    with guarded("asking who answers at the address"):
        reply = await asyncio.wait_for(connection.scheduler.identity(), _ASK_S)
    if not isinstance(reply, Mapping) or "type" not in reply or "workers" in reply:
        return None
    kind, scheduler = (utf8_safe(str(reply.get(key) or ""))[:200] for key in ("type", "scheduler"))
    address = f", {scheduler}" if scheduler else ""
    return f"{connection.address} is a {kind}, not a scheduler: give the scheduler's address{address}"


def _may_be_foreign(problem: Exception) -> bool:
    """Whether no reply came that Dask can read."""
    from distributed.comm.core import CommClosedError

    return isinstance(problem, TimeoutError | CommClosedError | MemoryError)


def _is_nobody_there(problem: Exception) -> bool:
    return isinstance(problem, OSError) and not _may_be_foreign(problem)


#: Seconds between two collections of evidence while it lasts.
_AGAIN_S = 60.0


class StandstillWatch:
    """Remembers since when work has stood still; for `STANDSTILL_S` seconds workers may be on their way."""

    def __init__(self) -> None:
        #: Time of the last answer, by the scheduler's clock.
        self._now = 0.0
        self._since: float | None = None
        self._asked_at: float | None = None

    @property
    def due_in_s(self) -> float | None:
        """Return the seconds until it counts as a standstill; None if it does, or work goes on."""
        if self._since is None or self._asked_at is not None:
            return None
        return max(0.0, STANDSTILL_S - (self._now - self._since))

    async def evidence(self, figures: ClusterFigures, client: Client, *, now: float) -> tuple[Evidence, ...]:
        """Return the evidence of a standstill once a minute; empty in between, and without one."""
        self._now = now
        if not stands_still(figures):
            self._since = self._asked_at = None
            return ()
        self._since = now if self._since is None else self._since
        if now - self._since < STANDSTILL_S or (self._asked_at is not None and now - self._asked_at < _AGAIN_S):
            return ()
        self._asked_at = now
        return tuple(await ClusterSource(client).collect_async(budget_s=_ASK_S))


def stands_still(figures: ClusterFigures) -> bool:
    """Whether tasks wait and nothing runs: no workers, none that takes tasks, or none that fits."""
    if figures.executing_count or not (figures.waiting_count or figures.assigned_count):
        return False
    return figures.running_worker_count == 0 or figures.assigned_count == 0
