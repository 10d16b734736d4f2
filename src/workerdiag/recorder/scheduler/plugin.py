"""
The recorder on the scheduler: what it knows of each worker that it lets go of, and what nannies tell of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from workerdiag.recorder import internals
from workerdiag.recorder.messages import SCHEMA
from workerdiag.recorder.scheduler.journal import Appender
from workerdiag.recorder.scheduler.removal_record import Watched, brief, record
from workerdiag.recorder.scheduler.ring import MOST_BYTES, MOST_DEATHS, Entry, Ring, size_of
from workerdiag.recorder.settings import NAME, TOPIC, configured

logger = logging.getLogger("distributed.scheduler.recorder")

#: Name of the scheduler's handler that answers what is recorded.
HANDLER = "workerdiag_deaths"
#: Bounds of one answer, whatever is asked for.
MOST_TOLD = 100
MOST_TOLD_BYTES = 4 * 2**20
#: Events of the recorder's topic that are kept, each of at most 64 KiB; the ring keeps more.
_MOST_EVENTS = 64
#: How long after a removal its nanny may still tell of it (it mostly takes 10 to 60 ms).
_NANNYS_TURN_S = 1.0
#: Deaths so long before the one in question belong to it.
RECENT_S = 900.0


class RecorderScheduler(SchedulerPlugin):
    """
    Keeps a record of each worker that is removed; registered by `workerdiag.install`, or by the preload.

    Nothing is done per task, and no file is touched on the event loop. What fails here is noted once,
    and the scheduler runs on.
    """

    name = NAME
    idempotent = True
    #: The scheduler calls this some five times per task. ``str.format`` of an empty text takes any
    #: arguments, does nothing, and needs no frame: a quarter of the time of the inherited method.
    transition = "".format  # type: ignore[assignment]

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._scheduler: Any = None
        self._workers: dict[str, Watched] = {}
        self._untold: dict[str, dict[str, Any]] = {}
        self._ring = Ring()
        self._appender: Appender | None = None
        self._undo: internals.Undo | None = None
        #: Set when a nanny has told of something.
        self._news = asyncio.Event()

    async def start(self, scheduler: Any) -> None:
        """
        Begin, with the workers that are there already.
        """
        self._scheduler = scheduler
        self._ring = Ring(most=_positive(configured("deaths"), MOST_DEATHS), most_bytes=MOST_BYTES)
        for address in list(scheduler.workers):
            self._watch(address)
        if not internals.limit_topic(scheduler, TOPIC, _MOST_EVENTS):
            self._note("events: this release of distributed does not let their number be limited")
        self._undo = internals.add_handler(scheduler, HANDLER, self.deaths)
        if target := configured("append-to"):
            self._appender = Appender(str(target), self._note)
        scheduler.log_event(TOPIC, {"schema": SCHEMA, "source": "scheduler", "recorder": "running"})

    async def close(self) -> None:
        """
        End, because the scheduler closes or somebody uninstalls the recorder; what was appended is written.
        """
        if self._undo is not None:
            self._undo()
            self._undo = None
            self._scheduler.log_event(TOPIC, {"schema": SCHEMA, "source": "scheduler", "recorder": "closed"})
        if self._appender is not None:
            await asyncio.to_thread(self._appender.close)
            self._appender = None
        self._workers.clear()
        self._untold.clear()

    def add_worker(self, scheduler: Any, worker: str) -> None:  # noqa: ARG002  as of any plugin
        """
        Keep the state of a worker that joins: when it is removed, the scheduler drops it before it tells.
        """
        self._watch(worker)

    def log_event(self, topic: str, msg: Any) -> None:
        """
        Look at an event for what is of interest here; the scheduler calls this for each one.
        """
        if not isinstance(msg, Mapping):
            return
        try:
            if topic == "all":
                if msg.get("action") == "remove-worker":
                    self._removed(msg)
            elif topic == TOPIC:
                if msg.get("source") in ("nanny", "orphan"):
                    self._told(msg)
            elif topic in self._workers:
                self._said(self._workers[topic], msg)
        except Exception as problem:  # noqa: BLE001  the scheduler has better things to do
            self._note(f"an event of the topic {topic}: {type(problem).__name__}: {problem}")

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """
        Tell of a worker that is gone for good; `log_event` has made the record of it.
        """
        self._workers.pop(worker, None)
        full = self._untold.pop(worker, None)
        if full is not None and not full["expected"]:
            scheduler.log_event(TOPIC, brief(full))

    async def deaths(
        self,
        about: Collection[str] = (),
        tasks: Collection[str] = (),
        most: int = MOST_TOLD,
        most_bytes: int = 2**20,
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        """
        The deaths in question, those of the same tasks, and unexpected ones of the quarter of an hour before.

        Args:
            about: Addresses of workers; none: whoever died lately.
            tasks: Keys of tasks that Dask gave up on.
            most: How many deaths, at most 100.
            most_bytes: How long the answer may be, at most 4 MiB; boxes are left out first.
            wait_s: For how long to wait for nannies that will tell how their workers ended, at most 2.

        Returns:
            ``schema``, the scheduler's clock as ``now``, ``deaths`` (oldest first), ``left_out`` (how many
            were too many), ``gone`` (how many the ring had to let go of), ``notes`` (what is not recorded).
        """
        until = time.monotonic() + min(float(wait_s), 2.0)
        while self._awaited() and (left_s := until - time.monotonic()) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left_s)
        chosen = _chosen(list(self._ring), set(about), set(map(str, tasks)), now=time.time())
        told = _fitting(chosen, min(int(most), MOST_TOLD), min(int(most_bytes), MOST_TOLD_BYTES))
        return {
            "schema": SCHEMA,
            "now": time.time(),
            "deaths": sorted(told, key=lambda each: each["number"]),
            "left_out": len(chosen) - len(told),
            "gone": self._ring.gone,
            "notes": list(self.notes),
        }

    def _watch(self, address: str) -> None:
        state = self._scheduler.workers.get(address)
        if state is not None:
            self._workers[address] = Watched(state)

    def _said(self, watched: Watched, msg: Mapping[str, Any]) -> None:
        if msg.get("action") == "worker-status-change":
            watched.changed(time.time(), msg.get("prev-status"), msg.get("status"))
        elif msg.get("action") == "closing-worker":
            watched.reason = str(msg.get("reason"))[:200]

    def _removed(self, msg: Mapping[str, Any]) -> None:
        watched = self._workers.get(str(msg.get("worker")))
        if watched is None:
            return
        host = internals.host_of(watched.state)
        full = record(self._scheduler, watched, msg, when=time.time(), host=host)
        self._untold[watched.state.address] = full
        self._ring.removed(full)
        self._append(full)

    def _told(self, msg: Mapping[str, Any]) -> None:
        if self._ring.told(dict(msg)) is not None:
            self._append(msg)
            self._news.set()

    def _append(self, message: Mapping[str, Any]) -> None:
        if self._appender is not None:
            self._appender.put(message)

    def _awaited(self) -> bool:
        """
        Whether a nanny is about to tell of a removal.
        """
        if not internals.has_nanny_plugin(self._scheduler, NAME) and not internals.recording_of(
            self._scheduler
        ):
            return False
        since = time.time() - _NANNYS_TURN_S
        return any(
            each.told is None and each.record["nanny"] and each.unexpected
            for each in self._ring
            if each.record is not None and each.record["when"] >= since
        )

    def _note(self, what: str) -> None:
        """
        Note, once for each kind, that something is not recorded.
        """
        kind = what.partition(":")[0]
        if not any(each.partition(":")[0] == kind for each in self.notes):
            self.notes.append(what)
            logger.warning("The flight recorder does without: %s", what)


def _chosen(entries: list[Entry], about: set[str], tasks: set[str], *, now: float) -> list[Entry]:
    """
    The entries to tell of, what matters most first.
    """
    asked = [each for each in entries if each["worker"] in about]
    same = [each for each in entries if each.unexpected and each not in asked and each.has_task(tasks)]
    moment = max((_when(each) for each in asked), default=now)
    rest = [
        each
        for each in entries
        if each.unexpected and each not in asked and each not in same and _when(each) >= moment - RECENT_S
    ]
    return [*asked, *reversed(same), *reversed(rest)]


def _fitting(entries: list[Entry], most: int, most_bytes: int) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for entry in entries[: max(0, most)]:
        for plain in (entry.plain(), entry.plain(box=False)):
            size = size_of(plain)
            if size <= most_bytes:
                most_bytes -= size
                told.append(plain)
                break
    return told


def _when(entry: Entry) -> float:
    when = entry["when"]
    return float(when) if isinstance(when, int | float) else 0.0


def _positive(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default
