"""The recorder on the scheduler: records each removal of a worker, and the reports of nannies.

It imports nothing that reasons. The dashboard is opened by name; where it cannot be loaded, recording goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pkgutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve
from distributed.diagnostics.plugin import SchedulerPlugin

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.dask import Method, Reply, Scheduler, TaskState, WorkerState
from workerdiag.model.evidence import TaskFacts, TaskInput
from workerdiag.recorder import internals
from workerdiag.recorder.death_report import json_size
from workerdiag.recorder.deaths import HANDLER as WATCH_HANDLER
from workerdiag.recorder.deaths import DeathRing, DeathWatch
from workerdiag.recorder.internals import Undo, get_recording
from workerdiag.recorder.journal import Journal
from workerdiag.recorder.large_objects import estimated_bytes
from workerdiag.recorder.recipes import HANDLER as RECIPE_HANDLER
from workerdiag.recorder.recipes import Recipes
from workerdiag.settings import setting
from workerdiag.wire import ACT_TOPIC, DEATH_TOPIC, PLUGIN_NAME, messages
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import DeathsAnswer, RecordedDeath, select_recent

if TYPE_CHECKING:
    from workerdiag.wire.black_box import MissingPart

logger = logging.getLogger("distributed.scheduler.recorder")

#: Name of the scheduler's handler that returns recorded deaths.
HANDLER = "workerdiag_deaths"
#: Upper limits of one answer.
MAX_ANSWER_DEATHS = 100
MAX_ANSWER_BYTES = 4 * 2**20
#: A report has at most 64 KiB; one above this limit loses its box.
_MAX_REPORT_BYTES = 128 * 1024


class RecorderScheduler(SchedulerPlugin):
    """Records each removal of a worker; registered by `workerdiag.install` or by the preload.

    It does no work per task and opens no file on the event loop. A failure is logged once and does not
    disturb the scheduler.
    """

    name = PLUGIN_NAME
    idempotent = True
    #: The scheduler calls this about five times per task. ``str.format`` of an empty string accepts any
    #: arguments and needs no Python frame, which takes a quarter of the inherited method's time.
    transition = "".format  # type: ignore[assignment]

    def __init__(self) -> None:
        #: What is not recorded, and why; the reason is for a person.
        self.missing: dict[MissingPart, str] = {}
        self._scheduler: Any = None
        self._workers: dict[str, TrackedWorker] = {}
        self._unpublished: dict[str, messages.RemovalRecord] = {}
        #: Seconds that noting the sizes of tasks took, since when.
        self._facts_s, self._started_at = 0.0, time.monotonic()
        self._ring, self._recipes = DeathRing(), Recipes()
        self._journal: Journal | None = None
        self._watch: DeathWatch | None = None
        #: Functions that remove the handlers.
        self._undo: list[Undo] = []
        #: Removes the deaths from the dashboard.
        self._close_dashboard: Callable[[], object] | None = None
        #: Set when a report arrives.
        self._report_arrived = asyncio.Event()

    async def start(self, scheduler: Any) -> None:
        """Start recording, once: a scheduler starts all plugins again after its preloads (``start_unsafe``)."""
        if self._watch is not None:
            return
        self._scheduler = scheduler
        for address in list(scheduler.workers):
            self._track(address)
        if not internals.limit_topic(scheduler, DEATH_TOPIC, 64):  # the ring keeps more
            self._lack("topic-limit", "this release of distributed does not limit the number of events")
        if target := setting("recorder.append-to"):
            self._journal = Journal(str(target), self._lack)
        self._watch = DeathWatch(
            scheduler,
            self._ring,
            is_report_due=self._is_report_due,
            journal=self._journal.target if self._journal is not None else None,
        )
        handlers: dict[str, Method] = {
            HANDLER: self.deaths,
            WATCH_HANDLER: self._watch.answer,
            RECIPE_HANDLER: self._recipes.answer,
        }
        undo = [internals.add_handler(scheduler, name, each) for name, each in handlers.items()]
        self._undo = [each for each in undo if each is not None]
        self._close_dashboard = open_dashboard(scheduler)
        self._publish(messages.RecorderState(is_recording=True))

    async def close(self) -> None:
        """Stop when the scheduler closes or the recorder is uninstalled, and flush the journal."""
        closing_reason = internals.closing_reason(self._scheduler)
        if self._close_dashboard is not None:
            self._close_dashboard()
            self._close_dashboard = None
            await asyncio.sleep(0)  # else the wait below includes its last request
        if self._undo:
            if closing_reason is None:  # else the handlers report the closing
                for undo in self._undo:
                    undo()
            self._undo = []
            self._publish(messages.RecorderState(is_recording=False))
        if self._watch is not None:
            await self._watch.close(closing_reason)
            self._watch = None
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
            self._journal = None
        self._workers.clear()
        self._unpublished.clear()

    def add_worker(self, scheduler: object, worker: str) -> None:  # noqa: ARG002  as of any plugin
        """Keep the state of a new worker, because the scheduler drops it before plugins learn of the removal."""
        self._track(worker)

    def log_event(self, topic: str, msg: object) -> None:
        """Record removals, reports and status changes; the scheduler calls this for each event."""
        if not isinstance(msg, Mapping):
            return
        with guarded("recording an event") as recording:
            if topic == "all":
                if msg.get("action") == "remove-worker":
                    self._on_removal(msg)
            elif topic == DEATH_TOPIC:
                if msg.get("kind") in ("nanny-report", "box-found"):
                    self._on_report(msg)
            elif topic == ACT_TOPIC:
                if isinstance(act := messages.decode_message(msg), messages.RescueAct):
                    self._keep(act)
            elif topic in self._workers:
                self._on_worker_event(self._workers[topic], msg)
        if recording.problem is not None:
            self._lack("events", f"an event of the topic {topic}: {describe_error(recording.problem)}")

    def remove_worker(self, scheduler: object, worker: str, **_: object) -> None:  # noqa: ARG002  as of any plugin
        """Publish the record that `log_event` made, with few task keys, unless the removal was expected."""
        self._workers.pop(worker, None)
        full = self._unpublished.pop(worker, None)
        if full is not None and not full.is_expected:
            long = ("executing_at_heartbeat", "assigned_keys", "suspects", "given_up", "seceded_keys")
            self._publish(evolve(full, **{name: getattr(full, name)[:20] for name in long}))

    async def deaths(
        self,
        about: Collection[str] = (),
        tasks: Collection[str] = (),
        most: int = MAX_ANSWER_DEATHS,
        most_bytes: int = 2**20,
        wait_s: float = 0.0,
    ) -> dict[str, object]:
        """A `DeathsAnswer` as plain data: the deaths in question, of the same tasks, and of the 15 minutes before.

        They are those of the workers *about*, or the latest ones, and of the *tasks* that Dask gave up on. At most
        100 deaths and 4 MiB are answered; boxes are omitted first. It waits at most *wait_s* seconds (2) for
        nannies that are about to report.
        """
        deadline = Deadline.after(min(float(wait_s), 2.0))
        while any(map(self._is_report_due, self._ring)) and not deadline.is_over:
            self._report_arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._report_arrived.wait(), deadline.left_s)
        now = time.time()
        chosen = select_recent(list(self._ring), about=set(about), tasks=set(map(str, tasks)), now=now)
        most_deaths = max(0, min(int(most), MAX_ANSWER_DEATHS))
        answered = list(_deaths_within(chosen[:most_deaths], min(int(most_bytes), MAX_ANSWER_BYTES)))
        answer = DeathsAnswer(
            deaths=tuple(sorted(answered, key=lambda death: death.time)),
            now=now,
            omitted_count=len(chosen) - len(answered),
            dropped_count=self._ring.dropped_count,
            missing=dict(self.missing),
        )
        return messages.encode_message(answer)

    def _track(self, address: str) -> None:
        state = self._scheduler.workers.get(address)
        if state is not None:
            self._workers[address] = TrackedWorker(state)

    def _on_worker_event(self, tracked: TrackedWorker, msg: Reply) -> None:
        if msg.get("action") == "worker-status-change":
            before, after = str(msg.get("prev-status"))[:50], str(msg.get("status"))[:50]
            change = messages.StatusChange(at=time.time(), before=before, after=after)
            tracked.changes = (*tracked.changes, change)[-10:]
        elif msg.get("action") == "closing-worker":
            tracked.reason = str(msg.get("reason"))[:200]

    def _on_removal(self, msg: Reply) -> None:
        tracked = self._workers.get(str(msg.get("worker")))
        if tracked is None:
            return
        full = removal_record(self._scheduler, tracked, msg, noticed_at=time.time())
        began = time.monotonic()
        if not full.is_expected and self._facts_s <= _FACTS_S + _FACTS_SHARE * (began - self._started_at):
            with guarded("noting the sizes of tasks"):
                full = evolve(full, task_facts=task_facts(self._scheduler, tracked.state, msg))
            self._facts_s += time.monotonic() - began
        if not full.is_expected:
            with guarded("keeping the recipe"):
                self._recipes.keep(self._scheduler, tracked.state, msg)
        self._unpublished[tracked.state.address] = full
        self._keep(full)

    def _on_report(self, msg: Reply) -> None:
        if json_size(msg) > _MAX_REPORT_BYTES:
            msg = {name: value for name, value in msg.items() if name != "box"}
            if json_size(msg) > _MAX_REPORT_BYTES:
                return
        report = messages.decode_message(msg)
        if isinstance(report, messages.DeathReport) and self._keep(report):
            self._report_arrived.set()

    def _keep(self, message: messages.DeathMessage) -> bool:
        is_new = self._ring.add(message)
        if is_new and self._journal is not None:
            self._journal.put(messages.encode_message(message))
        if is_new and self._watch is not None:
            self._watch.notify()
        return is_new

    def _publish(self, message: messages.Message) -> None:
        self._scheduler.log_event(DEATH_TOPIC, messages.encode_message(message))

    def _is_report_due(self, death: RecordedDeath) -> bool:
        """Whether a nanny is about to report that death, which usually takes less than 0.1 seconds."""
        return (
            death.record is not None
            and death.report is None
            and bool(death.record.nanny_address)
            and not death.was_announced
            and death.time >= time.time() - 1.0
            and (PLUGIN_NAME in self._scheduler.nanny_plugins or bool(get_recording(self._scheduler)))
        )

    def _lack(self, part: MissingPart, why: str) -> None:
        if part not in self.missing:
            self.missing[part] = why
            logger.warning("The flight recorder does without: %s", why)


def _deaths_within(deaths: Iterable[RecordedDeath], most_bytes: int) -> Iterator[RecordedDeath]:
    for death in deaths:
        for each in (death, death.without_box()):
            size = json_size(to_plain(each))
            if size <= most_bytes:
                most_bytes -= size
                yield each
                break


#: Takes the scheduler, and returns what closes it again, or None.
DASHBOARD: Final = "workerdiag.integrations.dashboard.page:attach"


def open_dashboard(scheduler: Scheduler) -> Callable[[], object] | None:
    """Show deaths in the scheduler's dashboard; returns what ends that, or None. It does not raise."""
    if setting("recorder.dashboard") == "hide":
        return None
    with guarded("opening the dashboard") as opening:
        attach: Callable[[Scheduler], Callable[[], object] | None] = pkgutil.resolve_name(DASHBOARD)
        return attach(scheduler)
    if opening.problem is not None:
        logger.warning("Deaths are not shown in the dashboard: %s", describe_error(opening.problem))
    return None


_MAX_KEYS = 200
_KEY_CHARS = 500


@define(eq=False)
class TrackedWorker:
    """A live worker with its state, which the scheduler drops before plugins learn of the removal."""

    state: WorkerState
    #: Its latest status changes, oldest first.
    changes: tuple[messages.StatusChange, ...] = ()
    #: The reason for closing that it reported; None if it reported none.
    reason: str | None = None


def removal_record(
    scheduler: Scheduler, tracked: TrackedWorker, event: Reply, *, noticed_at: float
) -> messages.RemovalRecord:
    """The record of one removal; docs/fair-blame.md lists its fields.

    The scheduler has not yet moved the worker's tasks elsewhere. *event* is its event ``remove-worker``
    (scheduler.py, 2024.8.1 to 2026.8.0).
    """
    state = tracked.state
    keys: Collection[object] = event.get("processing-tasks") or ()
    running = {task.key: seconds for task, seconds in state.executing.items() if task.key in keys}
    is_expected = bool(event.get("expected"))
    allowed = scheduler.allowed_failures
    counts = _suspicious_counts(scheduler, keys)
    suspects = tuple(
        messages.SuspectTask(key=_clipped_key(key), suspicious_count=count)
        for key, count in islice(counts.items(), 50)
    )
    return messages.RemovalRecord(
        worker_address=state.address,
        worker_name=str(state.name)[:200],
        pid=state.pid or None,
        nanny_address=state.nanny or None,
        address_host=state.host,
        noticed_at=noticed_at,
        stimulus_id=str(event.get("stimulus_id"))[:500],
        is_expected=is_expected,
        close_reason=tracked.reason,
        status_changes=tracked.changes,
        nthreads=state.nthreads,
        memory_limit_bytes=state.memory_limit or None,
        last_heartbeat=_last_heartbeat(state, noticed_at),
        executing_at_heartbeat=tuple(
            messages.HeartbeatTask(key=_clipped_key(key), running_s=seconds)
            for key, seconds in islice(running.items(), 256)
        ),
        seceded_keys=tuple(
            _clipped_key(task.key) for task in islice(state.long_running, _MAX_KEYS) if task.key in keys
        ),
        assigned_keys=_clipped_keys((*running, *counts, *islice(keys, _MAX_KEYS))),
        assigned_count=len(keys),
        suspects=suspects,
        given_up=tuple(each for each in suspects if not is_expected and each.suspicious_count > allowed),
        allowed_failures=allowed,
        lost_result_count=len(event.get("lost-computed-tasks") or ()),
        lost_scattered_count=len(event.get("lost-scattered-tasks") or ()),
        workers_remaining=len(scheduler.workers),
    )


#: Noting sizes takes at most so many seconds at first, and this share of the time after them.
_FACTS_S, _FACTS_SHARE = 0.1, 0.005
#: Tasks whose sizes are told, and largest inputs of each.
_MAX_FACTS, _MAX_INPUTS = 6, 8
#: Inputs of one task that are looked at; and tasks of which the most suspicious ones are chosen.
_MAX_LOOKED_AT, _MAX_CHOSEN_FROM = 5000, 500


def task_facts(scheduler: Scheduler, state: WorkerState, event: Reply) -> tuple[TaskFacts, ...]:
    """Sizes of a few tasks of a lost worker, which the scheduler forgets soon after they fail: of those that ran.

    If none is known to have run, of the most suspicious ones. *event* is as for `removal_record`.
    """
    keys: Collection[object] = event.get("processing-tasks") or ()
    running = [task.key for task in state.executing if task.key in keys]
    suspects = _suspicious_counts(scheduler, list(islice(keys, _MAX_CHOSEN_FROM)))
    chosen = islice(dict.fromkeys((*running, *suspects)), _MAX_FACTS)
    return tuple(_facts_of(task, running) for task in filter(None, map(scheduler.tasks.get, chosen)))


def _facts_of(task: TaskState, running: Collection[object]) -> TaskFacts:
    inputs = [(internals.result_bytes(each), each) for each in islice(task.dependencies, _MAX_LOOKED_AT)]
    known = [size for size, _ in inputs if size is not None]
    spec_bytes = None
    with guarded("sizing a task's specification"):
        spec_bytes = estimated_bytes(internals.run_spec(task))
    states: Mapping[str, int] = getattr(task.prefix, "states", {})
    return TaskFacts(
        key=_clipped_key(task.key),
        ran=task.key in running,
        input_count=len(task.dependencies),
        input_bytes=sum(known) if known else None,
        inputs=tuple(
            TaskInput(key=_clipped_key(each.key), size_bytes=size)
            for size, each in nlargest(_MAX_INPUTS, inputs, key=lambda pair: pair[0] or 0)
        ),
        spec_bytes=spec_bytes,
        finished_siblings=sum(states.get(name, 0) for name in ("memory", "released", "forgotten")),
    )


def _last_heartbeat(state: WorkerState, now: float) -> messages.Heartbeat:
    """The metrics of its last heartbeat (``Worker.get_metrics`` in worker.py)."""
    metrics: Reply = state.metrics or {}
    spilled = metrics.get("spilled_bytes")
    last = state.last_seen or None
    return messages.Heartbeat(
        at=last,
        age_s=None if last is None else max(0.0, round(now - last, 3)),
        rss_bytes=metrics.get("memory"),
        managed_bytes=metrics.get("managed_bytes"),
        spilled_bytes=spilled.get("disk") if isinstance(spilled, Mapping) else None,
        open_files=metrics.get("num_fds"),
    )


def _suspicious_counts(scheduler: Scheduler, keys: Collection[Any]) -> dict[Any, int]:
    """The most suspicious tasks, with the number of deaths that Dask counts against each."""
    tasks = (scheduler.tasks.get(key) for key in islice(keys, 5000))
    counted = [(task.suspicious, task.key) for task in tasks if task is not None]
    most = nlargest(_MAX_KEYS, counted, key=lambda each: each[0])
    return {key: count for count, key in most if count}


def _clipped_keys(keys: Iterable[object]) -> tuple[str, ...]:
    clipped: list[str] = []
    left = 16 * 1024
    for key in dict.fromkeys(map(_clipped_key, keys)):
        left -= len(key)
        if left < 0 or len(clipped) == _MAX_KEYS:
            break
        clipped.append(key)
    return tuple(clipped)


def _clipped_key(key: object) -> str:
    return str(key)[:_KEY_CHARS]
