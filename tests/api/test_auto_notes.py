"""The answer in each exception of a client, by itself. The client here is a stand-in; tests/lab has real ones."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import subprocess
import sys
import threading
from unittest.mock import AsyncMock, Mock

import dask.config
import pytest
from distributed import Future, as_completed
from distributed.actor import ActorFuture, _Error
from distributed.client import FutureState
from distributed.scheduler import KilledWorker, NoValidWorkerError

import workerdiag
from support.findings import explained
from workerdiag.api import annotate, warm_up
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import LATE_NOTE
from workerdiag.rendering.text import failure_note

DIAGNOSIS = Diagnosis(outcome="explained", summary="-", causes=explained().causes, deaths=explained().deaths)


class StandIn:
    """As much of a client as takes messages of the scheduler (distributed.client.Client)."""

    def __init__(self, *keys):
        self.futures = {key: FutureState(key) for key in keys}
        self.loop = Mock()
        self.status = "running"
        self._stream_handlers = {
            "task-erred": self._erred,
            "task-retried": self._retried,
            "key-in-memory": self._finished,
            "event": print,
        }

    def _erred(self, key=None, exception=None, traceback=None):
        self.futures[key].set_error(exception, traceback)

    def _retried(self, key=None):
        self.futures[key].retry()

    def _finished(self, key=None):
        self.futures[key].finish()

    def sync(self, func, *args, **options):
        """Call it at once."""
        return func(*args, **options)

    def wait_for_workers(self, n_workers, timeout=None):
        """Nothing is waited for here."""

    def close(self):
        """Nothing is open."""

    def tell(self, op, **message):
        """Hand a message of the scheduler to its handler."""
        self._stream_handlers[op](**message)

    def exception(self, key):
        """What ``future.exception()`` would return by now."""
        return self.futures[key].exception


def killed(worker="tcp://10.0.0.4:3493"):
    """What Dask raises when workers died under a task."""
    return KilledWorker("load-1", Mock(address=worker), 3)


@pytest.fixture
def calls(monkeypatch):
    """The exceptions that were explained; each call takes a turn of the loop, and there is time for all of them."""
    made = []

    async def explain(exc, client, **options):
        made.append(exc)
        await asyncio.sleep(0.01)
        return DIAGNOSIS

    monkeypatch.setattr(importlib.import_module("workerdiag.api.explain"), "explain", explain)
    with dask.config.set({"workerdiag.note.timeout": "10m"}):
        yield made


async def until_told(client, *keys):
    """Wait until these tasks have an exception."""
    for key in keys:
        await client.futures[key].wait()


async def told_with_little_time():
    """A client that was told of a killed worker, and gave the answer 50 ms."""
    client = StandIn("load-1")
    workerdiag.auto(client)
    with dask.config.set({"workerdiag.note.timeout": "50ms"}):
        client.tell("task-erred", key="load-1", exception=killed(), traceback=None)
    await asyncio.wait_for(until_told(client, "load-1"), 30)
    return client


def test_a_killed_worker_arrives_with_its_note(calls):
    """Whoever reads the future sees the cause."""

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        exc = killed()
        client.tell("task-erred", key="load-1", exception=exc, traceback=None)
        await until_told(client, "load-1")
        assert client.exception("load-1") is exc
        assert "Cause: The nanny killed the worker" in exc.__notes__[0]

    asyncio.run(scene())


def test_other_exceptions_arrive_at_once_and_untouched(calls):
    """A task that failed by itself is handed on within the same turn of the loop."""

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        exc = ValueError("bad row")
        client.tell("task-erred", key="load-1", exception=exc, traceback=None)
        assert client.exception("load-1") is exc
        assert not hasattr(exc, "__notes__")
        assert not calls

    asyncio.run(scene())


@pytest.mark.slow
def test_one_death_is_explained_once_for_all_its_tasks(calls):
    """A thousand tasks that one death failed cost one diagnosis."""

    async def scene():
        keys = [f"load-{number}" for number in range(1000)]
        client = StandIn(*keys)
        workerdiag.auto(client)
        for key in keys:
            client.tell("task-erred", key=key, exception=killed(), traceback=None)
        await until_told(client, *keys)
        assert len(calls) == 1
        assert all(client.exception(key).__notes__ for key in keys)

    asyncio.run(scene())


def test_without_an_answer_in_time_the_exception_arrives_all_the_same(monkeypatch):
    """An answer that does not come holds an exception up for the promised time and no longer."""

    async def never(exc, client, **options):
        await asyncio.Event().wait()

    monkeypatch.setattr(importlib.import_module("workerdiag.api.explain"), "explain", never)

    async def scene():
        client = await told_with_little_time()
        assert "no answer in time" in client.exception("load-1").__notes__[0]

    asyncio.run(scene())


def test_an_answer_that_fails_when_nobody_waits_for_it_is_not_complained_of(monkeypatch, caplog):
    """The log has no "Task exception was never retrieved" beside the user's traceback."""

    async def late(exc, client, **options):
        await asyncio.sleep(0.2)
        raise TimeoutError

    monkeypatch.setattr(importlib.import_module("workerdiag.api.explain"), "explain", late)

    async def scene():
        await told_with_little_time()
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  whoever waits for a task may look at its exception
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_importing_what_makes_a_note_holds_nothing_up(monkeypatch):
    """On a busy machine it takes seconds; meanwhile the client's loop runs, and the exception arrives in time."""
    may_end = threading.Event()
    monkeypatch.setattr(warm_up, "import_all", may_end.wait)

    async def scene():
        client = await told_with_little_time()
        assert "no answer in time" in client.exception("load-1").__notes__[0]
        may_end.set()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("place", "status", "is_late"),
    [
        ("nanny log", "running", True),
        ("scheduler", "running", True),
        ("other", "running", False),
        ("scheduler", "connecting", False),
    ],
)
def test_unknown_for_want_of_time_is_told_as_that(monkeypatch, place, status, is_late):
    """Where the cluster had no time to say all, a note does not claim that nothing tells why.

    A scheduler that is gone says nothing in any time.
    """
    gap = Gap(source="it", place=place, reason="timed-out")
    diagnosis = Diagnosis(outcome="unknown", summary="-", gaps=(gap,))
    monkeypatch.setattr(
        importlib.import_module("workerdiag.api.explain"), "explain", AsyncMock(return_value=diagnosis)
    )

    async def scene():
        client = StandIn("load-1")
        client.status = status
        workerdiag.auto(client)
        with dask.config.set({"workerdiag.note.timeout": "10m"}):
            client.tell("task-erred", key="load-1", exception=killed(), traceback=None)
        await until_told(client, "load-1")
        (note,) = client.exception("load-1").__notes__
        assert (note == LATE_NOTE) == is_late

    asyncio.run(scene())


def test_a_preload_that_was_imported_before_watches_clients_that_start():
    """It is imported as a module first, e.g. by a program that calls ``auto`` too, and then Dask's preload."""
    program = (
        "import workerdiag.auto as preload; from distributed import Client; from unittest.mock import Mock;"
        "preload.auto, before = Mock(), Client._start; preload.dask_setup(Mock()); once = Client._start;"
        "preload.dask_setup(Mock()); print(before is not once, once is Client._start)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "True"]


def test_what_the_loop_imports_for_an_exception_is_little():
    """Neither attrs nor what makes an answer is imported in the client's loop."""
    script = "import sys, workerdiag.api.auto_notes; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"attr", "re2", "workerdiag.api.explain", "workerdiag.rendering.text"} & set(imported)


def test_a_failure_of_ours_is_no_second_exception(monkeypatch):
    """Whatever fails on the way, the user gets the exception that Dask raised."""

    async def broken(exc, client, **options):
        raise RuntimeError("broken")

    monkeypatch.setattr(importlib.import_module("workerdiag.api.explain"), "explain", broken)

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        exc = killed()
        client.tell("task-erred", key="load-1", exception=exc, traceback=None)
        await until_told(client, "load-1")
        assert client.exception("load-1") is exc

    asyncio.run(scene())


def test_a_task_that_runs_again_does_not_get_its_old_exception(calls):
    """A retry that the scheduler announces while the note is made comes out on top."""

    async def scene():
        client = StandIn("load-1", "load-2")
        workerdiag.auto(client)
        for key in client.futures:
            client.tell("task-erred", key=key, exception=killed(), traceback=None)
        client.tell("task-retried", key="load-1")
        await until_told(client, "load-2")
        assert client.futures["load-1"].status == "pending"

    asyncio.run(scene())


def test_a_task_that_fails_again_gets_its_last_exception(calls):
    """Of two exceptions of one task the first is forgotten with the retry between them."""

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        last = killed()
        client.tell("task-erred", key="load-1", exception=killed(), traceback=None)
        client.tell("task-retried", key="load-1")
        client.tell("task-erred", key="load-1", exception=last, traceback=None)
        await until_told(client, "load-1")
        assert client.exception("load-1") is last

    asyncio.run(scene())


def test_a_task_that_was_submitted_anew_does_not_get_an_old_exception(calls):
    """Dask gives the same function and arguments the same key, and the exception was of the first future."""

    async def scene():
        client = StandIn("load-1", "load-2")
        workerdiag.auto(client)
        for key in client.futures:
            client.tell("task-erred", key=key, exception=killed(), traceback=None)
        client.futures["load-1"] = FutureState("load-1")
        await until_told(client, "load-2")
        assert client.futures["load-1"].status == "pending"

    asyncio.run(scene())


@pytest.mark.parametrize("before", [LATE_NOTE, failure_note("boom")])
def test_an_answer_that_came_too_late_may_still_be_added(before):
    """Who asks again with more time gets the answer in place of the note that there was none."""
    exc = killed()
    exc.add_note(before)
    annotate.add_note(exc, DIAGNOSIS)
    (note,) = exc.__notes__
    assert "Cause: The nanny killed the worker" in note


def test_a_cancelled_task_stays_cancelled(calls):
    """Who cancels while the note is made sees a cancelled future."""

    async def scene():
        client = StandIn("load-1", "load-2")
        workerdiag.auto(client)
        for key in client.futures:
            client.tell("task-erred", key=key, exception=killed(), traceback=None)
        client.futures["load-1"].cancel()
        await until_told(client, "load-2")
        assert client.futures["load-1"].status == "cancelled"

    asyncio.run(scene())


def test_switched_on_twice_and_off_once_the_client_is_as_it_was():
    """Undoing leaves the client's own handlers and methods, and those of `as_completed` and actors' futures."""
    client, result, following = StandIn(), ActorFuture._result, as_completed.__next__
    before, attributes = dict(client._stream_handlers), set(vars(client))
    workerdiag.auto(client)
    workerdiag.auto(client)
    assert {"sync", "close", "wait_for_workers"} <= set(vars(client))
    for _ in range(2):
        workerdiag.auto(client, on=False)
        assert client._stream_handlers == before
        assert set(vars(client)) == attributes
        assert ActorFuture._result is result
        assert as_completed.__next__ is following


@pytest.mark.parametrize(
    ("exc", "is_noted"),
    [
        (NoValidWorkerError("t", {"10.9.9.9"}, {}, {}, 5.0), True),
        (
            MemoryError("Task 't' has 457.76 MiB worth of input dependencies, but worker tcp://a has memory_limit"),
            True,
        ),
        (RuntimeError("P2P 1234 failed during transfer phase"), True),
        (ModuleNotFoundError("No module named 'attrs'", name="attrs"), True),
        (ModuleNotFoundError("No module named 'nowhere_at_all'", name="nowhere_at_all"), False),
        (TimeoutError("the database is slow"), False),
    ],
)
def test_what_the_scheduler_reports_gets_a_note_if_the_cluster_is_behind_it(calls, exc, is_noted):
    """A task's own error has none, unless this process has the module that the task lacked."""

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        client.tell("task-erred", key="load-1", exception=exc, traceback=None)
        await until_told(client, "load-1")
        assert client.exception("load-1") is exc
        assert bool(getattr(exc, "__notes__", [])) == is_noted
        assert bool(calls) == is_noted

    asyncio.run(scene())


def test_a_refused_task_gets_a_note_though_nothing_died(monkeypatch):
    """What the cluster is behind is told in any case."""
    found = AsyncMock(return_value=Diagnosis(outcome="no-death", summary="No worker died"))
    monkeypatch.setattr(importlib.import_module("workerdiag.api.explain"), "explain", found)

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        exc = MemoryError("Task 't' has 2 GiB worth of input dependencies, but worker tcp://a has memory_limit")
        with dask.config.set({"workerdiag.note.timeout": "10m"}):
            client.tell("task-erred", key="load-1", exception=exc, traceback=None)
        await until_told(client, "load-1")
        assert "No worker died" in exc.__notes__[0]

    asyncio.run(scene())


def test_an_actor_whose_worker_is_gone_gets_a_note(calls):
    """Its error is in the future of the call alone, which knows no client but an event loop."""

    async def scene():
        client = StandIn()
        workerdiag.auto(client)
        future = ActorFuture(client.loop)
        future._set_result(_Error(OSError("Unable to contact Actor's worker")))
        other = ActorFuture(Mock())
        other._set_result(_Error(OSError("Unable to contact Actor's worker")))
        for each, is_noted in ((future, True), (other, False)):
            with pytest.raises(OSError, match="Unable to contact") as caught:
                await each
            assert hasattr(caught.value, "__notes__") == is_noted
        workerdiag.auto(client, on=False)

    asyncio.run(scene())


@pytest.mark.slow
def test_waiting_for_the_next_future_is_a_call_that_waits(calls):
    """It does not go through the client, and time-outs and Ctrl-C leave it as any other wait."""
    client, other = StandIn(), Mock()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    client.loop.asyncio_loop = loop
    workerdiag.auto(client)
    try:
        for its_loop, is_noted in ((client.loop, True), (other, False)):
            waiting = as_completed([Mock(spec=Future)], loop=its_loop, timeout="600ms")
            with pytest.raises(TimeoutError) as caught:
                next(waiting)
            assert hasattr(caught.value, "__notes__") == is_noted
    finally:
        workerdiag.auto(client, on=False)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_missing_module_without_a_known_cause_is_the_tasks_own_matter(monkeypatch):
    """A note says that something is known; "unknown" is for errors that are of the cluster in any case."""
    unknown = AsyncMock(return_value=Diagnosis(outcome="unknown", summary="-"))
    monkeypatch.setattr(importlib.import_module("workerdiag.api.explain"), "explain", unknown)

    async def scene():
        client = StandIn("load-1")
        workerdiag.auto(client)
        exc = ModuleNotFoundError("No module named 'attrs'", name="attrs")
        with dask.config.set({"workerdiag.note.timeout": "10m"}):
            client.tell("task-erred", key="load-1", exception=exc, traceback=None)
        await until_told(client, "load-1")
        assert not hasattr(exc, "__notes__")

    asyncio.run(scene())


def test_the_preload_is_the_function_too():
    """``workerdiag.auto(client)`` works whether or not Dask has imported the preload of that name."""
    preload = importlib.import_module("workerdiag.auto")
    client = StandIn()
    before = dict(client._stream_handlers)
    preload.dask_setup(client)
    assert client._stream_handlers != before
    workerdiag.auto(client, on=False)
    assert client._stream_handlers == before
    preload.dask_teardown(client)


def test_a_program_that_passes_imports_next_to_nothing():
    """Neither attrs nor what makes a note is imported to switch notes on."""
    script = "import sys; before = set(sys.modules); import workerdiag.auto; print(*set(sys.modules) - before)"
    command = [sys.executable, "-c", f"import threading, typing, concurrent.futures; {script}"]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in imported if name.startswith("workerdiag")}
    assert "attr" not in imported
    assert ours == {
        "workerdiag",
        "workerdiag._version",
        "workerdiag.api",
        "workerdiag.api.auto_notes",
        "workerdiag.auto",
        "workerdiag.lazy",
    }


@pytest.mark.slow
@pytest.mark.parametrize("is_configured", [True, False])
def test_a_client_that_reaches_no_scheduler_says_why_if_configured(is_configured):
    """Its preloads are imported before it connects, and called only if it did."""
    script = (
        "from distributed import Client\n"
        "try: Client('tcp://127.0.0.1:9', timeout=0.2)\n"
        "except OSError as exc: print(getattr(exc, '__notes__', []))"
    )
    settings = {"DASK_WORKERDIAG__NOTE__TIMEOUT": "60s"}
    if is_configured:
        settings["DASK_DISTRIBUTED__CLIENT__PRELOAD"] = "workerdiag.auto"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | settings)
    assert ("workerdiag: Cause: Could not connect" in done.stdout) == is_configured


def test_our_own_modules_may_be_gone(monkeypatch):
    """While another release is being installed, an exception arrives without a note."""
    client = StandIn("load-1")
    workerdiag.auto(client)
    monkeypatch.setitem(sys.modules, "workerdiag.settings", None)
    exc = killed()
    client.tell("task-erred", key="load-1", exception=exc, traceback=None)
    assert client.exception("load-1") is exc


def test_what_is_no_client_is_refused():
    """A wrong argument is told at once, in words."""
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client"):
        workerdiag.auto("tcp://10.0.0.1:8786")
