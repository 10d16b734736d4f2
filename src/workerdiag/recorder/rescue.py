"""Acts between the first death for memory and ``KilledWorker``, while nothing is lost yet (docs/rescue.md).

After ``KilledWorker`` Dask has dropped the finished results that only the failed work needed. What is done here is
done on the scheduler, before it gives the tasks of the dead worker to others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.dask import Reply, TaskState, WorkerState
from workerdiag.recorder import internals
from workerdiag.recorder.internals import Undo
from workerdiag.units import format_bytes, format_duration
from workerdiag.wire import ACT_TOPIC, DEATH_TOPIC
from workerdiag.wire.messages import ActKind, DeathReport, RescueAct, decode_message, encode_message

logger = logging.getLogger("distributed.scheduler.rescue")

#: Names of the plugins on scheduler and workers.
PLUGIN_NAME, THREADS_PLUGIN_NAME = "workerdiag-rescue", "workerdiag-fewer-threads"
#: The resource that a bigger worker brings; whoever starts one gives it one of it.
RESOURCE = "workerdiag-bigger-worker"
#: A resource that nobody brings: a task that asks for it fails at the next look.
_NOBODY = "workerdiag-nobody"
#: Seconds between looks at the computation while something was done about it.
_LOOK_S = 0.25
#: Nannies' kills and unproven deaths are remembered so long, and so many of them.
_REMEMBERED_S, _MAX_REMEMBERED = 60.0, 1000
#: Deaths held against a task after which it fails: with the task that alone ran, and with one of several that may
#: have. One is not enough: what a worker had kept of earlier tasks may have filled it.
_PROVEN_DEATHS, _LIKELY_DEATHS = 2, 3
#: States of tasks that are not going to run.
_ENDED = ("erred", "memory", "forgotten")


class FewerThreads(WorkerPlugin):
    """Has a worker run at most so many tasks at once; it runs as many as before when the plugin is removed."""

    name = THREADS_PLUGIN_NAME

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._undo: Undo | None = None

    def setup(self, worker: Any) -> None:
        """Lower the number of tasks that begin; those that run go on."""
        self._undo = internals.lower_threads(worker, self.threads)

    def teardown(self, worker: Any) -> None:  # noqa: ARG002  as of any plugin
        """Raise it again."""
        if self._undo is not None:
            self._undo()


@define(eq=False)
class _Loss:
    """A worker that died unexpectedly, with what it had."""

    worker: WorkerState
    #: When it came, and when its loss was noticed, in seconds since the epoch.
    joined_at: float
    noticed_at: float
    #: The tasks that it was assigned and that have not failed.
    tasks: tuple[TaskState, ...]
    #: Those of them that are known to have run.
    running: tuple[TaskState, ...]
    #: What the results took that were lost with it.
    results_bytes: int
    #: The limit that it is held to: Dask's, or its control group's where that ended it; 0: none is known.
    limit_bytes: int


@define(eq=False)
class _Failing:
    task: TaskState
    loss: _Loss
    reason: str
    #: Whether it was published.
    is_told: bool = False


@define
class _Computation:
    """What was done since the first death; over when nothing is left to do."""

    #: The death after which every worker was told to run fewer tasks at once; None: not yet.
    lowered_for: _Loss | None = None
    lowering: asyncio.Task[None] | None = None
    #: Whether a worker died since then that ran fewer tasks at once.
    has_died_since: bool = False
    #: How many deaths are held against each task.
    deaths: dict[TaskState, int] = field(factory=dict)
    #: How many deaths that Dask counted against each task were taken back.
    taken_back: dict[TaskState, int] = field(factory=dict)
    #: The functions that lift the restriction of a task.
    restricted: dict[TaskState, Undo] = field(factory=dict)
    failing: list[_Failing] = field(factory=list)
    #: Whether a bigger worker was asked for, and since when none is there.
    has_asked: bool = False
    missing_since: float = field(factory=time.time)
    #: Since when there is no worker at all.
    none_since: float = field(factory=time.time)
    #: The last death for memory.
    last: _Loss | None = None
    #: Whether the deadline is over: nothing is done about this computation any more.
    is_given_up: bool = False
    #: Whether anything was done that has to be undone at the end.
    has_acted: bool = False


class RescueMemoryDeaths(SchedulerPlugin):
    """Saves work whose workers die for memory; registered by `workerdiag.rescue`, which says what the options are.

    It acts on deaths that are proven to be for memory: the nanny says so, or the kernel's own counter does.
    *asked_by* says who starts bigger workers, and stands in each act.
    """

    name = PLUGIN_NAME
    idempotent = True
    transition = "".format  # type: ignore[assignment]  # as in `RecorderScheduler`

    def __init__(
        self,
        *,
        threads: int = 1,
        most_memory_bytes: int | None = None,
        deadline_s: float = 600.0,
        dry_run: bool = False,
        asked_by: str = "",
    ) -> None:
        self._threads = threads
        self._most_memory_bytes = most_memory_bytes
        self._deadline_s = deadline_s
        self._dry_run = dry_run
        self._asked_by = asked_by
        self._scheduler: Any = None
        #: States of the workers that live, with the time at which they came.
        self._workers: dict[str, tuple[WorkerState, float]] = {}
        #: When nannies began to end workers for their memory, by address.
        self._kills: dict[str, float] = {}
        #: Deaths that were not proven to be for memory when the scheduler noticed them.
        self._unproven: dict[str, _Loss] = {}
        #: The keys of the tasks that ran, by the reports about recent deaths.
        self._ran: dict[str, frozenset[str]] = {}
        self._work = _Computation()
        self._follower: asyncio.Task[None] | None = None

    async def start(self, scheduler: Any) -> None:
        """Begin, with the current workers."""
        self._scheduler = scheduler
        self._one_at_a_time = asyncio.Lock()
        for address in list(scheduler.workers):
            self.add_worker(scheduler, address)

    async def close(self) -> None:
        """End; what was done stays so. `undo` undoes it."""
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Keep the state of a new worker, because the scheduler drops it before plugins learn of the removal."""
        if (state := scheduler.workers.get(worker)) is not None:
            self._workers[worker] = (state, time.time())
            for remembered in (self._kills, self._ran, self._unproven):
                remembered.pop(worker, None)

    def log_event(self, topic: str, msg: object) -> None:
        """Look for deaths, and for what proves that they were for memory, before or after."""
        if not isinstance(msg, Mapping):
            return
        with guarded("acting on an event") as acting:
            if topic == "worker-restart-memory":
                self._on_kill(str(msg.get("worker")))
            elif topic == "all" and msg.get("action") == "remove-worker":
                self._on_removal(msg)
            elif topic == DEATH_TOPIC and msg.get("kind") == "nanny-report":
                report = decode_message(
                    {name: value for name, value in msg.items() if name not in ("box", "stderr")}
                )
                if isinstance(report, DeathReport):
                    self._on_report(report)
        if acting.problem is not None:
            logger.warning("Nothing was done about a death: %s", describe_error(acting.problem))

    async def undo(self) -> None:
        """Undo everything that is still in force, also what was taken back of the blame, and end."""
        await self.close()
        for task, count in self._work.taken_back.items():
            task.suspicious += count
            task.prefix.suspicious += count
        await self._restore()

    def _on_removal(self, msg: Reply) -> None:
        address = str(msg.get("worker"))
        state, joined_at = self._workers.pop(address, (None, 0.0))
        now = time.time()
        killed_at = self._kills.pop(address, -_REMEMBERED_S)
        if state is None or msg.get("expected"):
            return
        known = (self._scheduler.tasks.get(key) for key in msg.get("processing-tasks") or ())
        tasks = tuple(each for each in known if each is not None and each.state != "erred")
        ran = set(state.executing)
        running = tuple(each for each in tasks if each in ran)
        lost = filter(None, map(self._scheduler.tasks.get, msg.get("lost-computed-tasks") or ()))
        results_bytes = sum(internals.result_bytes(each) or 0 for each in lost)
        loss = _Loss(state, joined_at, now, tasks, running, results_bytes, state.memory_limit)
        self._work.has_died_since |= self._work.lowered_for is not None and not self._had_company(loss)
        if now - killed_at < _REMEMBERED_S:
            self._on_memory_death(loss)
        else:
            self._unproven[address] = loss
            _forget_oldest(self._unproven)

    def _on_kill(self, address: str) -> None:
        """Remember that a nanny ends its worker for memory; on a busy machine it is heard of after the loss."""
        loss = self._unproven.pop(address, None)
        if loss is None:
            self._kills[address] = time.time()
        elif time.time() - loss.noticed_at < _REMEMBERED_S:
            self._on_memory_death(loss)

    def _on_report(self, report: DeathReport) -> None:
        address = report.worker_address or ""
        if report.running_tasks is not None:
            self._ran[address] = frozenset(each.key for each in report.running_tasks)
            _forget_oldest(self._ran)
        loss = self._unproven.pop(address, None)
        is_for_memory = report.is_memory_terminated or report.is_killed_by_kernel
        if loss is None or not is_for_memory or time.time() - loss.noticed_at > _REMEMBERED_S:
            return
        if report.cgroup is not None and report.cgroup.limit_bytes and report.is_killed_by_kernel:
            loss.limit_bytes = report.cgroup.limit_bytes
        if address in self._ran:
            loss.running = tuple(each for each in loss.tasks if str(each.key) in self._ran[address])
        self._on_memory_death(loss)

    def _on_memory_death(self, loss: _Loss) -> None:
        work = self._work
        work.last = loss
        loss.tasks, loss.running = (
            tuple(each for each in tasks if each.state not in _ENDED) for tasks in (loss.tasks, loss.running)
        )
        if self._follower is None:
            self._follower = asyncio.get_running_loop().create_task(self._follow())
        if work.is_given_up or _is_full_of_results(loss):
            return
        if self._had_company(loss):
            self._take_back(loss.tasks)
            if work.lowered_for is None:
                self._lower(loss)
            return
        if len(loss.tasks) > 1 and min(self._threads, loss.worker.nthreads) > 1:
            return  # Dask's own count decides
        suspects = loss.running or loss.tasks
        self._take_back(each for each in loss.tasks if each not in suspects)
        for task in suspects:
            work.deaths[task] = work.deaths.get(task, 0) + 1
        for task in suspects:
            self._on_suspect(task, loss, is_proven=len(suspects) == 1)

    def _had_company(self, loss: _Loss) -> bool:
        """Whether the worker may have run more tasks at once, when it died, than it may now.

        One that was there when the threads were lowered went on with what it ran, which its next heartbeat told.
        """
        if len(loss.tasks) < 2 or loss.worker.nthreads <= self._threads:
            return False
        lowered = self._work.lowered_for
        if lowered is None or self._dry_run:
            return True
        is_old = loss.joined_at < lowered.noticed_at
        return is_old and (len(loss.running) > 1 or loss.worker.last_seen < lowered.noticed_at)

    def _lower(self, loss: _Loss) -> None:
        self._work.lowered_for = loss
        if not self._dry_run:
            self._work.has_acted = True
            self._work.lowering = asyncio.get_running_loop().create_task(self._send_plugin())
        before, died = loss.worker.nthreads, f"worker {loss.worker.address} died for memory while it ran several"
        text = f"Every worker runs at most {self._threads} of {before} tasks at once from now on, because {died}"
        self._publish("lower-threads", loss, f"{text}; no task is blamed for that death", threads=self._threads)

    async def _send_plugin(self) -> None:
        async with self._one_at_a_time:
            await internals.add_worker_plugin(self._scheduler, FewerThreads(self._threads))

    def _take_back(self, tasks: Iterable[TaskState]) -> None:
        for task in tasks:
            if not self._dry_run and internals.uncount_failure(task):
                self._work.taken_back[task] = self._work.taken_back.get(task, 0) + 1

    def _on_suspect(self, task: TaskState, loss: _Loss, *, is_proven: bool) -> None:
        """Give a task that kills its worker alone to a bigger one, or have it fail."""
        deaths, limit = self._work.deaths[task], format_bytes(loss.limit_bytes)
        alone = f"Task {task.key} alone took more than the {limit} of worker {loss.worker.address}"
        why_not = self._why_no_bigger(task, loss)
        if why_not is None and (is_proven or deaths >= _PROVEN_DEATHS):
            self._ask_for_bigger(task, loss, f"{alone}: only a bigger worker runs it from now on")
        elif why_not is not None and deaths >= (_PROVEN_DEATHS if is_proven else _LIKELY_DEATHS):
            self._restrict(task, _NOBODY)
            self._work.failing.append(_Failing(task, loss, f"{alone}, {why_not}"))

    def _why_no_bigger(self, task: TaskState, loss: _Loss) -> str | None:
        """Why no bigger worker may run a task, as the end of a sentence; None if one may."""
        most = self._most_memory_bytes
        if RESOURCE in loss.worker.resources:
            return "which is the bigger worker"
        bound = task.worker_restrictions or task.host_restrictions or task.resource_restrictions
        if bound and task not in self._work.restricted:
            return "and it may not run on another one"
        if internals.workers_with(self._scheduler, RESOURCE):
            return None
        if most is None:
            return "and a bigger worker is not allowed (most_memory is not given)"
        if most <= loss.limit_bytes:
            return f"and a worker may have no more ({format_bytes(most)})"
        return None

    def _ask_for_bigger(self, task: TaskState, loss: _Loss, text: str) -> None:
        self._restrict(task, RESOURCE)
        while task.suspicious and not self._dry_run:
            self._take_back([task])
        self._work.has_asked = True
        self._publish("bigger-worker", loss, text, task_key=str(task.key), memory_bytes=self._most_memory_bytes)

    def _restrict(self, task: TaskState, resource: str) -> None:
        if self._dry_run:
            return
        self._work.has_acted = True
        self._work.restricted.setdefault(task, internals.require_resource(self._scheduler, task, resource))

    async def _follow(self) -> None:
        """Look at each computation until it is over, then undo what was done; until no worker died meanwhile."""
        scheduler = self._scheduler
        while self._work.last is not None:
            idle = 0
            while idle < 3:  # looks in a row at which nothing is left to do
                await asyncio.sleep(_LOOK_S)
                self._look()
                waiting = scheduler.unrunnable or scheduler.queued
                is_busy = waiting or any(each.processing for each in scheduler.workers.values())
                idle = 0 if is_busy else idle + 1
            await self._restore()
        self._follower = None

    def _look(self) -> None:
        with guarded("looking at the computation") as looking:
            self._fail_due()
            self._hold_deadline()
        if looking.problem is not None:
            logger.warning("The computation is not looked at: %s", describe_error(looking.problem))

    def _fail_due(self) -> None:
        due, self._work.failing = self._work.failing, []
        for each in due:
            ran = self._ran.get(each.loss.worker.address)
            if ran and str(each.task.key) not in ran:
                self._lift(each.task)
            elif self._dry_run or internals.fail_task(
                self._scheduler, each.task, each.loss.worker, self._work.deaths.get(each.task, 1), each.reason
            ):
                if not each.is_told:
                    text = f"{each.reason}. It fails at once"
                    self._publish("fail-task", each.loss, text, task_key=str(each.task.key))
            elif each.task.state not in _ENDED:
                self._work.failing.append(each)  # its inputs are computed first

    def _hold_deadline(self) -> None:
        """Fail what waits in vain for a bigger worker, or for any."""
        work, now = self._work, time.time()
        waited = f"came within {format_duration(self._deadline_s)}"
        if internals.workers_with(self._scheduler, RESOURCE) or not work.has_asked:
            work.missing_since = now
        elif now - work.missing_since > self._deadline_s:
            self._give_up(work.restricted, f"needs a bigger worker, and none {waited}")
        if self._workers:
            work.none_since = now
        elif now - work.none_since > self._deadline_s:
            waiting = [*self._scheduler.unrunnable, *self._scheduler.queued]
            self._give_up(waiting, f"has no worker, and none {waited}")

    def _give_up(self, tasks: Iterable[TaskState], why: str) -> None:
        """Have tasks fail at the next look, and do nothing about this computation any more; it is said once."""
        work = self._work
        work.is_given_up = True
        due = {each.task for each in work.failing}
        lost = [each for each in tasks if each.state not in _ENDED and each not in due]
        if work.last is None or not lost:
            return
        work.failing += [_Failing(each, work.last, f"Task {each.key} {why}", is_told=True) for each in lost]
        others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        text = f"Task {lost[0].key}{others}: {why}"
        self._publish("fail-task", work.last, text, task_key=str(lost[0].key))

    def _lift(self, task: TaskState) -> None:
        if (lift := self._work.restricted.pop(task, None)) is not None:
            lift()
            self._take_back([task])

    async def _restore(self) -> None:
        work, self._work = self._work, _Computation()
        for lift in work.restricted.values():
            lift()
        if work.lowering is not None:
            await work.lowering
            async with self._one_at_a_time:
                await internals.remove_worker_plugin(self._scheduler, THREADS_PLUGIN_NAME)
        if work.has_acted and work.last is not None:
            self._publish(
                "restore",
                work.last,
                "Everything is as it was before the first death",
                has_sufficed=_have_fewer_sufficed(work),
                sufficient_memory_bytes=self._sufficient_memory_bytes(work),
            )

    def _sufficient_memory_bytes(self, work: _Computation) -> int | None:
        """The memory of the bigger worker, if everything that was given to it has finished."""
        bigger = (each for each, _ in self._workers.values() if RESOURCE in each.resources)
        if not work.has_asked or any(internals.result_bytes(each) is None for each in work.restricted):
            return None
        return max((each.memory_limit for each in bigger), default=None)

    def _publish(self, act: ActKind, loss: _Loss, text: str, **facts: Any) -> None:
        """Say what was done, after the recorder has noted the death."""
        message = RescueAct(
            act=act,
            is_dry_run=self._dry_run,
            asked_by=self._asked_by,
            at=time.time(),
            text=text,
            worker_address=loss.worker.address,
            pid=loss.worker.pid or None,
            noticed_at=loss.noticed_at,
            **facts,
        )
        logger.info("%s%s.", "Dry run: " if self._dry_run else "", text)
        asyncio.get_running_loop().call_soon(self._scheduler.log_event, ACT_TOPIC, encode_message(message))


def _have_fewer_sufficed(work: _Computation) -> bool | None:
    """Whether what died in company has finished, and no worker died of fewer tasks at once; None: nobody tried."""
    if work.lowered_for is None:
        return None
    have_finished = all(internals.result_bytes(each) is not None for each in work.lowered_for.tasks)
    return have_finished and not work.has_died_since


def _is_full_of_results(loss: _Loss) -> bool:
    """Whether 40% of the worker was stored results that its tasks did not take: no other worker would help.

    By what was lost, and its last heartbeat (``Worker.get_metrics`` in worker.py), where results that are spilled
    count as managed too.
    """
    metrics: Reply = loss.worker.metrics or {}
    spilled = metrics.get("spilled_bytes")
    spilled_bytes = spilled.get("memory", 0) if isinstance(spilled, Mapping) else 0
    inputs = {each for task in loss.running or loss.tasks for each in task.dependencies}
    taken_bytes = sum(internals.result_bytes(each) or 0 for each in inputs)
    results_bytes = max(metrics.get("managed_bytes") or 0, loss.results_bytes)
    return bool(results_bytes - spilled_bytes - taken_bytes > 0.4 * loss.limit_bytes)


def _forget_oldest(remembered: dict[str, Any]) -> None:
    while len(remembered) > _MAX_REMEMBERED:
        remembered.pop(next(iter(remembered)))


async def undo_rescue(dask_scheduler: Any) -> None:
    """Undo what the plugin did, and remove it. Runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(PLUGIN_NAME)
    if plugin is not None:
        dask_scheduler.remove_plugin(name=PLUGIN_NAME)
        await plugin.undo()
