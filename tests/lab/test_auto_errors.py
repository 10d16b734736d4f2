"""A note in each error that Dask raises because of workers or the scheduler, and in none besides, on real clusters.

Most are the natural programs of `natural`, whose clients are given notes by Dask's configuration, as users do it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import threading
import time
from concurrent.futures import CancelledError
from functools import partial

import dask
import pytest
from distributed import Client, as_completed, wait

import workerdiag
from workerdiag.api import auto_notes, noted_calls
from workerdiag.model.vocabulary import NOTE_START

from . import natural, natural_tasks, tasks
from .cluster import arrived
from .natural_stage import PATIENCE_S, Stage
from .processes import wait_until

pytestmark = pytest.mark.lab

#: What the note of each natural program begins with.
NOTED = {
    "nobody-listens-there": "Cause: Could not connect",
    "module-only-the-client-has": "Cause: A module that the work needs is not installed",
    "refused-inputs": "No death: No worker died: a task failed with MemoryError: Task 'merge' has",
    "disk-full-for-a-shuffle": "Cause: ",
    "interrupted-while-nobody-may-run-it": "Cause: Tasks wait for a worker that fits them",
    "result-in-three-seconds": "Cause: Nothing died: the work still runs",
    "wait-for-many": "Cause: Nothing died: the work still runs",
    "as-completed-in-time": "Cause: Nothing died: the work still runs",
    "no-valid-worker": "Cause: Tasks wait for a worker that fits them",
    "no-worker-in-time": "Cause: Workers are missing",
    "too-few-workers": "",
    "restarted-by-a-colleague": "Cause: Restarted on request",
    "scheduler-killed": "Cause: Lost its scheduler",
    "idle-for-too-long": "Unknown: The scheduler is gone",
    "killed-by-hand": "Cause: ",
}
#: Programs whose errors are their own, or were asked for.
NOT_NOTED = (
    "cancelled-by-the-user",
    "result-after-closing",
    "failed-assertion",
    "one-key-error-among-many",
    "memory-error",
    "could-not-serialize",
    "own-attribute-error",
)
#: How much longer a poll may take than one of Dask's own, in half of all cases and on average, in seconds.
POLL_S, MEAN_POLL_S = 0.005, 0.015


class Pressing(threading.Thread):
    """Presses Ctrl-C once, and remembers when."""

    def __init__(self, *, after_s):
        super().__init__(daemon=True)
        self.after_s, self.pressed_s = after_s, 0.0
        self.start()

    def run(self):
        """Wait, and press."""
        time.sleep(self.after_s)
        self.pressed_s = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A stage whose clients add notes, and have time for it: how long it may take is left to unit tests."""
    monkeypatch.setattr(noted_calls, "_INTERRUPT_S", PATIENCE_S)
    settings = {"distributed.client.preload": ["workerdiag.auto"], "workerdiag.note.timeout": f"{PATIENCE_S}s"}
    with dask.config.set(settings), Stage(tmp_path, after_death=False, recorded=False) as made:
        yield made


def note(exc):
    """The note, without its mark; empty if there is none."""
    notes = [each for each in getattr(exc, "__notes__", []) if each.startswith(NOTE_START)]
    assert len(notes) <= 1
    return notes[0].removeprefix(NOTE_START) if notes else ""


def note_of(stage, name):
    """What the exception of a natural program says."""
    scenario = natural.SCENARIOS[name]
    for library in scenario.needs:
        pytest.importorskip(library)
    return note(scenario.program(stage).exc)


@pytest.mark.parametrize(
    "name",
    # The connection gives up after 3 s, and the answer has to come meanwhile.
    [pytest.param(each, marks=pytest.mark.alone if each == "nobody-listens-there" else ()) for each in NOTED],
)
def test_an_error_that_dask_raises_because_of_the_cluster_has_a_note(stage, name):
    """It says what happened and how sure that is, what to do now, and where there is more."""
    lines = note_of(stage, name).splitlines()
    assert lines[0].startswith(NOTED[name])
    assert lines[1].startswith("Do now: ")
    assert lines[2].endswith("More: print(workerdiag.explain(exc, client))")


@pytest.mark.parametrize("name", NOT_NOTED)
def test_an_error_of_ones_own_has_no_note(stage, name):
    """The workers have nothing to do with it, or it was asked for."""
    assert not note_of(stage, name)


def test_all_futures_of_a_lost_scheduler_are_told_of_in_one_note(stage):
    """``gather`` raises one error for all of them (FuturesCancelledError)."""
    client = stage.commands()
    futures = [client.submit(tasks.nap, 60, stage.mark(str(each)), key=f"simulate-{each}") for each in range(2)]
    stage.running("0")
    stage.lab.daemons["scheduler"].send(signal.SIGKILL)
    with pytest.raises(CancelledError) as caught:
        client.gather(futures)
    assert note(caught.value).startswith("Cause: Lost its scheduler")


def test_a_connection_that_a_worker_drops_has_a_note(stage):
    """A function that runs on all workers at once has no task that could fail (CommClosedError)."""
    client = stage.commands(nanny=False)
    with pytest.raises(OSError, match=r"(?i)closed|connect") as caught:
        client.run(os._exit, 3)
    assert note(caught.value)


def test_an_actor_whose_worker_died_has_a_note(stage):
    """Its worker cannot be contacted any more."""
    client = stage.local()
    counter = client.submit(natural_tasks.Counter, actor=True, key="counter").result(timeout=PATIENCE_S)
    increment = counter.increment  # once the loss is known, asking for the method fails
    (address,) = client.who_has()["counter"]
    os.kill(client.run(os.getpid)[address], signal.SIGKILL)
    wait_until(lambda: address not in client.scheduler_info(n_workers=-1)["workers"], "the loss of the worker")
    with pytest.raises(OSError, match="Unable to contact Actor's worker") as caught:
        increment().result(timeout=PATIENCE_S)
    assert note(caught.value)


def test_ctrl_c_in_each_call_that_waits_is_answered(stage):
    """Whichever it is."""
    client = stage.local()
    with dask.annotate(resources={"GPU": 1}):
        sum_up = dask.delayed(sum)([1, 2])
    future = arrived(client, client.submit(tasks.nap, 0, key="train", resources={"GPU": 1}))
    ways = (lambda: wait([future]), lambda: client.gather([future]), lambda: next(as_completed([future])))
    for ask in (*ways, sum_up.compute):
        Pressing(after_s=4)
        with pytest.raises(KeyboardInterrupt) as caught:
            ask()
        assert note(caught.value).startswith("Cause: Tasks wait for a worker that fits them")


def test_ctrl_c_while_work_goes_on_has_no_note(stage):
    """Nothing stands still: whoever presses it has seen enough."""
    client = stage.local()
    future = client.submit(tasks.nap, 60, stage.mark(), key="simulate")
    stage.running()
    Pressing(after_s=3)
    with pytest.raises(KeyboardInterrupt) as caught:
        future.result()
    assert not note(caught.value)
    assert workerdiag.load_rulebook().cause(noted_calls._STILL_RUNNING) is not None


def test_a_second_ctrl_c_ends_everything_at_once(stage, monkeypatch):
    """Whatever the answer to the first is about to do."""
    monkeypatch.setattr(auto_notes.Answers, "ask", lambda *_: asyncio.sleep(60))
    client = stage.local()
    future = arrived(client, client.submit(tasks.nap, 0, key="train", resources={"GPU": 1}))
    Pressing(after_s=2)
    second = Pressing(after_s=4)
    with pytest.raises(KeyboardInterrupt):
        future.result()
    assert 0 < second.pressed_s < time.monotonic() < second.pressed_s + 0.5


def test_a_time_out_of_a_task_is_its_own(stage):
    """The database was slow, not the cluster."""
    client = stage.local()
    with pytest.raises(TimeoutError, match="database") as caught:
        client.submit(natural_tasks.time_out, key="query").result(timeout=PATIENCE_S)
    assert not note(caught.value)


@pytest.mark.alone
def test_polls_are_hardly_slowed(stage):
    """A loop of short time-outs, while work stands still: the answer comes to one of them, and none waits for it.

    Each second turn is Dask's own, without us: both have the same machine.
    """
    client = stage.local()
    future = arrived(client, client.submit(tasks.nap, 0, key="train", resources={"GPU": 1}))
    calls = {"noted": client.sync, "plain": partial(Client.sync, client)}
    turns = {kind: [] for kind in calls}
    until_s = time.monotonic() + 16
    while time.monotonic() < until_s:
        for kind, client.sync in calls.items():
            began_s = time.monotonic()
            with pytest.raises(TimeoutError) as caught:
                future.result(timeout=0.1)
            turns[kind].append(time.monotonic() - began_s)
            if kind == "noted":
                said = note(caught.value)
    assert said.startswith("Cause: Tasks wait for a worker that fits them")
    assert statistics.median(turns["noted"]) - statistics.median(turns["plain"]) < POLL_S
    assert statistics.mean(turns["noted"]) - statistics.mean(turns["plain"]) < MEAN_POLL_S


def test_a_program_sees_no_frame_of_ours(stage):
    """Dask hides its own frames between the call and the task, and ours with them."""
    client = stage.local()
    with pytest.raises(ZeroDivisionError) as caught:
        client.submit(natural_tasks.divide, 1, 0, key="divide").result(timeout=PATIENCE_S)
    assert not any("workerdiag" in str(each.path) and "api" in str(each.path) for each in caught.traceback)


def test_a_client_that_is_made_later_reaches_nothing_and_says_why(stage):
    """The scheduler of the first client is gone by then."""
    client = stage.commands()
    stage.lab.daemons["scheduler"].close()
    patient = dask.config.set({"workerdiag.note.timeout": "20s"})  # nothing here is about time
    with patient, pytest.raises(OSError, match="Timed out trying to connect") as caught:
        Client(client.scheduler.address, timeout=2)
    assert note(caught.value).startswith("Cause: Could not connect")
