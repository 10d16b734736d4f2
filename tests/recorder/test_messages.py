"""
What is told of a death, how it gets to the scheduler, and what becomes of it if it does not.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import Client, Scheduler

from workerdiag.recorder import messages, orphans
from workerdiag.recorder.box import directories
from workerdiag.recorder.box.companions import message_path
from workerdiag.recorder.box.contents import BlackBox, FinishedTask, RunningTask, Sample
from workerdiag.recorder.nanny import delivery, nanny_recording
from workerdiag.wire.constants import DEATH_TOPIC

DUMP = (
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000000000000007 (most recent call first):\n"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """
    Where boxes lie.
    """
    monkeypatch.setenv(directories.VARIABLE, str(tmp_path))
    return tmp_path


DYING = """
import json, os, signal, sys
from workerdiag.recorder.box.writer import BoxWriter
folder, dump, identity = sys.argv[1:]
box = BoxWriter.create(folder, slots=2, **json.loads(identity))
box.state("running")
box.started(0, "nap", 7, "thread-7")
box.line(b"the last words")
if dump:
    with box.open_fault() as file:
        file.write(dump.encode())
print(box.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_dead_process(folder, *, dump="", **identity):
    """
    The box of a process that was killed while a task ran.
    """
    command = [sys.executable, "-c", DYING, str(folder), dump, json.dumps(identity)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    return folder / Path(run.stdout.strip()).name


def a_box(**more):
    """
    A box of a worker with two running tasks.
    """
    running = [
        RunningTask(
            slot=n, key=f"task-{n}", thread_id=n, thread_name=f"t-{n}", since=5.0, since_monotonic_s=1.0
        )
        for n in (7, 8)
    ]
    known = {"identity": {"pid": "12", "worker": "tcp://10.0.0.4:1"}, "executing": tuple(running)}
    return BlackBox(**{**known, **more})


# --------------------------------------------------------------------------------- the message


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (-9, {"signal": 9, "status": None, "certain": True}),
        (0, {"signal": None, "status": 0, "certain": True}),
        (3, {"signal": None, "status": 3, "certain": True}),
        (255, {"signal": None, "status": 255, "certain": False}),
    ],
)
def test_an_exit_code_in_words(code, told):
    """
    A negative code is a signal, and 255 may be anything.
    """
    assert messages.exit_from_code(code) == told


@pytest.mark.parametrize(
    ("dump", "number"),
    [
        (DUMP, 11),
        ("Fatal Python error: Aborted\n", 6),
        ("Fatal Python error: Aborted\n\n  File Fatal Python error: Segmentation fault\n", 6),
        ("Fatal Python error: oops", None),
        ("", None),
    ],
)
def test_the_dump_tells_the_signal(dump, number):
    """
    Where nobody was there to be told the exit.
    """
    assert messages.exit_from_dump(dump) == {"signal": number, "status": None, "certain": False}


def test_the_task_on_the_thread_that_crashed_is_marked():
    """
    Of tasks that ran at the same time, faulthandler names one; without a dump none is.
    """
    crashed = messages.make_message("nanny", {}, a_box(fault=DUMP))["executing"]
    assert [(task["key"], task["crashed"]) for task in crashed] == [("task-7", True), ("task-8", False)]
    unknown = messages.make_message("nanny", {}, a_box())["executing"]
    assert [task["crashed"] for task in unknown] == [None, None]


@pytest.mark.parametrize(
    ("dump", "after_s", "told"), [(DUMP, 0.01, ["last"]), (DUMP, 5.0, []), ("", 0.01, [])]
)
def test_a_task_that_ended_while_the_stacks_were_written_counts(dump, after_s, told):
    """
    Who aborts its own process may return before that takes effect; it is marked as ended.
    """
    ended = tuple(
        FinishedTask(slot=0, key=key, started=1.0, ended=2.0, duration_s=1.0, outcome="ended")
        for key in ("first", "last")
    )
    box = BlackBox(identity={}, finished=ended, fault=dump, written_at=2.0 + after_s)
    executing = messages.make_message("nanny", {}, box)["executing"]
    assert [task["key"] for task in executing] == told
    assert all(task["ended"] == 2.0 and task["crashed"] is None for task in executing)


def test_who_tells_wins_over_the_box_and_without_one_something_is_told():
    """
    What the nanny knows is newer; what it does not know comes from the box.
    """
    message = messages.make_message("nanny", {"pid": 13, "name": None}, a_box())
    assert (message["schema"], message["source"], message["pid"]) == (1, "nanny", 13)
    assert message["worker"] == "tcp://10.0.0.4:1"
    assert messages.make_message("nanny", {"pid": 13}, None) == {"schema": 1, "source": "nanny", "pid": 13}


def test_the_address_that_the_worker_knew_itself_by_wins():
    """
    A nanny learns of it late, and until then has that of the worker before.
    """
    box = a_box(identity={"worker": "tcp://10.0.0.4:2"})
    assert messages.make_message("nanny", {"worker": "tcp://10.0.0.4:1"}, box)["worker"] == "tcp://10.0.0.4:2"
    assert (
        messages.make_message("nanny", {"worker": "tcp://10.0.0.4:1"}, a_box(identity={}))["worker"][-1]
        == "1"
    )


def test_a_message_is_never_too_long():
    """
    The least telling parts go first; who died and what ran stays.
    """
    samples = tuple(Sample(when=n, monotonic_s=n, process_rss_bytes=n, open_files=n) for n in range(64))
    box = a_box(
        lines=("ü" * 50_000).encode(),
        fault="\x01" * 50_000,
        samples=samples,
        torn=("x" * 70_000,),
    )
    message = messages.make_message("nanny", {"exit": messages.exit_from_code(-9)}, box)
    assert len(json.dumps(message)) <= messages.MAX_BYTES
    assert message["exit"]["signal"] == 9
    assert [task["key"] for task in message["executing"]] == ["task-7", "task-8"]


# --------------------------------------------------------------------------- orphans and claims


def test_a_dead_workers_box_is_found_with_all_that_it_says(folder):
    """
    Key, thread and last words, and how it ended if the dump says so.
    """
    path = left_by_a_dead_process(folder, worker="tcp://10.0.0.4:1", dump=DUMP)
    (orphan,) = orphans.claim_orphans()
    with orphan.claim:
        assert orphan.path == path
        message = orphan.message
    assert (message["source"], message["worker"]) == ("orphan", "tcp://10.0.0.4:1")
    assert [(task["key"], task["thread"], task["crashed"]) for task in message["executing"]] == [
        ("nap", "thread-7", True)
    ]
    assert message["exit"]["signal"] == 11
    assert message["box"]["lines"] == "the last words\n"
    assert "nanny_lives" not in message


def test_a_box_is_told_by_one_only(folder):
    """
    Who claims it first tells; a claim that is given back, or whose process died, can be taken again.
    """
    left_by_a_dead_process(folder)
    (first,) = orphans.claim_orphans()
    assert list(orphans.claim_orphans()) == []
    first.claim.close()
    (again,) = orphans.claim_orphans()
    delivery.discard_delivered(again.path)
    again.claim.close()
    assert list(orphans.claim_orphans()) == []
    assert list(folder.iterdir()) == []


def test_a_living_nanny_has_its_turn_first(folder, monkeypatch):
    """
    It was told how the process ended; only if it does not tell, somebody else does.
    """
    started = str(directories.process_start_ms(os.getpid()))
    left_by_a_dead_process(
        folder, nanny="tcp://10.0.0.4:2", nanny_pid=str(os.getpid()), nanny_started_ms=started
    )
    assert list(orphans.claim_orphans()) == []
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    (orphan,) = orphans.claim_orphans()
    orphan.claim.close()
    assert orphan.message["nanny_lives"] is True


def test_what_a_nanny_could_not_deliver_is_told_by_the_next(folder):
    """
    Its own message, with the exit that only it was told.
    """
    path = left_by_a_dead_process(folder)
    delivery.save_message(path, {"schema": 1, "source": "nanny", "exit": messages.exit_from_code(-9)})
    (orphan,) = orphans.claim_orphans()
    orphan.claim.close()
    assert orphan.message == {
        "schema": 1,
        "source": "nanny",
        "exit": messages.exit_from_code(-9),
        "late": True,
    }


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_message_is_as_good_as_none(folder, content):
    """
    The box is told then.
    """
    path = left_by_a_dead_process(folder)
    message_path(path).write_bytes(content)
    (orphan,) = orphans.claim_orphans()
    orphan.claim.close()
    assert orphan.message["source"] == "orphan"


def test_a_disk_that_takes_no_message_is_no_problem(tmp_path):
    """
    It is delivered, or lost.
    """
    delivery.save_message(tmp_path / "nowhere" / "x.box", {})
    assert delivery.load_message(tmp_path / "nowhere" / "x.box") is None
    delivery.discard_delivered(tmp_path / "nowhere" / "x.box")


def test_only_so_many_are_told_by_one_process(folder, monkeypatch):
    """
    A host on which much died does not keep a new worker busy.
    """
    for _ in range(3):
        left_by_a_dead_process(folder)
    monkeypatch.setattr(orphans, "MAX_REPORTED", 2)
    found = list(orphans.claim_orphans())
    assert len(found) == 2
    for each in found:
        each.claim.close()


# ------------------------------------------------------------------------------------ delivery


def test_orphans_are_delivered_and_removed(folder):
    """
    The scheduler has one event for each, and the folder is empty.
    """
    left_by_a_dead_process(folder, worker="tcp://10.0.0.4:1")

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            server = SimpleNamespace(scheduler=SimpleNamespace(address=scheduler.address), connection_args={})
            assert await orphans.report_orphans(server) == 1
            return await client.get_events(DEATH_TOPIC)

    ((_, message),) = asyncio.run(run())
    assert message["worker"] == "tcp://10.0.0.4:1"
    assert list(folder.iterdir()) == []


def test_a_scheduler_that_is_gone_leaves_the_box_to_the_next(folder, monkeypatch):
    """
    Nothing is lost, and nobody waits for ever.
    """
    path = left_by_a_dead_process(folder)
    monkeypatch.setattr(delivery, "_RETRY_DELAYS_S", (0.0, 0.01))
    server = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://127.0.0.1:1"), connection_args={})
    assert asyncio.run(orphans.report_orphans(server)) == 0
    (orphan,) = orphans.claim_orphans()
    orphan.claim.close()
    assert orphan.path == path


# --------------------------------------------------------------------------------------- nanny


class FakeNanny(SimpleNamespace):
    """
    As much of a nanny as is watched.
    """

    def _on_worker_exit_sync(self, exitcode):
        self.restarted.append(exitcode)


def a_nanny(**more):
    """
    A nanny whose worker process was seen with pid 77.
    """
    return FakeNanny(
        restarted=[],
        pid=77,
        process=SimpleNamespace(kill=lambda: None, on_exit=None),
        worker_address="tcp://10.0.0.4:1",
        address_safe="tcp://10.0.0.4:2",
        status=SimpleNamespace(name="running"),
        memory_manager=SimpleNamespace(
            _last_terminated_pid=77, memory_limit=1000, memory_terminate_fraction=0.95
        ),
        periodic_callbacks={},
        scheduler=SimpleNamespace(address="tcp://127.0.0.1:1"),
        connection_args={},
        **more,
    )


def report_of(here, monkeypatch, code, *, ordered=False):
    """
    What a nanny tells of an exit, that it had *ordered* or not.
    """
    told = []

    async def deliver(_, message):
        told.append(message)
        return True

    async def run():
        monkeypatch.setattr(delivery, "deliver", deliver)
        nanny_recording.start_recording(here, "plugin")
        nanny_recording.start_recording(here, "preload")
        assert nanny_recording.recorder_status(here)["recording"]
        if ordered:
            here.process.kill()
        here._on_worker_exit_sync(code)
        await asyncio.sleep(0.05)
        nanny_recording.stop_recording(here, "plugin")
        assert nanny_recording.recorder_status(here)["recording"]
        nanny_recording.stop_recording(here, "preload")
        assert not nanny_recording.recorder_status(here)["recording"]

    asyncio.run(run())
    assert here.restarted == [code]
    assert "_on_worker_exit_sync" not in vars(here)
    assert here.periodic_callbacks == {}
    return told


def test_a_nanny_tells_what_it_was_told(folder, monkeypatch):
    """
    Exit, limits, counters and whether it was the nanny's own doing; with or without a box.
    """
    (message,) = report_of(a_nanny(), monkeypatch, -15)
    assert message["exit"]["signal"] == 15
    assert (message["pid"], message["worker"], message["nanny"]) == (
        77,
        "tcp://10.0.0.4:1",
        "tcp://10.0.0.4:2",
    )
    assert (message["memory_terminated"], message["asked"]) == (True, False)
    assert (message["memory_limit_bytes"], message["terminate_fraction"]) == (1000, 0.95)
    assert list(folder.iterdir()) == []


def test_a_nanny_that_asked_its_worker_to_close_says_so(folder, monkeypatch):
    """
    Such an end is no crash, whatever the exit status.
    """
    assert folder
    (message,) = report_of(a_nanny(), monkeypatch, 0, ordered=True)
    assert message["asked"] is True


def test_a_nanny_finds_the_box_of_its_worker_without_its_pid(folder, monkeypatch):
    """
    A process that died at once is known by what it wrote.
    """
    path = left_by_a_dead_process(folder, nanny="tcp://10.0.0.4:2", nanny_pid=str(os.getpid()))
    left_by_a_dead_process(folder, nanny="tcp://10.0.0.4:3", nanny_pid=str(os.getpid()))
    here = a_nanny()
    here.pid = None
    (message,) = report_of(here, monkeypatch, 7)
    assert message["pid"] == directories.parse_box_name(path).pid
    assert [task["key"] for task in message["executing"]] == ["nap"]
    assert not path.exists()


def test_a_release_that_tells_no_exit_is_said():
    """
    The recorder does without that one fact.
    """

    async def run():
        here = a_nanny(_on_worker_exit_sync=None)
        active = nanny_recording.NannyRecording(here)
        active.start()
        assert not active.recording
        assert active.notes == ["exit status: this release of distributed does not tell it"]
        active.stop()

    asyncio.run(run())
