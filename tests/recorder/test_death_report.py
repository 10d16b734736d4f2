"""What is told of a death, how it gets to the scheduler, and what becomes of it if it does not."""

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
from attrs import evolve
from distributed import Client, Scheduler

from workerdiag.recorder import death_report, delivery, nanny
from workerdiag.recorder.box import directories
from workerdiag.recorder.box.layout import message_path
from workerdiag.recorder.nanny import NannyRecording
from workerdiag.recorder.recording import recorder_status, start_recording, stop_recording
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.black_box import BlackBox, FinishedTask, RunningTask, Sample
from workerdiag.wire.messages import DeathReport, ExitReport, encode_message

#: Of the scheduler that is told.
SCHEDULER = "tcp://10.0.0.1:8786"
DUMP = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000000000000007 (most recent call first):\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where boxes lie."""
    monkeypatch.setenv(directories.VARIABLE, str(tmp_path))
    return tmp_path


DYING = """
import json, os, signal, sys
from workerdiag.recorder.box.writer import BoxWriter
folder, dump, identity = sys.argv[1:]
box = BoxWriter.create(folder, slots=2, **json.loads(identity))
box.stage("running")
box.started(0, "nap", 7, "thread-7")
box.line(b"the last words")
if dump:
    with box.open_fault() as file:
        file.write(dump.encode())
print(box.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_dead_process(folder, *, dump="", **identity):
    """The box of a process that was killed while a task ran."""
    command = [sys.executable, "-c", DYING, str(folder), dump, json.dumps(identity)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    return folder / Path(run.stdout.strip()).name


def a_box(**more):
    """A box of a worker with two running tasks."""
    running = [
        RunningTask(slot=n, key=f"task-{n}", thread_id=n, thread_name=f"t-{n}", started_at=5.0) for n in (7, 8)
    ]
    known = {"identity": {"pid": "12", "worker": "tcp://10.0.0.4:1"}, "running_tasks": tuple(running)}
    return BlackBox(**{**known, **more})


# --------------------------------------------------------------------------------- the message


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (-9, ExitReport(signal=9)),
        (0, ExitReport(status=0)),
        (3, ExitReport(status=3)),
        (255, ExitReport(status=255, known_by="unreadable-code")),
    ],
)
def test_an_exit_code_in_words(code, told):
    """A negative code is a signal, and 255 may be anything."""
    assert death_report.exit_from_code(code) == told


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
    """Where nobody was there to be told the exit."""
    expected = None if number is None else ExitReport(signal=number, known_by="faulthandler")
    assert death_report.exit_from_dump(dump) == expected


def test_the_task_on_the_thread_that_crashed_is_marked():
    """Of tasks that ran at the same time, faulthandler names one; without a dump none is."""
    crashed = death_report.make_report("nanny-report", a_box(faulthandler_dump=DUMP)).running_tasks
    assert [(task.key, task.is_on_crashed_thread) for task in crashed] == [
        ("task-7", True),
        ("task-8", False),
    ]
    unknown = death_report.make_report("nanny-report", a_box()).running_tasks
    assert [task.is_on_crashed_thread for task in unknown] == [None, None]


STOP = """Thread 0x0000000000000007 [Dask-Default-T] (most recent call first):
  File "/opt/conda/lib/python3.13/site-packages/pandas/core/frame.py", line 10 in merge
  File "/home/me/my_c\\xf6de.py", line 31 in join_all
  File "/home/me/my_c\\xf6de.py", line 40 in work
  File "/opt/conda/lib/python3.13/site-packages/distributed/worker.py", line 9 in _run_task

Current thread 0x0000000000000009 (most recent call first):
  File "/opt/conda/lib/python3.13/asyncio/base_events.py", line 5 in run_forever
"""


def test_a_task_that_was_told_to_end_has_the_line_of_its_own_code():
    """The innermost frame outside of libraries is named, and nothing on a thread that has none."""
    box = a_box().with_stacks(STOP, 6.0)
    here, elsewhere = death_report.make_report("nanny-report", box).running_tasks
    assert str(here.line) == "/home/me/my_cöde.py:31, in join_all"
    assert elsewhere.line is None


def test_of_two_requests_to_end_the_last_tells_the_line():
    """Whoever outlives the first may be somewhere else, or in no code of its own, at the second."""
    for second, line in (
        (STOP.replace("line 31", "line 99"), 99),
        (STOP.replace("/home/me", "/usr/lib/python3"), None),
    ):
        task, _ = death_report.make_report("nanny-report", a_box().with_stacks(STOP + second, 6.0)).running_tasks
        assert getattr(task.line, "line", None) == line


def test_the_stack_of_a_stop_is_no_crash_and_not_of_a_later_task():
    """A request to end that was outlived says nothing of what began afterwards, and names no signal."""
    report = death_report.report_found_box(a_box().with_stacks(STOP, 4.0))
    assert [task.line for task in report.running_tasks] == [None, None]
    assert [task.is_on_crashed_thread for task in report.running_tasks] == [None, None]
    assert (report.exit, report.box.faulthandler_dump, report.box.stop_stacks) == (None, "", "")


def test_a_crash_after_a_request_to_end_is_still_a_crash():
    """Both are written to one file; the crash begins with its signal."""
    box = a_box().with_stacks(STOP + DUMP, 6.0)
    assert (box.faulthandler_dump, box.stop_stacks) == (DUMP, STOP)
    assert death_report.report_found_box(box).exit == ExitReport(signal=11, known_by="faulthandler")


@pytest.mark.parametrize(("dump", "after_s", "told"), [(DUMP, 0.01, ["last"]), (DUMP, 5.0, []), ("", 0.01, [])])
def test_a_task_that_ended_while_the_stacks_were_written_counts(dump, after_s, told):
    """Who aborts its own process may return before that takes effect; it is marked as ended."""
    ended = tuple(
        FinishedTask(slot=0, key=key, started_at=1.0, ended_at=2.0, duration_s=1.0, outcome="ended")
        for key in ("first", "last")
    )
    box = BlackBox(finished_tasks=ended, faulthandler_dump=dump, written_at=2.0 + after_s)
    running = death_report.make_report("nanny-report", box).running_tasks
    assert [task.key for task in running] == told
    assert all(task.ended_at == 2.0 and task.is_on_crashed_thread is None for task in running)


def test_who_tells_wins_over_the_box_and_without_one_something_is_told():
    """What the nanny knows is newer; what it does not know comes from the box."""
    report = death_report.make_report("nanny-report", a_box(), pid=13, worker_name=None)
    assert (report.kind, report.pid, report.worker_address) == ("nanny-report", 13, "tcp://10.0.0.4:1")
    assert death_report.make_report("nanny-report", None, pid=13) == DeathReport(kind="nanny-report", pid=13)


def test_the_address_that_the_worker_knew_itself_by_wins():
    """A nanny learns of it late, and until then has that of the worker before."""
    box = a_box(identity={"worker": "tcp://10.0.0.4:2"})
    for own, expected in ((box, "tcp://10.0.0.4:2"), (a_box(identity={}), "tcp://10.0.0.4:1")):
        report = death_report.make_report("nanny-report", own, worker_address="tcp://10.0.0.4:1")
        assert report.worker_address == expected


def test_a_message_is_never_too_long():
    """The least telling parts go first; who died and what ran stays."""
    samples = tuple(Sample(at=n, process_rss_bytes=n, open_files=n) for n in range(64))
    box = a_box(
        last_output="ü" * 50_000,
        faulthandler_dump="\x01" * 50_000,
        samples=samples,
        close_reason="x" * 70_000,
    )
    report = death_report.make_report("nanny-report", box, exit=death_report.exit_from_code(-9))
    assert len(json.dumps(encode_message(report))) <= death_report.MAX_BYTES
    assert report.exit.signal == 9
    assert [task.key for task in report.running_tasks] == ["task-7", "task-8"]


# --------------------------------------------------------------------------- orphans and claims


def test_a_dead_workers_box_is_found_with_all_that_it_says(folder):
    """Key, thread and last words, and how it ended if the dump says so."""
    path = left_by_a_dead_process(folder, worker="tcp://10.0.0.4:1", dump=DUMP)
    (orphan,) = delivery.claim_orphans(SCHEDULER)
    with orphan.lock:
        assert orphan.path == path
        report = orphan.report
    assert (report.kind, report.worker_address) == ("box-found", "tcp://10.0.0.4:1")
    (task,) = report.running_tasks
    assert (task.key, task.thread_name, task.is_on_crashed_thread) == ("nap", "thread-7", True)
    assert report.exit.signal == 11
    assert report.box.last_output == "the last words\n"
    assert report.is_nanny_running is None


@pytest.mark.parametrize(
    ("scheduler", "is_told"),
    [
        (SCHEDULER, True),
        ("tcp://head-node:8786", True),  # the same by its name
        ("tcp://10.0.0.1:41873", False),
        ("tcp://10.0.0.9:8786", False),
    ],
)
def test_the_dead_of_another_cluster_are_left_to_it(folder, scheduler, is_told):
    """Two clusters of one user share a host and its folder; neither counts the deaths of the other."""
    path = left_by_a_dead_process(folder, scheduler=scheduler)
    found = list(delivery.claim_orphans(SCHEDULER))
    assert [each.path for each in found] == [path] * is_told
    assert path.exists()
    for each in found:
        each.lock.close()


def test_a_box_is_told_by_one_only(folder):
    """Who claims it first tells; a claim that is given back, or whose process died, can be taken again."""
    left_by_a_dead_process(folder)
    (first,) = delivery.claim_orphans(SCHEDULER)
    assert list(delivery.claim_orphans(SCHEDULER)) == []
    first.lock.close()
    (again,) = delivery.claim_orphans(SCHEDULER)
    delivery.discard_delivered(again.path)
    again.lock.close()
    assert list(delivery.claim_orphans(SCHEDULER)) == []
    assert list(folder.iterdir()) == []


def test_a_living_nanny_has_its_turn_first(folder, monkeypatch):
    """It was told how the process ended; only if it does not tell, somebody else does."""
    started = str(directories.process_start_ms(os.getpid()))
    left_by_a_dead_process(folder, nanny="tcp://10.0.0.4:2", nanny_pid=str(os.getpid()), nanny_started_ms=started)
    assert list(delivery.claim_orphans(SCHEDULER)) == []
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    (orphan,) = delivery.claim_orphans(SCHEDULER)
    orphan.lock.close()
    assert orphan.report.is_nanny_running is True


def test_what_a_nanny_could_not_deliver_is_told_by_the_next(folder):
    """Its own message, with the exit that only it was told."""
    path = left_by_a_dead_process(folder)
    saved = DeathReport(kind="nanny-report", exit=death_report.exit_from_code(-9))
    delivery.save_report(path, saved)
    (orphan,) = delivery.claim_orphans(SCHEDULER)
    orphan.lock.close()
    assert orphan.report == evolve(saved, is_late=True)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 5000])
def test_a_damaged_message_is_as_good_as_none(folder, content):
    """The box is told then."""
    path = left_by_a_dead_process(folder)
    message_path(path).write_bytes(content)
    (orphan,) = delivery.claim_orphans(SCHEDULER)
    orphan.lock.close()
    assert orphan.report.kind == "box-found"


def test_a_disk_that_takes_no_message_is_no_problem(tmp_path):
    """It is delivered, or lost."""
    delivery.save_report(tmp_path / "nowhere" / "x.box", DeathReport(kind="nanny-report"))
    assert delivery.load_report(tmp_path / "nowhere" / "x.box") is None
    delivery.discard_delivered(tmp_path / "nowhere" / "x.box")


def test_only_so_many_are_told_by_one_process(folder, monkeypatch):
    """A host on which much died does not keep a new worker busy."""
    for _ in range(3):
        left_by_a_dead_process(folder)
    monkeypatch.setattr(delivery, "MAX_REPORTED", 2)
    found = list(delivery.claim_orphans(SCHEDULER))
    assert len(found) == 2
    for each in found:
        each.lock.close()


# ------------------------------------------------------------------------------------ delivery


def test_orphans_are_delivered_and_removed(folder):
    """The scheduler has one event for each, and the folder is empty."""
    left_by_a_dead_process(folder, worker="tcp://10.0.0.4:1")

    async def run():
        async with (
            Scheduler(port=0, dashboard=False, host="127.0.0.1") as scheduler,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            server = SimpleNamespace(scheduler=SimpleNamespace(address=scheduler.address), connection_args={})
            assert await delivery.report_orphans(server) == 1
            return await client.get_events(DEATH_TOPIC)

    ((_, message),) = asyncio.run(run())
    assert message["worker_address"] == "tcp://10.0.0.4:1"
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_scheduler_that_is_gone_leaves_the_box_to_the_next(folder, monkeypatch):
    """Nothing is lost, and nobody waits for ever."""
    path = left_by_a_dead_process(folder)
    monkeypatch.setattr(delivery, "_RETRY_DELAYS_S", (0.0, 0.01))
    server = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://127.0.0.1:1"), connection_args={})
    assert asyncio.run(delivery.report_orphans(server)) == 0
    (orphan,) = delivery.claim_orphans(SCHEDULER)
    orphan.lock.close()
    assert orphan.path == path


# --------------------------------------------------------------------------------------- nanny


class FakeNanny(SimpleNamespace):
    """As much of a nanny as is watched."""

    def _on_worker_exit_sync(self, exitcode):
        self.restarted.append(exitcode)


def a_nanny(**more):
    """A nanny whose worker process was seen with pid 77."""
    return FakeNanny(
        restarted=[],
        pid=77,
        process=SimpleNamespace(kill=lambda: None, on_exit=None),
        worker_address="tcp://10.0.0.4:1",
        address_safe="tcp://10.0.0.4:2",
        status=SimpleNamespace(name="running"),
        memory_manager=SimpleNamespace(_last_terminated_pid=77, memory_limit=1000, memory_terminate_fraction=0.95),
        periodic_callbacks={},
        scheduler=SimpleNamespace(address="tcp://127.0.0.1:1"),
        connection_args={},
        **more,
    )


def report_of(here, monkeypatch, code, *, ordered=False):
    """What a nanny tells of an exit, that it had *ordered* or not."""
    told = []

    async def deliver(_, report):
        told.append(report)
        return True

    async def run():
        monkeypatch.setattr(nanny, "deliver", deliver)
        start_recording(here, NannyRecording, "plugin")
        start_recording(here, NannyRecording, "preload")
        assert recorder_status(here)["is_recording"]
        if ordered:
            here.process.kill()
        here._on_worker_exit_sync(code)
        await asyncio.sleep(0.05)
        stop_recording(here, "plugin")
        assert recorder_status(here)["is_recording"]
        stop_recording(here, "preload")
        assert not recorder_status(here)["is_recording"]

    asyncio.run(run())
    assert here.restarted == [code]
    assert "_on_worker_exit_sync" not in vars(here)
    assert here.periodic_callbacks == {}
    return told


def test_a_nanny_tells_what_it_was_told(folder, monkeypatch):
    """Exit, limits, counters and whether it was the nanny's own doing; with or without a box."""
    (report,) = report_of(a_nanny(), monkeypatch, -15)
    assert report.exit == ExitReport(signal=15)
    assert (report.pid, report.worker_address) == (77, "tcp://10.0.0.4:1")
    assert report.nanny_address == "tcp://10.0.0.4:2"
    assert (report.is_memory_terminated, report.stop_requested) == (True, None)
    assert (report.memory_limit_bytes, report.terminate_fraction) == (1000, 0.95)
    assert list(folder.iterdir()) == []


def test_a_nanny_that_asked_its_worker_to_close_says_so(folder, monkeypatch):
    """Such an end is no crash, whatever the exit status."""
    assert folder
    (report,) = report_of(a_nanny(), monkeypatch, 0, ordered=True)
    assert report.stop_requested == "nanny-kill"


def test_a_nanny_finds_the_box_of_its_worker_without_its_pid(folder, monkeypatch):
    """A process that died at once is known by what it wrote."""
    path = left_by_a_dead_process(folder, nanny="tcp://10.0.0.4:2", nanny_pid=str(os.getpid()))
    left_by_a_dead_process(folder, nanny="tcp://10.0.0.4:3", nanny_pid=str(os.getpid()))
    here = a_nanny()
    here.pid = None
    (report,) = report_of(here, monkeypatch, 7)
    assert report.pid == directories.parse_box_name(path).pid
    assert [task.key for task in report.running_tasks] == ["nap"]
    assert not path.exists()


def test_a_release_that_tells_no_exit_is_said():
    """The recorder does without that one fact."""

    async def run():
        here = a_nanny(_on_worker_exit_sync=None)
        active = nanny.NannyRecording(here)
        active.start()
        assert not active.is_recording
        assert list(active.missing) == ["exit-status"]
        active.stop()

    asyncio.run(run())
