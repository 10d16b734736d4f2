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

from workerdiag.deadline import Deadline
from workerdiag.recorder import internals
from workerdiag.recorder.scheduler.journal import Journal
from workerdiag.recorder.scheduler.removal_record import TrackedWorker, abridged_record, removal_record
from workerdiag.recorder.scheduler.ring import MAX_BYTES, MAX_DEATHS, DeathEntry, DeathRing, json_size
from workerdiag.recorder.settings import PLUGIN_NAME, setting
from workerdiag.wire.constants import DEATH_TOPIC, MESSAGE_SCHEMA

logger = logging.getLogger("distributed.scheduler.recorder")

#: Name of the scheduler's handler that answers what is recorded.
HANDLER = "workerdiag_deaths"
#: Bounds of one answer, whatever is asked for.
MAX_ANSWER_DEATHS = 100
MAX_ANSWER_BYTES = 4 * 2**20
#: Events of the recorder's topic that are kept, each of at most 64 KiB; the ring keeps more.
_MAX_EVENTS = 64
#: How long after a removal its nanny may still tell of it (it mostly takes 10 to 60 ms).
_NANNY_REPORT_S = 1.0
#: Deaths so long before the one in question belong to it.
RECENT_S = 900.0


class RecorderScheduler(SchedulerPlugin):
    """
    Keeps a record of each worker that is removed; registered by `workerdiag.install`, or by the preload.

    Nothing is done per task, and no file is touched on the event loop. What fails here is noted once,
    and the scheduler runs on.
    """

    name = PLUGIN_NAME
    idempotent = True
    #: The scheduler calls this some five times per task. ``str.format`` of an empty text takes any
    #: arguments, does nothing, and needs no frame: a quarter of the time of the inherited method.
    transition = "".format  # type: ignore[assignment]

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._scheduler: Any = None
        self._workers: dict[str, TrackedWorker] = {}
        self._unpublished: dict[str, dict[str, Any]] = {}
        self._ring = DeathRing()
        self._appender: Journal | None = None
        self._undo: internals.Undo | None = None
        #: Set when a nanny has told of something.
        self._report_arrived = asyncio.Event()

    async def start(self, scheduler: Any) -> None:
        """
        Begin, with the workers that are there already.
        """
        self._scheduler = scheduler
        self._ring = DeathRing(most=_positive_int_or(setting("deaths"), MAX_DEATHS), most_bytes=MAX_BYTES)
        for address in list(scheduler.workers):
            self._track(address)
        if not internals.limit_topic(scheduler, DEATH_TOPIC, _MAX_EVENTS):
            self._note("events: this release of distributed does not let their number be limited")
        self._undo = internals.add_handler(scheduler, HANDLER, self.deaths)
        if target := setting("append-to"):
            self._appender = Journal(str(target), self._note)
        scheduler.log_event(
            DEATH_TOPIC, {"schema": MESSAGE_SCHEMA, "source": "scheduler", "recorder": "running"}
        )

    async def close(self) -> None:
        """
        End, because the scheduler closes or somebody uninstalls the recorder; what was appended is written.
        """
        if self._undo is not None:
            self._undo()
            self._undo = None
            self._scheduler.log_event(
                DEATH_TOPIC, {"schema": MESSAGE_SCHEMA, "source": "scheduler", "recorder": "closed"}
            )
        if self._appender is not None:
            await asyncio.to_thread(self._appender.close)
            self._appender = None
        self._workers.clear()
        self._unpublished.clear()

    def add_worker(self, scheduler: Any, worker: str) -> None:  # noqa: ARG002  as of any plugin
        """
        Keep the state of a worker that joins: when it is removed, the scheduler drops it before it tells.
        """
        self._track(worker)

    def log_event(self, topic: str, msg: Any) -> None:
        """
        Look at an event for what is of interest here; the scheduler calls this for each one.
        """
        if not isinstance(msg, Mapping):
            return
        try:
            if topic == "all":
                if msg.get("action") == "remove-worker":
                    self._on_removal(msg)
            elif topic == DEATH_TOPIC:
                if msg.get("source") in ("nanny", "orphan"):
                    self._on_report(msg)
            elif topic in self._workers:
                self._on_worker_event(self._workers[topic], msg)
        except Exception as problem:  # noqa: BLE001  the scheduler has better things to do
            self._note(f"an event of the topic {topic}: {type(problem).__name__}: {problem}")

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """
        Tell of a worker that is gone for good; `log_event` has made the record of it.
        """
        self._workers.pop(worker, None)
        full = self._unpublished.pop(worker, None)
        if full is not None and not full["expected"]:
            scheduler.log_event(DEATH_TOPIC, abridged_record(full))

    async def deaths(
        self,
        about: Collection[str] = (),
        tasks: Collection[str] = (),
        most: int = MAX_ANSWER_DEATHS,
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
        deadline = Deadline.after(min(float(wait_s), 2.0))
        while self._is_report_pending() and not deadline.is_over:
            self._report_arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._report_arrived.wait(), deadline.left_s)
        chosen = _select_entries(list(self._ring), set(about), set(map(str, tasks)), now=time.time())
        answered = _entries_within(
            chosen, min(int(most), MAX_ANSWER_DEATHS), min(int(most_bytes), MAX_ANSWER_BYTES)
        )
        return {
            "schema": MESSAGE_SCHEMA,
            "now": time.time(),
            "deaths": sorted(answered, key=lambda each: each["number"]),
            "left_out": len(chosen) - len(answered),
            "gone": self._ring.dropped_count,
            "notes": list(self.notes),
        }

    def _track(self, address: str) -> None:
        state = self._scheduler.workers.get(address)
        if state is not None:
            self._workers[address] = TrackedWorker(state)

    def _on_worker_event(self, tracked: TrackedWorker, msg: Mapping[str, Any]) -> None:
        if msg.get("action") == "worker-status-change":
            tracked.note_status(time.time(), msg.get("prev-status"), msg.get("status"))
        elif msg.get("action") == "closing-worker":
            tracked.reason = str(msg.get("reason"))[:200]

    def _on_removal(self, msg: Mapping[str, Any]) -> None:
        tracked = self._workers.get(str(msg.get("worker")))
        if tracked is None:
            return
        host = internals.worker_host(tracked.state)
        full = removal_record(self._scheduler, tracked, msg, when=time.time(), host=host)
        self._unpublished[tracked.state.address] = full
        self._ring.add_removal(full)
        self._append(full)

    def _on_report(self, msg: Mapping[str, Any]) -> None:
        if self._ring.report(dict(msg)) is not None:
            self._append(msg)
            self._report_arrived.set()

    def _append(self, message: Mapping[str, Any]) -> None:
        if self._appender is not None:
            self._appender.put(message)

    def _is_report_pending(self) -> bool:
        """
        Whether a nanny is about to tell of a removal.
        """
        if not internals.has_nanny_plugin(self._scheduler, PLUGIN_NAME) and not internals.get_recording(
            self._scheduler
        ):
            return False
        since = time.time() - _NANNY_REPORT_S
        return any(
            each.report is None and each.record["nanny"] and each.is_unexpected
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


def _select_entries(
    entries: list[DeathEntry], about: set[str], tasks: set[str], *, now: float
) -> list[DeathEntry]:
    """
    The entries to tell of, what matters most first.
    """
    in_question = [each for each in entries if each["worker"] in about]
    same = [
        each for each in entries if each.is_unexpected and each not in in_question and each.has_task(tasks)
    ]
    moment = max((_entry_time(each) for each in in_question), default=now)
    rest = [
        each
        for each in entries
        if each.is_unexpected
        and each not in in_question
        and each not in same
        and _entry_time(each) >= moment - RECENT_S
    ]
    return [*in_question, *reversed(same), *reversed(rest)]


def _entries_within(entries: list[DeathEntry], most: int, most_bytes: int) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = []
    for entry in entries[: max(0, most)]:
        for plain in (entry.to_dict(), entry.to_dict(box=False)):
            size = json_size(plain)
            if size <= most_bytes:
                most_bytes -= size
                chosen.append(plain)
                break
    return chosen


def _entry_time(entry: DeathEntry) -> float:
    when = entry["when"]
    return float(when) if isinstance(when, int | float) else 0.0


def _positive_int_or(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default
