"""What the recorder relies on in distributed beside its public interface: one test for each private part.

Runs on every supported release. When a test fails, `workerdiag.recorder.internals` has one function to mend.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context

import dask
import pytest
from distributed import Client, KilledWorker, LocalCluster, Nanny, Scheduler, Worker

from workerdiag.procfs_and_cgroups import process_memory
from workerdiag.recorder import internals
from workerdiag.recorder.delivery import deliver
from workerdiag.recorder.large_objects import estimated_bytes
from workerdiag.recorder.recipes import Recipe, walk
from workerdiag.recorder.rescue import FewerThreads
from workerdiag.recorder.worker import LogCapture, OffThreadTasks, TaskSlots, ThreadTasks
from workerdiag.replay.child import run_spec
from workerdiag.sources.internals import is_correcting_workers
from workerdiag.wire import DEATH_TOPIC

from .processes import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.common]


class Notes:
    """In the place of a black box."""

    def __init__(self):
        self.noted = []

    def started(self, slot, key, thread_id, thread_name):
        self.noted.append(("started", slot, key, thread_id if thread_name else None))

    def finished(self, slot, outcome):
        self.noted.append((outcome, slot))

    def missed(self):
        self.noted.append(("missed",))


@asynccontextmanager
async def cluster(kind, **options):
    """A client and one worker, or nanny, in this process."""
    async with (
        Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
        kind(scheduler.address, nthreads=1, host="127.0.0.1", dashboard=False, **options) as server,
        Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
    ):
        yield server, client


async def until(ask):
    """Wait until *ask* says yes."""
    async with asyncio.timeout(PATIENCE_S):
        while not ask():  # noqa: ASYNC110  nobody sets an event for us
            await asyncio.sleep(0.01)


async def killed_and_back(nanny):
    """Kill the worker process of a nanny, and wait for the next one."""
    pid = nanny.pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: nanny.pid not in (None, pid) and nanny.process.status.name == "running")


def on_worker(test):
    """Run a test with a worker and a client."""

    async def run():
        async with cluster(Worker) as (worker, client):
            await test(worker, client)

    asyncio.run(run())


@pytest.mark.parametrize("early", [True, False], ids=["before its first worker", "while it has one"])
def test_a_nanny_is_told_the_exit_code(early):
    """`Nanny._on_worker_exit_sync` and `WorkerProcess.on_exit` get the code, whenever we come."""

    class Early(Nanny):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.codes = []
            self.undo = internals.watch_exits(self, self.codes.append) if early else None

    async def run():
        async with cluster(Early) as (nanny, _):
            nanny.undo = nanny.undo or internals.watch_exits(nanny, nanny.codes.append)
            assert nanny.undo is not None
            await killed_and_back(nanny)
            nanny.undo()
            assert "_on_worker_exit_sync" not in vars(nanny)
            await killed_and_back(nanny)
            assert nanny.codes == [-signal.SIGKILL]

    asyncio.run(run())


def test_a_nanny_says_that_it_asked_its_worker_to_close():
    """`WorkerProcess.kill` is what every order goes through, and the object outlives its processes."""

    async def run():
        async with cluster(Nanny) as (nanny, _):
            orders = []
            undo = internals.watch_stop_requests(nanny, lambda: orders.append(nanny.pid))
            first = nanny.pid
            await nanny.restart()
            second = nanny.pid
            await nanny.kill()
            assert orders == [first, second]
            undo()
            assert "kill" not in vars(nanny.process or object)

    asyncio.run(run())


def test_a_nanny_says_whom_it_ended_for_its_memory():
    """`NannyMemoryManager._last_terminated_pid` is the worker's process after such an end."""

    async def run():
        async with cluster(Nanny, memory_limit="1GB") as (nanny, _):
            assert internals.terminated_pid(nanny) is None
            assert internals.terminate_fraction(nanny) == 0.95
            pid, seen = nanny.pid, []
            undo = internals.watch_memory_kills(nanny, lambda each: seen.append((each, process_memory(each))))
            nanny.memory_manager.memory_terminate_fraction = 0.001
            await until(lambda: internals.terminated_pid(nanny) == pid)
            assert seen[0][0] == pid
            assert 10**7 < seen[0][1]["VmRSS"] <= seen[0][1]["VmHWM"]
            undo()
            assert "log_event" not in vars(nanny)
            nanny.memory_manager.memory_terminate_fraction = None

    asyncio.run(run())


def test_a_task_enters_and_leaves_its_thread():
    """Each task is in `Worker.active_threads` by the thread that runs it, and only while it runs."""

    async def test(worker, client):
        notes = Notes()
        slots = TaskSlots(notes, 4)
        undo = internals.watch_threads(worker, lambda old: ThreadTasks(slots, old))
        assert undo is not None
        thread = await client.submit(threading.get_ident, key="asks")
        assert notes.noted == [("started", 0, "asks", thread), ("ended", 0)]
        napping = client.submit(time.sleep, 0.3, key="naps")
        await until(lambda: len(notes.noted) == 3)
        (thread,) = internals.running_threads(worker)
        assert internals.running_threads(worker) == {thread: "naps"}
        files = []
        frame = internals.frames_by_thread()[thread]
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        assert any(file.endswith("distributed/worker.py") for file in files)
        assert not undo()
        await napping
        await until(undo)
        assert type(worker.active_threads) is dict

    on_worker(test)


def test_the_key_of_a_coroutine_is_entered():
    """`Worker.active_keys` has every task, and the task says by then whether it is a coroutine."""

    async def test(worker, client):
        notes = Notes()
        entered = []

        def asks(key):
            entered.append(key)
            return internals.off_thread_location(worker, key)

        undo = internals.watch_keys(worker, OffThreadTasks(TaskSlots(notes, 4), asks))
        assert undo is not None
        await client.submit(asyncio.sleep, 0, key="coroutine")
        await client.submit(time.sleep, 0, key="function")
        assert entered == ["coroutine", "function"]
        assert [each[2:] for each in notes.noted if each[0] == "started"] == [("coroutine", threading.get_ident())]
        undo()
        assert type(worker.active_keys) is set

    on_worker(test)


def test_the_key_of_a_task_in_a_pool_of_processes_is_entered():
    """`Worker.executors` and the annotation say which tasks no thread of the worker will run."""

    async def test(worker, client):
        notes = Notes()
        undo = internals.watch_keys(
            worker,
            OffThreadTasks(TaskSlots(notes, 4), lambda key: internals.off_thread_location(worker, key)),
        )
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            worker.executors["pool"] = pool
            with dask.annotate(executor="pool"):
                pooled = client.submit(os.getpid, key="pooled")
            assert await pooled != os.getpid()
            await client.submit(os.getpid, key="on a thread", pure=False)
            del worker.executors["pool"]
        assert notes.noted == [("started", 0, "pooled", 0), ("ended", 0)]
        undo()

    on_worker(test)


def test_a_worker_says_what_it_holds():
    """`WorkerState.nbytes` counts the bytes of results; where data is spilled, those on disk are known."""

    async def test(worker, client):
        assert internals.held_bytes(worker)[0] == 0
        future = client.submit(bytes, 100_000)
        await future
        held, spilled = internals.held_bytes(worker)
        assert held >= 100_000
        assert spilled in (None, 0)

    on_worker(test)


def test_a_worker_logs_why_it_closes():
    """The line "Stopping worker at %s. Reason: %s" is the one place that has the reason."""
    reasons = []

    async def test(worker, client):
        assert client
        copy = LogCapture(lambda _: None, lambda record: reasons.append(internals.close_reason(record)))
        copy.attach()
        try:
            await worker.close(reason="worker-lifetime-reached")
        finally:
            copy.detach()

    on_worker(test)
    assert [reason for reason in reasons if reason] == ["worker-lifetime-reached"]
    assert not any(isinstance(each, LogCapture) for each in logging.getLogger("distributed").handlers)


def test_contention_of_the_gil_is_a_share_or_not_known():
    """`SystemMonitor.quantities` has it where gilknocker is installed."""

    async def test(worker, client):
        assert client
        share = internals.gil_contention(worker)
        assert share is None or 0 <= share <= 1

    on_worker(test)


def test_a_message_reaches_the_scheduler_by_a_connection_of_its_own():
    """`rpc(...).log_event` needs neither the worker's stream nor its pool of connections."""

    async def test(worker, client):
        assert await deliver(worker, {"schema": 1})
        ((_, message),) = await client.get_events(DEATH_TOPIC)
        assert message == {"schema": 1}

    on_worker(test)


def test_a_scheduler_says_how_it_stands_and_why_it_closes():
    """Its workers and tasks by number; and events are counted, also those that others took the place of."""

    async def run():
        scheduler = await Scheduler(port=0, dashboard=False, host="127.0.0.1")
        worker = await Worker(scheduler.address, nthreads=1, host="127.0.0.1", dashboard=False)
        async with Client(scheduler.address, asynchronous=True, set_as_default=False) as client:
            await client.submit(abs, -1)
            figures = internals.cluster_figures(scheduler)
            assert (figures["worker_count"], figures["running_worker_count"]) == (1, 1)
            assert set(figures.values()) == {0, 1}
            await worker.close()
            future = client.submit(abs, -2)
            waiting = [await asyncio.sleep(0.01, internals.cluster_figures(scheduler)) for _ in range(100)]
            assert waiting[-1]["waiting_count"] == 1
            del future
        topic = scheduler._broker._topics["all"]
        assert topic.count == len(topic.events)
        assert internals.closing_reason(scheduler) is None
        await scheduler.close()
        assert internals.closing_reason(scheduler) == "unknown"

    asyncio.run(run())


def test_a_scheduler_says_what_results_take():
    """`TaskState.dependencies`, `nbytes`, `prefix` and `WorkerState.has_what` tell inputs and results in memory."""

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Worker(scheduler.address, nthreads=1, host="127.0.0.1", dashboard=False),
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            first = client.submit(bytes, 100_000, key="load-1")
            second = client.submit(len, first, key="count-1")
            await second
            load, count = scheduler.tasks["load-1"], scheduler.tasks["count-1"]
            assert count.dependencies == {load}
            assert not load.dependencies
            assert 100_000 <= internals.result_bytes(load) < 101_000
            assert {load, count} <= set().union(*(each.has_what for each in scheduler.workers.values()))
            assert load.prefix.states["memory"] == 1
            assert load.prefix.nbytes_total >= 100_000
            assert load.prefix.duration_average >= 0
            assert estimated_bytes(load.run_spec) > 0

    asyncio.run(run())


def test_threads_are_lowered_on_workers_of_now_and_later_and_raised_again():
    """`Scheduler.register_worker_plugin` reaches both; `WorkerState.nthreads` is what a worker compares with."""

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Worker(scheduler.address, nthreads=3, host="127.0.0.1", dashboard=False) as first,
        ):
            await internals.add_worker_plugin(scheduler, FewerThreads(1))
            async with Worker(scheduler.address, nthreads=3, host="127.0.0.1", dashboard=False) as later:
                assert (first.state.nthreads, later.state.nthreads) == (1, 1)
                await internals.remove_worker_plugin(scheduler, FewerThreads.name)
                assert (first.state.nthreads, later.state.nthreads) == (3, 3)
            await internals.remove_worker_plugin(scheduler, FewerThreads.name)  # there is none any more

    asyncio.run(run())


def test_a_task_waits_for_a_worker_with_a_resource_and_goes_back():
    """`TaskState.resource_restrictions` counts when a worker is chosen, also for a task that a worker has."""

    async def run():
        options = {"nthreads": 1, "host": "127.0.0.1", "dashboard": False}
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Worker(scheduler.address, **options) as first,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            busy = client.submit(time.sleep, 1, key="busy")
            await until(lambda: "busy" in scheduler.tasks and scheduler.tasks["busy"].state == "processing")
            future = client.submit(abs, -1, key="moved")
            await until(lambda: "moved" in scheduler.tasks)
            task = scheduler.tasks["moved"]
            assert not task.resource_restrictions
            lift = internals.require_resource(scheduler, task, "big")
            assert task.state == "no-worker"
            assert task.resource_restrictions
            assert [*scheduler.unrunnable, *scheduler.queued] == [task]
            assert internals.workers_with(scheduler, "big") == ()
            lift()
            assert task.state == "processing"
            lift = internals.require_resource(scheduler, task, "big")
            async with Worker(scheduler.address, resources={"big": 1}, **options) as big:
                assert await future == 1
                assert internals.workers_with(scheduler, "big") == (big.address,)
                assert "big" in scheduler.workers[big.address].resources
                assert "big" not in scheduler.workers[first.address].resources
            lift()
            assert not task.resource_restrictions
            await busy

    asyncio.run(run())


@pytest.mark.parametrize("state", ["processing", "no-worker"])
def test_a_task_fails_with_a_reason(state):
    """As when Dask gives up on it: the client gets KilledWorker, and whoever needs its result fails too."""

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Worker(scheduler.address, nthreads=1, host="127.0.0.1", dashboard=False) as worker,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            resources = {"resources": {"none": 1}} if state == "no-worker" else {}
            future = client.submit(time.sleep, 0.5, key="fails", **resources)
            after = client.submit(str, future)
            await until(lambda: "fails" in scheduler.tasks and scheduler.tasks["fails"].state == state)
            task, last = scheduler.tasks["fails"], scheduler.workers[worker.address]
            assert internals.fail_task(scheduler, task, last, 2, "because")
            assert not internals.fail_task(scheduler, task, last, 2, "because")
            for each in (future, after):
                with pytest.raises(KilledWorker) as caught:
                    await each
                assert (caught.value.task, caught.value.__notes__) == ("fails", ["because"])
                assert "on 2 different workers" in str(caught.value)
            assert await client.submit(abs, -1) == 1

    asyncio.run(run())


def test_blame_is_taken_back_and_given_again():
    """`TaskState.suspicious` and that of its prefix."""

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            future = client.submit(abs, -1, key="abs-1")
            await until(lambda: "abs-1" in scheduler.tasks)
            task = scheduler.tasks["abs-1"]
            task.suspicious = task.prefix.suspicious = 2
            assert internals.uncount_failure(task)
            assert (task.suspicious, task.prefix.suspicious) == (1, 1)
            del future

    asyncio.run(run())


def test_a_cluster_starts_and_ends_a_worker_of_another_size():
    """`SpecCluster.worker_spec` and `_correct_state`; what it gave up is started again when it is scaled."""

    async def run():
        options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "asynchronous": True}
        async with LocalCluster(**options) as cluster, Client(cluster, asynchronous=True) as client:
            assert internals.startable_bytes(cluster) > 2**28
            internals.start_worker(cluster, "big", 2**28, {"big": 1.0})
            await client.wait_for_workers(2, timeout=PATIENCE_S)
            # The scheduler knows of a worker before its nanny does.
            await until(lambda: internals.address_of_worker(cluster, "big") is not None)
            address = internals.address_of_worker(cluster, "big")
            state = cluster.scheduler.workers[address]
            assert (state.memory_limit, state.nthreads, dict(state.resources)) == (2**28, 1, {"big": 1.0})
            # The nanny is started; the cluster may still be noting it.
            await until(lambda: not is_correcting_workers(cluster))
            await cluster.workers.pop("big").close()
            cluster.scale(2)
            await client.wait_for_workers(2, timeout=PATIENCE_S)
            await internals.stop_worker(cluster, "big")
            assert set(cluster.workers) == {0}
        assert internals.startable_bytes(None) is None

    asyncio.run(run())


def test_a_cluster_keeps_the_nanny_of_a_lost_worker():
    """`SpecCluster._update_worker_status` reads ``lost-worker-timeout`` as it is told of the loss."""

    async def run():
        options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "asynchronous": True}
        impatient = dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"})
        async with LocalCluster(**options) as cluster, Client(cluster, asynchronous=True) as client:
            let_go = internals.keep_nannies(cluster, 600.0)
            nanny = cluster.workers[0]
            with impatient:
                os.kill(nanny.pid, signal.SIGKILL)
                await until(lambda: not cluster.scheduler_info["workers"])
                await client.wait_for_workers(1, timeout=PATIENCE_S)
                assert cluster.workers == {0: nanny}
            let_go()
            assert "_update_worker_status" not in vars(cluster)
        assert internals.keep_nannies(None, 1.0) is None

    asyncio.run(run())


def test_a_specification_and_its_inputs_compute_a_task_again():
    """`TaskState.run_spec` is on the scheduler as the caller made it, of ancestors too, and of each kind of task."""

    def add(*numbers, more=0):
        return sum(numbers) + more

    async def later(number):
        return number + 1

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Worker(scheduler.address, nthreads=1, host="127.0.0.1", dashboard=False),
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            scattered = await client.scatter(100)
            first = client.submit(add, 1, more=10)
            built = dask.delayed(add)(
                dask.delayed(add)(1, 2, dask_key_name=("part", 0)), [3][0], dask_key_name="built"
            )
            last = client.submit(later, client.submit(add, first, scattered, client.compute(built), key="add"))
            assert await last == 118
            await until(lambda: scheduler.tasks[first.key].state in ("memory", "released"))
            task = scheduler.tasks[last.key]
            recipe = Recipe(worker="", at=0.0, tasks=(task.key,))
            list(walk(recipe, [task]))
            assert recipe.gaps == {scattered.key: "no-recipe"}
            assert {"add", "built", ("part", 0), first.key, last.key} == set(recipe.steps)
            return recipe.steps, scattered.key, last.key

    steps, scattered, last = asyncio.run(run())

    def computed(key):
        if key == scattered:
            return 100
        spec, inputs = steps[key]
        return run_spec(spec, {each: computed(each) for each in inputs})

    assert computed(last) == 118


@pytest.mark.parametrize("of_all", [False, True], ids=["one client", "all clients"])
def test_graphs_of_collections_are_seen_before_they_are_sent(of_all):
    """`Client._graph_to_futures` is called by those that compute collections, and by no other that we count."""

    async def run():
        async with cluster(Worker) as (_, client):
            seen = []
            undo = internals.watch_graphs(
                lambda sender, frame: seen.append((sender, frame.f_code.co_name)), None if of_all else client
            )
            assert undo is not None
            work = dask.delayed(pow)(2, 3)
            assert await client.compute(work) == 8
            client.persist(work)
            client.get({"x": (pow, 2, 3)}, "x", sync=False)
            await client.submit(pow, 2, 3)
            await client.gather(client.map(abs, [1]))
            undo()
            client.persist(work)
            assert seen == [(client, "compute"), (client, "persist"), (client, "get")]
            assert "_graph_to_futures" not in vars(client)
            assert Client._graph_to_futures.__module__ == "distributed.client"

    asyncio.run(run())
