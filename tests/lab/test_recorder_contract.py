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
from distributed import Client, Nanny, Scheduler, Worker

from workerdiag.procfs_and_cgroups import process_memory
from workerdiag.recorder import internals
from workerdiag.recorder.delivery import deliver
from workerdiag.recorder.large_objects import estimated_bytes
from workerdiag.recorder.worker import LogCapture, OffThreadTasks, TaskSlots, ThreadTasks
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
            assert internals.inputs_of(count) == {load}
            assert not internals.inputs_of(load)
            assert 100_000 <= internals.result_bytes(load) < 101_000
            assert {load, count} <= set(internals.stored_tasks(scheduler))
            assert load.prefix.states["memory"] == 1
            assert load.prefix.nbytes_total >= 100_000
            assert load.prefix.duration_average >= 0
            assert estimated_bytes(load.run_spec) > 0

    asyncio.run(run())
