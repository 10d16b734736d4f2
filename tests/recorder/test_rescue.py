"""What `workerdiag.rescue` does on the scheduler, with one made of plain objects; tests/lab has real ones."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import Counter
from types import SimpleNamespace

import dask
import pytest

from workerdiag.recorder import rescue as rescue_module
from workerdiag.recorder.rescue import RESOURCE, FewerThreads, RescueMemoryDeaths, undo_rescue
from workerdiag.wire import ACT_TOPIC, DEATH_TOPIC
from workerdiag.wire.messages import (
    CgroupCounters,
    DeathReport,
    ExitReport,
    RemovalRecord,
    RescueAct,
    decode_message,
    encode_message,
)
from workerdiag.wire.recorded_death import RecordedDeath, merge_messages

ONE, OTHER = "tcp://10.0.0.4:1001", "tcp://10.0.0.4:1002"


class Task:
    """As the scheduler's TaskState, as far as it is looked at."""

    def __init__(self, key, nbytes=-1):
        self.key, self.nbytes, self.state, self.suspicious = key, nbytes, "processing", 0
        self.prefix = SimpleNamespace(suspicious=0)
        self.resource_restrictions = self.worker_restrictions = self.host_restrictions = None
        self.dependencies, self.processing_on = set(), None


class Scheduler:
    """As the scheduler, as far as it is asked; a worker is removed in the order in which Dask does it."""

    def __init__(self):
        self.workers, self.tasks, self.resources, self.plugins = {}, {}, {}, {}
        self.unrunnable, self.queued, self.acts, self.sent = {}, [], [], Counter()

    def log_event(self, topic, msg):
        if topic == ACT_TOPIC:
            self.acts.append(decode_message(msg))
        for plugin in list(self.plugins.values()):
            plugin.log_event(topic, msg)

    def join(self, address, *, nthreads=2, resources=None, **metrics):
        state = SimpleNamespace(
            address=address,
            pid=7,
            nthreads=nthreads,
            memory_limit=500_000_000,
            last_seen=time.time() + 60,  # heartbeats come when the test says so
            metrics={"memory": 400_000_000, **metrics},
            processing=set(),
            executing={},
            resources=resources or {},
        )
        state.clean = lambda: SimpleNamespace(address=address)
        self.workers[address] = state
        for name in state.resources:
            self.resources.setdefault(name, {})[address] = 1
        for plugin in self.plugins.values():
            plugin.add_worker(self, address)

    def give(self, address, *keys, running=()):
        """Assign tasks to a worker."""
        for key in keys:
            task = self.tasks.setdefault(key, Task(key))
            task.state, task.processing_on = "processing", self.workers[address]
            self.workers[address].processing.add(task)
            if key in running:
                self.workers[address].executing[task] = 1.0
            self.unrunnable.pop(task, None)

    def lose(self, address, *, for_memory=True, expected=False):
        """As ``Scheduler.remove_worker``."""
        if for_memory:
            self.log_event("worker-restart-memory", {"worker": address, "pid": 7, "rss": 480_000_000})
        state = self.workers.pop(address)
        for name in state.resources:
            self.resources[name].pop(address, None)
        for task in state.processing:
            if not expected:
                task.suspicious += 1
                task.prefix.suspicious += 1
        keys = {task.key for task in state.processing}
        event = {"action": "remove-worker", "worker": address, "processing-tasks": keys, "expected": expected}
        self.log_event("all", event)
        self.transitions(dict.fromkeys(keys, "released"), "")

    def transitions(self, recommendations, stimulus_id):  # noqa: ARG002  as it is called
        for key in recommendations:
            task = self.tasks[key]
            task.state, task.processing_on = "no-worker", None
            self.unrunnable[task] = 0.0

    def transition(self, key, finish, stimulus_id, *, exception=None, **_):
        if finish == "released":
            return {key: stimulus_id}
        task = self.tasks[key]
        task.state, task.exception = finish, pickle.loads(exception)
        self.unrunnable.pop(task, None)
        return {}

    async def register_worker_plugin(self, _, plugin, name, idempotent):  # noqa: ARG002  as it is called
        self.sent[name] += 1

    async def unregister_worker_plugin(self, _, name):
        self.sent[name] -= 1

    def remove_plugin(self, name):
        del self.plugins[name]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(rescue_module, "_LOOK_S", 0.001)


async def started(**options):
    scheduler = Scheduler()
    scheduler.plugins["workerdiag-rescue"] = plugin = RescueMemoryDeaths(**options)
    await plugin.start(scheduler)
    return scheduler, plugin


async def looked():
    """Let the plugin look at the computation some times."""
    await asyncio.sleep(0.05)


def kinds(scheduler):
    return [each.act for each in scheduler.acts]


def run(test):
    """Run an asynchronous test."""

    def call():
        asyncio.run(test())

    call.__name__, call.__doc__ = test.__name__, test.__doc__
    return call


@run
async def test_a_death_in_company_lowers_the_threads_and_blames_nobody():
    """Nothing is lost yet, and no task is told to kill."""
    scheduler, _ = await started()
    scheduler.join(ONE)
    scheduler.give(ONE, "a", "b", "c", running=("a", "b"))
    scheduler.lose(ONE)
    await looked()
    assert kinds(scheduler) == ["lower-threads"]
    assert (scheduler.acts[0].threads, scheduler.acts[0].worker_address) == (1, ONE)
    assert scheduler.sent["workerdiag-fewer-threads"] == 1
    assert {each.suspicious for each in scheduler.tasks.values()} == {0}


@run
async def test_a_task_that_kills_alone_waits_for_a_bigger_worker():
    """And Dask's count begins anew for it."""
    scheduler, _ = await started(most_memory_bytes=2_000_000_000)
    scheduler.join(ONE)
    scheduler.give(ONE, "a")
    scheduler.lose(ONE)
    await looked()
    task = scheduler.tasks["a"]
    assert kinds(scheduler) == ["bigger-worker"]
    assert (scheduler.acts[0].task_key, scheduler.acts[0].memory_bytes) == ("a", 2_000_000_000)
    assert (task.resource_restrictions, task.suspicious, task.state) == ({RESOURCE: 1}, 0, "no-worker")


@run
async def test_without_a_bigger_worker_it_fails_at_the_second_death_with_the_reason():
    """One death is no proof: what earlier tasks had left may have filled the worker."""
    scheduler, _ = await started()
    for _ in range(2):
        scheduler.join(ONE)
        scheduler.give(ONE, "a")
        scheduler.lose(ONE)
        assert len(scheduler.acts) == 0
        await looked()
    task = scheduler.tasks["a"]
    assert (kinds(scheduler), task.state) == (["fail-task", "restore"], "erred")
    assert task.exception.task == "a"
    assert task.exception.allowed_failures == 1  # "on 2 different workers"
    assert "a bigger worker is not allowed" in task.exception.__notes__[0]


@pytest.mark.parametrize("has_finished", [True, False])
def test_the_limit_with_which_it_finished_is_told(has_finished):
    """Whoever cancels the work has proven nothing."""

    async def test():
        scheduler, _ = await started(most_memory_bytes=2_000_000_000)
        scheduler.join(ONE)
        scheduler.give(ONE, "a")
        scheduler.lose(ONE)
        scheduler.join(OTHER, resources={RESOURCE: 1})
        scheduler.workers[OTHER].memory_limit = 2_000_000_000
        for task in scheduler.tasks.values():
            task.state, task.nbytes = ("memory", 8) if has_finished else ("forgotten", -1)
        scheduler.unrunnable.clear()
        await looked()
        assert scheduler.acts[-1].sufficient_memory_bytes == (2_000_000_000 if has_finished else None)

    asyncio.run(test())


@run
async def test_a_task_that_kills_the_bigger_worker_fails():
    """More memory than allowed is never asked for."""
    scheduler, _ = await started(most_memory_bytes=2_000_000_000)
    scheduler.join(ONE)
    scheduler.give(ONE, "a")
    scheduler.lose(ONE)
    scheduler.join(OTHER, nthreads=1, resources={RESOURCE: 1})
    scheduler.give(OTHER, "a", "b", running=("a",))
    scheduler.lose(OTHER)
    await looked()
    assert kinds(scheduler) == ["bigger-worker", "fail-task"]
    assert (scheduler.tasks["a"].state, scheduler.tasks["b"].state) == ("erred", "no-worker")
    assert scheduler.tasks["b"].suspicious == 0


@pytest.mark.parametrize("loss", [{"for_memory": False}, {"expected": True}])
def test_other_deaths_are_left_alone(loss):
    """A crash, an exit, an order to stop."""

    async def test():
        scheduler, _ = await started(most_memory_bytes=2_000_000_000)
        scheduler.join(ONE)
        scheduler.give(ONE, "a", "b")
        scheduler.lose(ONE, **loss)
        await looked()
        assert scheduler.acts == []
        assert {each.suspicious for each in scheduler.tasks.values()} == {0 if "expected" in loss else 1}

    asyncio.run(test())


@pytest.mark.parametrize(("inputs", "is_left_alone"), [(0, True), (300_000_000, False)])
def test_a_worker_full_of_results_is_left_alone(inputs, is_left_alone):
    """Unless they are the inputs of what ran."""

    async def test():
        scheduler, _ = await started()
        scheduler.join(ONE, managed_bytes=300_000_000, spilled_bytes={"memory": 0, "disk": 0})
        scheduler.give(ONE, "a", "b")
        scheduler.tasks["a"].dependencies = {Task("input", inputs)}
        scheduler.lose(ONE)
        await looked()
        assert (scheduler.acts == []) == is_left_alone

    asyncio.run(test())


@run
async def test_a_bystander_goes_on_where_a_report_says_that_it_did_not_run():
    """The flight recorder knows, some milliseconds after Dask gave the tasks to others."""
    scheduler, _ = await started()
    for _ in range(3):
        scheduler.join(ONE, nthreads=1)
        scheduler.give(ONE, "a", "b")
        scheduler.lose(ONE)
        running = [{"key": "a", "slot": 0, "since": 0.0}]
        report = encode_message(DeathReport(kind="nanny-report", worker_address=ONE, is_memory_terminated=True))
        scheduler.log_event(DEATH_TOPIC, report | {"running_tasks": running})
        await looked()
    assert scheduler.tasks["a"].state == "erred"
    assert (scheduler.tasks["b"].state, scheduler.tasks["b"].resource_restrictions) == ("no-worker", None)


KILLED_BY_KERNEL = DeathReport(
    kind="nanny-report",
    worker_address=ONE,
    exit=ExitReport(signal=9),
    cgroup=CgroupCounters(limit_bytes=500_000_000, oom_kills_before=0, oom_kills_after=1),
)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (DEATH_TOPIC, encode_message(KILLED_BY_KERNEL)),
        ("worker-restart-memory", {"worker": ONE, "pid": 7, "rss": 500_000_000}),
    ],
)
def test_what_proves_a_death_may_come_after_the_loss(topic, message):
    """The kernel's own count is reported later, and a nanny's word has another way than the worker's connection."""

    async def test():
        scheduler, _ = await started()
        scheduler.join(ONE)
        scheduler.give(ONE, "a", "b")
        scheduler.lose(ONE, for_memory=False)
        scheduler.log_event(topic, message)
        await looked()
        assert kinds(scheduler) == ["lower-threads"]
        assert {each.suspicious for each in scheduler.tasks.values()} == {0}

    asyncio.run(test())


@run
async def test_the_limit_of_a_control_group_is_the_one_that_a_task_took_more_than():
    """Dask may know of another, or of none."""
    scheduler, _ = await started()
    for _ in range(2):
        scheduler.join(ONE, nthreads=1)
        scheduler.workers[ONE].memory_limit = 0
        scheduler.give(ONE, "a", running=["a"])
        scheduler.lose(ONE, for_memory=False)
        group = CgroupCounters(limit_bytes=300 * 2**20, oom_kills_before=0, oom_kills_after=1)
        report = DeathReport(kind="nanny-report", worker_address=ONE, exit=ExitReport(signal=9), cgroup=group)
        scheduler.log_event(DEATH_TOPIC, encode_message(report))
        await looked()
    assert "Task a alone took more than the 300 MiB" in scheduler.tasks["a"].exception.__notes__[0]


@run
async def test_a_task_that_is_bound_to_workers_is_not_moved():
    """Such as the parts of a shuffle."""
    scheduler, _ = await started(most_memory_bytes=2_000_000_000)
    for _ in range(2):
        scheduler.join(ONE)
        scheduler.give(ONE, "a")
        scheduler.tasks["a"].worker_restrictions = {ONE}
        scheduler.lose(ONE)
        await looked()
    assert kinds(scheduler) == ["fail-task", "restore"]
    assert "may not run on another one" in scheduler.acts[0].text


@run
async def test_a_dry_run_says_it_and_changes_nothing():
    """Restrictions, blame, threads and plugins are as before."""
    scheduler, _ = await started(most_memory_bytes=2_000_000_000, dry_run=True)
    scheduler.join(ONE)
    scheduler.give(ONE, "a", "b")
    scheduler.lose(ONE)
    scheduler.join(ONE)
    scheduler.give(ONE, "a")
    scheduler.lose(ONE)
    await looked()
    assert kinds(scheduler) == ["lower-threads", "bigger-worker"]
    assert all(each.is_dry_run for each in scheduler.acts)
    assert [each.suspicious for each in scheduler.tasks.values()] == [2, 1]
    assert {each.resource_restrictions for each in scheduler.tasks.values()} == {None}
    assert not scheduler.sent


@run
async def test_what_nobody_runs_within_the_deadline_fails():
    """A restriction that nobody can satisfy would be a hang."""
    scheduler, _ = await started(most_memory_bytes=2_000_000_000, deadline_s=0.02)
    scheduler.join(ONE)
    scheduler.join(OTHER)
    scheduler.give(ONE, "a")
    scheduler.lose(ONE)
    await asyncio.sleep(0.1)
    assert kinds(scheduler)[:2] == ["bigger-worker", "fail-task"]
    assert "needs a bigger worker" in scheduler.tasks["a"].exception.__notes__[0]


@run
async def test_work_fails_when_no_worker_comes_back():
    """As it would wait for ever; it is said once for all tasks."""
    scheduler, _ = await started(deadline_s=0.02)
    scheduler.join(ONE)
    scheduler.give(ONE, "a", "b", "c")
    scheduler.lose(ONE)
    await asyncio.sleep(0.1)
    assert {each.state for each in scheduler.tasks.values()} == {"erred"}
    assert kinds(scheduler).count("fail-task") == 1


@run
async def test_all_is_as_before_when_the_computation_is_over():
    """Also for a task that is computed again later."""
    scheduler, _ = await started(most_memory_bytes=2_000_000_000)
    scheduler.join(ONE)
    scheduler.join(OTHER)
    scheduler.give(ONE, "a", "b")
    scheduler.lose(ONE)
    scheduler.join(ONE)
    scheduler.give(ONE, "a")
    scheduler.lose(ONE)
    scheduler.join(ONE)
    for task in scheduler.tasks.values():
        task.state = "memory"
    scheduler.unrunnable.clear()
    await looked()
    assert kinds(scheduler) == ["lower-threads", "bigger-worker", "restore"]
    assert scheduler.sent["workerdiag-fewer-threads"] == 0
    assert scheduler.tasks["a"].resource_restrictions is None
    assert scheduler.acts[-1].has_sufficed is False


@pytest.mark.parametrize(
    ("have_finished", "dies_again", "has_sufficed"), [(1, 0, True), (0, 0, False), (1, 1, False)]
)
def test_fewer_tasks_at_once_have_sufficed_if_the_work_finished_and_no_worker_died(
    have_finished, dies_again, has_sufficed
):
    """Whoever cancels the work has proven nothing, and a death of whatever cause speaks against it."""

    async def test():
        scheduler, _ = await started()
        scheduler.join(ONE)
        scheduler.join(OTHER)
        scheduler.give(ONE, "a", "b")
        scheduler.lose(ONE)
        if dies_again:
            scheduler.give(OTHER, "a")
            scheduler.lose(OTHER, for_memory=False)
        for task in scheduler.tasks.values():
            task.state, task.nbytes = ("memory", 8) if have_finished else ("forgotten", -1)
        scheduler.unrunnable.clear()
        await looked()
        assert scheduler.acts[-1].has_sufficed is has_sufficed

    asyncio.run(test())


@run
async def test_undoing_gives_back_the_blame_too():
    """As if nothing had been done."""
    scheduler, _ = await started()
    scheduler.join(ONE)
    scheduler.give(ONE, "a", "b")
    scheduler.lose(ONE)
    await undo_rescue(scheduler)
    assert scheduler.plugins == {}
    assert {each.suspicious for each in scheduler.tasks.values()} == {1}
    assert scheduler.sent["workerdiag-fewer-threads"] == 0


def test_a_worker_has_its_threads_back_when_the_plugin_goes():
    """And one that has fewer anyway stays as it is."""
    for nthreads in (4, 1):
        worker = SimpleNamespace(state=SimpleNamespace(nthreads=nthreads))
        plugin = FewerThreads(1)
        plugin.setup(worker)
        assert worker.state.nthreads == 1
        plugin.teardown(worker)
        assert worker.state.nthreads == nthreads


def test_the_preload_only_says_it_by_default():
    """Acting is switched on by name."""
    from distributed import Scheduler as Real

    from workerdiag.rescue import dask_setup

    async def plugin_with(config):
        with dask.config.set(config):
            async with Real(port=0, dashboard=False, host="127.0.0.1") as scheduler:
                await dask_setup(scheduler)
                return vars(scheduler.plugins["workerdiag-rescue"])

    acting = {"workerdiag.rescue.mode": "act", "workerdiag.rescue.most-memory": "2 GB"}
    assert asyncio.run(plugin_with({}))["_dry_run"]
    found = asyncio.run(plugin_with(acting))
    assert (found["_dry_run"], found["_most_memory_bytes"], found["_deadline_s"]) == (False, 2_000_000_000, 600.0)


def test_an_act_belongs_to_the_death_that_led_to_it():
    """One without a known death is left out."""
    now = time.time()
    act = RescueAct(act="lower-threads", text="Fewer", worker_address=ONE, pid=7, noticed_at=now)
    record = RemovalRecord(worker_address=ONE, pid=7, noticed_at=now)
    assert merge_messages([record, act, act]) == (RecordedDeath(record=record, acts=(act,)),)
    assert merge_messages([act]) == ()
    assert decode_message(encode_message(act)) == act
