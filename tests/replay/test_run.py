"""What a replay promises, with small tasks in real processes."""

from __future__ import annotations

import ctypes
import os
import sys
import time

import cloudpickle
import pytest
from dask._task_spec import Task, TaskRef

from workerdiag import Kit, KitError
from workerdiag.model.replay import KitContent, KitDeath, RecipeGap
from workerdiag.replay import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a replay reads /proc"),
]
MB = 10**6


def small(value=0):
    return value


def hold(*_, megabytes=0, seconds=0.3):
    kept = bytearray(megabytes * MB)
    kept[::4096] = b"x" * len(kept[::4096])
    time.sleep(seconds)
    return len(kept)


def crash(_):
    ctypes.string_at(0)


def leave(_):
    os._exit(3)


def shoot(_):
    os.kill(os.getpid(), 9)


def fail(_):
    raise LookupError("no such file")


def step(key, function, *inputs, **named):
    """A task as a recipe has it."""
    return key, (Task(key, function, *map(TaskRef, inputs), **named), tuple(inputs))


def kit(*steps, together=("work",), limit_mb=300, **content):
    """A kit of a worker that died with the tasks *together*."""
    for module in (sys.modules[__name__],):
        cloudpickle.register_pickle_by_value(module)
    facts = {
        "killed": "work",
        "deaths": (KitDeath(worker="tcp://a:1", at=1.0, tasks=together, is_known=True),),
        "limit_bytes": limit_mb * MB,
        "nthreads": len(together),
        **content,
    }
    return Kit(KitContent(**facts), cloudpickle.dumps(dict(steps)))


LOAD = step("load", small, value=1)


def test_a_task_that_passes_the_limit_kills_alone():
    """What it needs is its peak, with the share that nannies leave."""
    replay = kit(LOAD, step("work", hold, "load", megabytes=400)).replay()
    assert (replay.verdict, replay.task) == ("kills-alone", "work")
    assert replay.peak_bytes > 400 * MB
    assert replay.needs_memory_bytes == pytest.approx(replay.peak_bytes / 0.95, rel=0.01)
    assert "kills-alone" in str(replay)


def test_a_task_that_lives_alone_may_die_in_company():
    """The table says how many fit."""
    steps = [step(key, hold, "load", megabytes=150) for key in ("work", "other")]
    replay = kit(LOAD, *steps, together=("work", "other")).replay()
    assert replay.verdict == "only-in-company"
    one, two = replay.table
    assert (one.threads, two.threads) == (1, 2)
    assert one.memory_bytes < 300 * MB < two.memory_bytes == replay.needs_memory_bytes


def test_a_neighbour_that_kills_is_named():
    """Dask may have given up on another task."""
    steps = [step("work", hold, "load", megabytes=10), step("other", hold, "load", megabytes=400)]
    replay = kit(LOAD, *steps, together=("work", "other")).replay()
    assert (replay.verdict, replay.task) == ("kills-alone", "other")


def test_tasks_that_fit_together_do_not_kill():
    """Neither alone nor beside each other."""
    steps = [step(key, hold, "load", megabytes=20) for key in ("work", "other")]
    assert kit(LOAD, *steps, together=("work", "other")).replay().verdict == "does-not-kill"


@pytest.mark.parametrize(
    ("function", "exit_code", "said"),
    [(crash, -11, "SIGSEGV"), (leave, 3, "exit status 3"), (shoot, -9, "SIGKILL")],
)
def test_a_task_that_ends_its_process_kills_alone(function, exit_code, said):
    """How it ends is told; no memory is enough."""
    replay = kit(LOAD, step("work", function, "load")).replay()
    assert replay.verdict == "kills-alone"
    assert replay.tasks[0].exit_code == exit_code
    assert replay.needs_memory_bytes is replay.measured_need is None
    assert said in str(replay)


@pytest.mark.parametrize(
    ("steps", "content", "obstacle", "said"),
    [
        ([LOAD, step("work", fail, "load")], {}, "task-raised", "no such file"),
        (
            [step("load", fail, "read"), step("read", small), step("work", hold, "load")],
            {},
            "inputs-failed",
            "raised",
        ),
        (
            [step("work", hold, "data")],
            {"gaps": (RecipeGap(key="data", reason="no-recipe"),)},
            "incomplete",
            "scattered",
        ),
        ([LOAD, step("work", hold, "load")], {"versions": {"python": "2.7.1"}}, "another-python", "Python 2.7"),
    ],
    ids=["the task raises", "an input raises", "scattered data", "another Python"],
)
def test_what_cannot_be_replayed_is_said(steps, content, obstacle, said):
    """With the reason, for programs and for people."""
    replay = kit(*steps, **content).replay()
    assert (replay.verdict, replay.obstacle) == ("cannot-replay", obstacle)
    assert said in str(replay)


def test_a_replay_takes_no_more_than_the_machine_can_give(monkeypatch):
    """Then only a lower bound is known."""
    monkeypatch.setattr(run, "_machine_bytes", lambda: 350 * MB)
    replay = kit(LOAD, step("work", hold, "load", megabytes=600)).replay()
    assert (replay.verdict, replay.needs_memory_bytes, replay.table) == ("kills-alone", None, ())
    assert replay.needs_more_than_bytes >= 350 * MB
    too_small = kit(LOAD, step("work", hold, "load", megabytes=600), limit_mb=900).replay()
    assert too_small.obstacle == "machine-too-small"


def test_a_replay_ends_in_time():
    """Whatever the task waits for."""
    began = time.monotonic()
    replay = kit(LOAD, step("work", hold, "load", seconds=600)).replay(timeout=3)
    assert (replay.verdict, replay.obstacle) == ("cannot-replay", "timed-out")
    assert time.monotonic() - began < 20


def test_another_limit_can_be_tried():
    """As with more memory for each worker."""
    assert kit(LOAD, step("work", hold, "load", megabytes=400)).replay("1 GB").verdict == "does-not-kill"


def test_memray_is_asked_for_where_it_is_missing(monkeypatch, tmp_path):
    """With what to install."""
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(KitError, match="pip install memray"):
        kit(LOAD, step("work", hold, "load")).replay(memray=tmp_path / "memray.bin")
