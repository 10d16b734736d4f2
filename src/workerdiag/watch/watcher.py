"""``workerdiag.watch`` and the watcher that it starts: its loop in a thread, and the ways to receive notices."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from attrs import define, evolve, field

from workerdiag.deadline import Deadline, start_thread
from workerdiag.errors import WorkerdiagError
from workerdiag.incidents import judge, judge_standstill
from workerdiag.watch.case import WatchedCase, WatchSettings
from workerdiag.watch.casebook import Casebook, made_folder
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed
from workerdiag.watch.loop import WatcherProgress, WatcherStatus, WatchLoop
from workerdiag.watch.outbox import INBOX_NAME, Inbox, Outbox
from workerdiag.watch.sinks.base import Sink, SinkSetupError, as_sink
from workerdiag.watch.store import Store

if TYPE_CHECKING:
    from distributed import Client

#: Seconds that closing a watcher may take.
CLOSE_S = 10.0


@define(eq=False, kw_only=True)
class Watcher:
    """Watches a cluster until it is closed; ``with`` and ``async with`` close it.

    Iterating over it, with ``for`` or ``async for``, yields each notice, a `WatchedCase`, until the watcher is
    closed, or the cluster was. A notice counts as delivered when the loop asks for the next one: if the loop
    fails, a watcher with the same state yields it again.
    """

    _feed: SchedulerFeed
    _cluster: str
    _sinks: Sequence[Sink]
    _store: Store
    _settings: WatchSettings = field(factory=WatchSettings)
    _clock: Callable[[], float] = time.time
    _pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _progress: WatcherProgress = field(factory=WatcherProgress, init=False)
    _is_iterated: bool = field(init=False)
    _outbox: Outbox = field(init=False)
    _inbox: Inbox = field(init=False)
    _book: Casebook = field(init=False)
    _loop: WatchLoop = field(init=False)
    _event_loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    #: The process in which the threads are.
    _pid: int = field(factory=os.getpid, init=False)
    _is_started: threading.Event = field(factory=threading.Event, init=False)
    _is_finished: threading.Event = field(factory=threading.Event, init=False)
    _is_closed: bool = field(default=False, init=False)
    _closing: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._is_iterated = not self._sinks
        self._outbox = Outbox(self._store, self._sinks, cluster=self._cluster, clock=self._clock)
        self._inbox = Inbox(self._store.outbox)
        self._book = Casebook(
            store=self._store,
            settings=self._settings,
            sink_names=self._sink_names,
            wake=self._wake,
            cluster=self._cluster,
        )
        self._loop = WatchLoop(
            feed=self._feed,
            book=self._book,
            judge=judge,
            judge_standstill=judge_standstill,
            progress=self._progress,
            clock=self._clock,
            pause=self._pause,
        )

    def start(self) -> Self:
        """Begin to watch and to deliver, in threads that end with the process; raises as `watch` does."""
        self._store.file.take()
        try:
            self._outbox.start()
            self._inbox.start()
            start_thread("workerdiag-watch", self._run)
        except BaseException:
            self._outbox.close(0.0)
            raise
        self._is_started.wait()
        atexit.register(self.close, timeout_s=2.0)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        self._close(CLOSE_S, is_worked_on=problem is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, problem: object, trace: object) -> None:
        await asyncio.to_thread(self._close, CLOSE_S, is_worked_on=problem is None)

    def __iter__(self) -> Self:
        self._is_iterated = True
        return self

    def __next__(self) -> WatchedCase:
        notice = self.next_notice()
        if notice is None:
            raise StopIteration
        return notice

    def __aiter__(self) -> Self:
        self._is_iterated = True
        return self

    async def __anext__(self) -> WatchedCase:
        notice = None if self._is_elsewhere else await self._inbox.take_async()
        if notice is None:
            raise StopAsyncIteration
        return notice

    def next_notice(self, timeout_s: float | None = None) -> WatchedCase | None:
        """Return the next notice, as iteration does; None after the last. Raises TimeoutError after *timeout_s*."""
        self._is_iterated = True
        return None if self._is_elsewhere else self._inbox.take(timeout_s)

    def cases(self) -> tuple[WatchedCase, ...]:
        """Return all cases of the cluster, and one for the deaths that settle. Raises StateFileError."""
        return self._book.cases()

    def has_history(self) -> bool:
        """Whether a watcher with this state has seen the cluster before."""
        return self._book.cursor() is not None

    def status(self) -> WatcherStatus:
        """Return whether it sees the cluster, what waits for its sinks, and what failed."""
        if self._is_elsewhere:
            return WatcherStatus(state="closed", cluster=self._cluster)
        with contextlib.suppress(WorkerdiagError):  # it is closed, or its file is broken, which is noted
            return evolve(self._progress.status(), sinks=self._outbox.status())
        return self._progress.status()

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Stop watching: look once more, judge all deaths, and deliver what is due; a state file keeps the rest."""
        self._close(timeout_s, is_worked_on=True)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is a forked copy, whose threads are in the parent process."""
        return os.getpid() != self._pid

    def _sink_names(self) -> tuple[str, ...]:
        return (*(each.name for each in self._sinks), *([INBOX_NAME] if self._is_iterated else []))

    def _wake(self) -> None:
        self._outbox.wake()
        self._inbox.wake()

    def _run(self) -> None:
        try:
            with self._loop.noting("go on watching"):
                asyncio.run(self._run_rounds())
        finally:
            self._is_started.set()
            self._is_finished.set()
        self._inbox.end()

    async def _run_rounds(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._is_started.set()
        await self._loop.run()

    def _close(self, timeout_s: float, *, is_worked_on: bool) -> None:
        if self._is_elsewhere:
            return
        atexit.unregister(self.close)
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            deadline = Deadline.after(timeout_s)
            if self._event_loop is not None:
                with contextlib.suppress(RuntimeError):  # it has ended already
                    self._event_loop.call_soon_threadsafe(self._loop.stop)
            self._is_finished.wait(deadline.share(0.7).left_s)  # the rest is for deliveries
            self._inbox.close(is_worked_on=is_worked_on)
            self._outbox.close(deadline.left_s)
            with contextlib.suppress(WorkerdiagError):  # the state is broken
                self._store.close()
            self._progress.changed(state="closed", problem="")


def watch(
    client_or_address: Client | str | Path | Callable[[], str],
    *sinks: Sink | Callable[[WatchedCase], object],
    state: str | os.PathLike[str] | None = None,
    bundles: str | os.PathLike[str] | None = None,
    name: str | None = None,
    settings: WatchSettings | None = None,
) -> Watcher:
    """Watch a cluster, and say why its workers die: to *sinks*, and to ``for notice in watcher``.

    It starts at once, in threads of its own, and connects again by itself whenever the scheduler restarts. It
    changes nothing on the cluster and keeps none alive. Close it, or use ``with`` or ``async with``.

    Args:
        client_or_address: A client, the scheduler's address, the path of a scheduler file, or a callable that
            returns an address, which is called before each question.
        sinks: Where notices go: plain functions of a notice (a `WatchedCase`), or sinks of
            `workerdiag.watch.sinks`.
        state: Path of the file in which it keeps what it knows, so that nothing is lost or told twice when it
            is restarted; None: in memory.
        bundles: A folder for a death bundle of each case that is opened; notices say where it is. None: the
            folder of *settings*, if that has one.
        name: What people call the cluster; None: the name of its cluster object, else its address.
        settings: After how long, and from which numbers on, it speaks; None: as Dask's configuration says.

    Raises:
        TypeError: An argument is of a wrong type.
        SinkSetupError: A sink cannot work so, or two have one name.
        StateFileError: The state file cannot be used: it is of another version, or of another program.
        StateInUseError: Another watcher uses it.
        BundleError: The folder for bundles cannot be made.
    """
    settings = settings or WatchSettings()
    if folder := bundles or settings.bundle_folder:
        settings = evolve(settings, bundle_folder=made_folder(Path(folder)))
    feed = SchedulerFeed(client_or_address, name=name)
    taken = [as_sink(each) for each in sinks]
    if any(each.name == INBOX_NAME for each in taken):
        raise SinkSetupError(INBOX_NAME, "the loop over notices has this name", "give it another one")
    store = Store(state)
    try:
        return Watcher(feed=feed, cluster=feed.cluster, sinks=taken, store=store, settings=settings).start()
    except BaseException:
        store.close()
        raise
