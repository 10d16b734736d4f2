"""The parts of the recorder that run in a worker, without a worker."""

from __future__ import annotations

import asyncio
import faulthandler
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster
from msgpack import unpackb

from workerdiag import procfs_and_cgroups
from workerdiag.recorder import internals, recording, sampler, worker
from workerdiag.recorder.box.layout import FIELDS
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.internals import get_recording, set_recording
from workerdiag.recorder.nanny import NannyRecording
from workerdiag.recorder.recording import recorder_status, start_recording, stop_recording
from workerdiag.recorder.worker import EarlierTasks, OffThreadTasks, TaskSlots, ThreadTasks, WorkerRecording


class Notes:
    """In the place of a black box: what runs in which slot."""

    def __init__(self):
        self.running = {}
        self.ended = []
        self.without_slot = 0
        self.samples = []
        self.lags = []
        self.censuses = []
        self.identity = {}

    def identify(self, **changes):
        self.identity |= changes

    def started(self, slot, key, thread_id, thread_name):
        assert slot not in self.running
        self.running[slot] = (key, thread_id, thread_name)

    def finished(self, slot, outcome):
        assert outcome == "ended"
        self.ended.append(self.running.pop(slot)[0])

    def missed(self):
        self.without_slot += 1

    def sample(self, **numbers):
        self.samples.append(numbers)

    def lag(self, loop_s, gil):
        self.lags.append((loop_s, gil))

    def census(self, data):
        self.censuses.append(dict(zip(FIELDS["objects"], unpackb(data), strict=True)))


@pytest.fixture
def notes():
    return Notes()


# ---------------------------------------------------------------------------------------- tasks


def test_a_thread_that_enters_itself_is_noted_with_its_name(notes):
    """The key stays what it was for Dask, and is noted as text with the thread it runs on."""
    threads = ThreadTasks(TaskSlots(notes, 2), {})
    threads[threading.get_ident()] = ("x", 1)
    assert threads == {threading.get_ident(): ("x", 1)}
    assert notes.running == {0: ("('x', 1)", threading.get_ident(), threading.current_thread().name)}
    del threads[threading.get_ident()]
    assert (threads, notes.running, notes.ended) == ({}, {}, ["('x', 1)"])


def test_of_more_tasks_than_slots_it_is_said_that_there_were_more(notes):
    """Dask can run more tasks at once than the box has room for; nobody then takes what is in it for all."""
    threads = ThreadTasks(TaskSlots(notes, 2), {})
    for thread in range(5):
        threads[thread] = f"task-{thread}"
    assert (len(notes.running), notes.without_slot) == (2, 3)
    for thread in range(5):
        del threads[thread]
    threads[7] = "later"
    assert [key for key, *_ in notes.running.values()] == ["later"]


def test_a_key_that_cannot_be_text_fails_no_task(notes):
    """Whatever a key's class does, the task runs."""

    class Key:
        def __str__(self):
            raise ValueError

    threads = ThreadTasks(TaskSlots(notes, 1), {})
    threads[1] = Key()
    del threads[1]
    assert notes.running == {}


def test_after_the_stop_nothing_is_noted(notes):
    """A stopped recorder leaves Dask's own bookkeeping as it is."""
    slots = TaskSlots(notes, 1)
    threads = ThreadTasks(slots, {})
    threads[1] = "before"
    slots.stop()
    del threads[1]
    threads[2] = "after"
    assert threads == {2: "after"}
    assert notes.ended == []


def test_a_task_that_begins_ends_what_never_said_that_it_ended(notes):
    """A method of an actor that raises stays entered until the next one begins, and takes no slot for ever."""
    threads = ThreadTasks(TaskSlots(notes, 1), {})
    threads[1] = "raised"
    threads[1] = "next"
    assert (notes.ended, [key for key, *_ in notes.running.values()]) == (["raised"], ["next"])
    del threads[1]
    assert (notes.running, notes.without_slot) == ({}, 0)


def test_only_what_runs_on_no_thread_is_noted_of_all_keys(notes):
    """A task on a thread is noted there; here it would be twice."""
    keys = OffThreadTasks(TaskSlots(notes, 2), {"coroutine": (7, "event loop"), "pooled": (0, "executor pool")}.get)
    keys.add("function")
    keys.add("coroutine")
    keys.add("pooled")
    assert keys == {"function", "coroutine", "pooled"}
    assert set(notes.running.values()) == {
        ("coroutine", 7, "event loop"),
        ("pooled", 0, "executor pool"),
    }
    for key in ("coroutine", "function", "pooled", "never there"):
        keys.discard(key)
    assert (keys, notes.ended) == (set(), ["coroutine", "pooled"])


def test_a_key_whose_place_cannot_be_told_fails_no_task(notes):
    """Whatever a release has there instead, the task runs, and it is said that not all are known that do."""
    keys = OffThreadTasks(TaskSlots(notes, 1), lambda _: 1 // 0)
    keys.add("function")
    keys.discard("function")
    assert (keys, notes.running, notes.without_slot) == (set(), {}, 1)


@pytest.mark.parametrize(
    ("run_spec", "executor", "where"),
    [
        (SimpleNamespace(is_coro=False), "default", None),
        (SimpleNamespace(is_coro=True), "default", "event loop"),
        (SimpleNamespace(is_coro=False), "pool", "executor pool"),
        ((asyncio.sleep, (1,), {}), "default", "event loop"),
        ((sum, ([1, 2],), {}), "default", None),
        ((sum, ([1, 2],), {}), "pool", "executor pool"),
        (SimpleNamespace(is_coro=False), "", None),
    ],
)
def test_where_a_task_runs_is_told_by_what_it_is_and_by_its_executor(run_spec, executor, where):
    """By the same two questions as distributed's, in the words of each release."""
    annotations = {"executor": executor} if executor else {}
    task = SimpleNamespace(run_spec=run_spec, annotations=annotations)
    with ThreadPoolExecutor(1) as threads:
        here = SimpleNamespace(
            state=SimpleNamespace(tasks={"x": task}), executors={"default": threads, "pool": object()}
        )
        thread = threading.get_ident() if where == "event loop" else 0
        assert internals.off_thread_location(here, "x") == (where and (thread, where))


def test_a_task_from_before_is_noted_until_it_ends(notes):
    """It holds the dictionary that was there before, and may ask for its key in the new one."""
    before = {1: "old"}
    slots = TaskSlots(notes, 2)
    threads = ThreadTasks(slots, before)
    earlier = EarlierTasks(slots, before)
    assert threads[1] == "old"
    with pytest.raises(KeyError):
        threads[2]
    earlier.refresh()
    earlier.refresh()
    assert [key for key, *_ in notes.running.values()] == ["old"]
    before[1] = "newer"
    earlier.refresh()
    assert (notes.ended, [key for key, *_ in notes.running.values()]) == (["old"], ["newer"])
    before.clear()
    earlier.refresh()
    assert notes.ended == ["old", "newer"]


# ----------------------------------------------------------------------------------- last words


def test_log_records_are_copied_as_they_are_printed():
    """INFO and above, of any of distributed's loggers; and no more after the end."""
    lines, seen = [], []
    copy = worker.LogCapture(lines.append, seen.append)
    logger = logging.getLogger("distributed.worker.state_machine")
    logging.getLogger("distributed").addHandler(logging.NullHandler())
    copy.attach()
    try:
        logger.warning("a line with %s", "ünïcode")
    finally:
        copy.detach()
    logger.warning("another")
    (line,) = lines
    assert line.decode().endswith("distributed.worker.state_machine - WARNING - a line with ünïcode")
    assert [record.getMessage() for record in seen] == ["a line with ünïcode"]


def test_a_logger_without_handlers_keeps_printing():
    """Python prints what no handler takes; a handler of ours would end that."""
    code = """
import logging
from workerdiag.recorder.worker import LogCapture
logging.getLogger("tornado.application").handlers.clear()  # those of distributed
LogCapture(lambda _: None, lambda _: None).attach()
logging.getLogger("tornado.application").error("still here")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == "still here\n"


def test_standard_error_is_copied_by_whole_lines_and_handed_on(monkeypatch):
    """Whoever writes in pieces, or asks for other things of the stream, notices nothing."""
    original = io.StringIO()
    monkeypatch.setattr(sys, "stderr", original)
    lines = []
    copy = worker.StderrCapture(lines.append)
    copy.attach()
    sys.stderr.write("one ")
    sys.stderr.writelines(["line\nand ", "more"])
    assert lines == [b"one line"]
    assert sys.stderr.getvalue() == original.getvalue() == "one line\nand more"
    copy.detach()
    assert sys.stderr is original


def test_whoever_took_standard_error_meanwhile_keeps_it(monkeypatch):
    """We only hand on then."""
    original = io.StringIO()
    monkeypatch.setattr(sys, "stderr", original)
    lines = []
    copy = worker.StderrCapture(lines.append)
    copy.attach()
    taken = sys.stderr
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    mine = sys.stderr
    copy.detach()
    assert sys.stderr is mine
    taken.write("late\n")
    assert (lines, original.getvalue()) == ([], "late\n")


def test_faulthandler_of_others_is_left_alone(tmp_path):
    """Where it is on already, that is said instead of redirecting it."""
    was_on = faulthandler.is_enabled()
    faulthandler.enable(io.FileIO(tmp_path / "theirs", "wb"))
    try:
        copy, why_not = worker.capture_fatal_signals(lambda: io.FileIO(tmp_path / "ours", "wb"))
        assert copy is None
        assert "left alone" in why_not
    finally:
        faulthandler.disable()
        if was_on:
            faulthandler.enable(sys.__stderr__)


def test_a_fatal_signal_leaves_stacks_in_the_file_and_a_child_does_not(tmp_path):
    """The worker's own crash is dumped; that of a process it forked is not."""
    code = f"""
import ctypes, io, os
from workerdiag.recorder.worker import capture_fatal_signals
copy, _ = capture_fatal_signals(lambda: io.FileIO({str(tmp_path / "dump")!r}, "wb"))
if os.fork() == 0:
    ctypes.string_at(0)
os.wait()
print(os.path.getsize({str(tmp_path / "dump")!r}), flush=True)
ctypes.string_at(0)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == -11
    assert run.stdout == "0\n"
    assert "Segmentation fault" in (tmp_path / "dump").read_text()


# ------------------------------------------------------------------------------------- samples


class Loop:
    """An event loop that runs what it is given when told."""

    def __init__(self):
        self.waiting = []

    def add_callback(self, call):
        self.waiting.append(call)


def a_worker(**more):
    """As much of a worker as is sampled."""
    return SimpleNamespace(
        loop=Loop(),
        state=SimpleNamespace(nbytes=700),
        data=SimpleNamespace(spilled_total=SimpleNamespace(memory=200, disk=50)),
        memory_manager=SimpleNamespace(memory_limit=1000),
        **more,
    )


def test_a_sample_has_what_is_known(notes):
    """What a system or a release does not say is None, and the rest is there."""
    looked = threading.Event()
    thread = sampler.Sampler(a_worker(), notes, looked.set)
    thread.start()
    assert looked.wait(10)
    thread.stop()
    thread.join(10)
    assert not thread.is_alive()
    sample = notes.samples[0]
    assert (sample["managed_bytes"], sample["spilled_bytes"], sample["memory_limit_bytes"]) == (500, 50, 1000)
    assert sample["thread_count"] >= 2
    if sys.platform == "linux":
        assert 10**6 < sample["process_rss_bytes"] < sample["host_available_bytes"]
        assert 3 <= sample["open_files"] <= sample["open_files_limit"]
    assert notes.lags[0] == (0.0, 0.0)


class Memory:
    """In the place of a process's memory: the readings in turn, of which the last stays."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def read(self):
        now = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        return sampler.ProcessBytes(now, now)


def looked_at(notes, *readings, limit=1000):
    """What was noted of a process whose memory was so at each look."""
    here = a_worker(active_threads={})
    here.memory_manager.memory_limit = limit
    watch = sampler.Sampler(here, notes, bool)
    watch._memory.close()
    watch._group, watch._memory = None, Memory(0, *readings)
    watch._sample_once(0, 0.0)
    return [watch._look() for _ in readings]


def test_memory_that_rises_is_sampled_as_it_rises(notes):
    """A death within a second has a curve; memory that stays or falls has no more than a sample a second."""
    looked_at(notes, 100, 105, 200, 300, 299, 100, 110)
    assert [each["process_rss_bytes"] for each in notes.samples] == [0, 100, 200, 300]


def test_the_closer_and_the_faster_the_more_often_it_looks(notes):
    """Far from the limit four times a second is enough; a rise is followed a hundred times a second."""
    limit = 8 * 10**9
    far, near, rising, still = looked_at(notes, 10**6, limit // 2, limit * 7 // 10, limit * 7 // 10, limit=limit)
    assert (far, near, rising) == (0.25, 0.01, 0.01)
    assert 0.01 < still < 0.25


def test_what_holds_memory_is_looked_for_once_at_each_mark(notes, monkeypatch):
    """Neither at every look above a mark, nor again before memory has fallen; a jump is one look."""
    monkeypatch.setattr(sampler, "largest_objects", lambda *_: ([], True))
    looked_at(notes, 700, 760, 790, 749, 760, 860, 930, 940, 400, 800)
    assert [each["rss_bytes"] for each in notes.censuses] == [760, 860, 930, 800]
    assert {each["limit_bytes"] for each in notes.censuses} == {1000}
    notes.censuses.clear()
    looked_at(notes, 100, 940)
    assert len(notes.censuses) == 1


def test_looking_for_objects_has_a_budget(notes, monkeypatch):
    """Where it takes long it is done less often, so that it takes a small share of the time."""

    def slow(*_):
        began = time.thread_time()
        while time.thread_time() < began + 0.06:
            pass
        return [], True

    monkeypatch.setattr(sampler, "largest_objects", slow)
    looked_at(notes, *(760, 400) * 20)
    assert len(notes.censuses) == 2


def test_without_a_limit_nothing_is_looked_for(notes):
    """There is nothing that memory could come near."""
    assert set(looked_at(notes, 10**9, limit=None)) == {0.25}
    assert notes.censuses == []


def test_a_census_has_room_for_the_largest(notes):
    """What is too much for the box is left out from the end."""
    objects = [{"name": f"x{n}", "type": "list", "size_bytes": 100 - n, "module": "m" * 60} for n in range(60)]
    told = unpackb(sampler.encode_census((1.0,), objects))[-1]
    assert 10 < len(told) < 60
    assert told == objects[: len(told)]


def test_a_blocked_loop_is_late_for_as_long_as_it_is_blocked():
    """Without an answer the lag grows; with one it is what the answer took."""
    loop = Loop()
    probe = sampler.LoopProbe(loop)
    assert probe.lag_s() == 0
    waited = probe.lag_s()
    assert 0 < waited <= probe.lag_s()
    assert len(loop.waiting) == 1
    loop.waiting.pop()()
    assert probe.lag_s() >= waited
    assert len(loop.waiting) == 1


def test_without_proc_nothing_is_known_and_nothing_fails(monkeypatch):
    """As on macOS."""

    def gone(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr("pathlib.Path.open", gone)
    assert procfs_and_cgroups.host_available_bytes() is None
    assert procfs_and_cgroups.cgroup_lines() == []
    assert procfs_and_cgroups.find_memory_group() is None


def test_who_a_worker_is(monkeypatch):
    """Job, pod and container are told where there are such; what is not known is left out."""
    container = "0123456789abcdef" * 4
    monkeypatch.setattr(recording, "cgroup_lines", lambda: [f"0::/kubepods/{container}"])
    for name in ("PBS_JOBID", "POD_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOSTNAME", "dask-worker-1")
    here = SimpleNamespace(address="tcp://10.0.0.4:1", name=7, nanny=None, local_directory="/scratch")
    who = recording.worker_identity(here)
    assert who["container"] == container
    assert (who["job"], who["pod"], who["name"], who["worker"]) == (
        "42",
        "dask-worker-1",
        "7",
        "tcp://10.0.0.4:1",
    )
    assert not who.keys() & {"nanny", "nanny_pid", "scheduler", "threads"}
    assert who["dask"]
    assert who["distributed"]


# ------------------------------------------------------------------------------- asked to end

STOPPED = """
import asyncio, os, signal, sys
from multiprocessing import get_context
from workerdiag.recorder.worker import capture_stops
path, how = sys.argv[1:]
heard = []
def hear(*_):
    print("heard", flush=True)
    heard.append(1)
if how == "own handler before":
    signal.signal(signal.SIGTERM, hear)
capture = capture_stops(open(path, "ab", buffering=0))
if how in ("own handler after", "own handler after, and no recorder"):
    signal.signal(signal.SIGTERM, hear)
if how.endswith("no recorder"):
    capture.detach()
if how == "forked child":
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)
async def asks_asyncio():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, hear)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
if how == "asyncio":
    asyncio.run(asks_asyncio())
else:
    os.kill(os.getpid(), signal.SIGTERM)
os._exit(0 if heard else 1)
"""


@pytest.mark.parametrize(
    ("how", "exit_code", "said", "has_stacks"),
    [
        ("nobody listens", -signal.SIGTERM, "", True),
        ("own handler before", 0, "heard", True),
        ("own handler after", 0, "heard", False),
        ("asyncio", 0, "heard", False),
        ("no recorder", -signal.SIGTERM, "", False),
        ("own handler after, and no recorder", 0, "heard", False),
        ("forked child", 0, "-15", False),
    ],
)
def test_the_stacks_of_a_stop_change_nothing_for_anybody_else(tmp_path, how, exit_code, said, has_stacks):
    """The signal ends whom it would have ended, and is heard by whoever would have heard it."""
    path = tmp_path / "box.fault"
    run = subprocess.run(
        [sys.executable, "-c", STOPPED, str(path), how], capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.returncode, run.stdout.strip()) == (exit_code, said), run.stderr
    assert ("(most recent call first)" in path.read_text()) is has_stacks


# ------------------------------------------------------------------------------ the whole of it


def test_a_worker_in_its_users_process_records_and_leaves(tmp_path, monkeypatch):
    """With ``processes=False`` there is a box, the user's standard error is not touched, and the end is clean."""
    monkeypatch.setenv("WORKERDIAG_RECORDER_DIRECTORY", str(tmp_path))
    stderr, before = sys.stderr, set(threading.enumerate())
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(worker.RecorderWorker())
        client.register_plugin(worker.RecorderWorker())
        (report,) = client.run(recorder_status).values()
        if not report["is_recording"]:
            pytest.skip(f"this system has no room for boxes: {report['missing']}")
        assert client.submit(sum, [1, 2], key="adds").result() == 3
        (path,) = tmp_path.glob("*.box")
        box = read_box(path)
        assert (box.stage, [task.key for task in box.finished_tasks]) == ("running", ["adds"])
        assert box.identity["worker"] == next(iter(client.scheduler_info()["workers"]))
        assert sys.stderr is stderr
    assert list(tmp_path.iterdir()) == []
    for thread in set(threading.enumerate()) - before:
        if "workerdiag" in thread.name:
            thread.join()  # it was told to end, and may be in the midst of a look


def test_a_worker_that_cannot_have_a_box_runs_on():
    """The reason is kept for whoever asks, and nothing else is begun."""
    here = SimpleNamespace(nanny="tcp://10.0.0.4:2", local_directory="/", status=SimpleNamespace(name="running"))
    start_recording(here, WorkerRecording, "plugin")
    assert recorder_status(here)["is_recording"] is False
    assert recorder_status(here)["missing"]["box"].startswith("no black box")
    stop_recording(here, "plugin")
    assert get_recording(here) is None


@pytest.mark.parametrize("status", ["closing", "closing_gracefully", "closed", "failed", "running"])
def test_only_a_nanny_that_runs_on_stops_recording(status):
    """One that closes has its worker's end yet to tell, also if that has told it meanwhile to close gracefully."""
    stopped = []
    here = SimpleNamespace(status=SimpleNamespace(name=status))

    class Active(NannyRecording):
        def __init__(self):
            self.owners = {"plugin"}

        def stop(self):
            stopped.append(status)

    set_recording(here, Active())
    stop_recording(here, "plugin")
    assert stopped == (["running"] if status == "running" else [])


def test_a_preload_leaves_alone_what_is_no_server():
    """Clients have preloads too."""
    from workerdiag.recorder.preload import dask_setup, dask_teardown

    asyncio.run(dask_setup(object()))
    dask_teardown(object())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["worker", "nanny"])
def test_a_process_that_records_loads_little(module):
    """Beside distributed itself a worker or nanny loads only the standard library and small modules of ours."""
    code = f"""
import sys, distributed, distributed.diagnostics.plugin
before = set(sys.modules)
import workerdiag.recorder.{module}
print(*(set(sys.modules) - before))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not {name.split(".")[0] for name in loaded} & set("attr attrs cattrs re2 hyperscan".split())
    ours = {name for name in loaded if name.startswith("workerdiag.")}
    ours -= {
        "workerdiag._version",
        "workerdiag.guard",
        "workerdiag.model",
        "workerdiag.model.stop_reasons",
        "workerdiag.model.user_code",
        "workerdiag.lazy",
        "workerdiag.settings",
        "workerdiag.units",
    }
    assert all(
        name.startswith(("workerdiag.recorder", "workerdiag.procfs_and_cgroups", "workerdiag.wire"))
        for name in ours
    )


def test_the_packages_of_a_worker_are_noted_the_largest_first():
    """A replay imports them; a part of a package by itself where much of it is loaded, as of Dask."""
    loaded = ["os", "os.path", "workerdiag", "_thing", "numpy", *(f"numpy.part{n}" for n in range(30)), "dask"]
    loaded += ["dask.array", *(f"dask.array.part{n}" for n in range(12)), "dask.base", "click"]
    assert sampler.loaded_packages(loaded) == "numpy dask dask.array click"


def test_packages_that_are_loaded_later_are_noted():
    """At the next sample."""
    box = Notes()
    watch = sampler.Sampler(a_worker(active_threads={}), box, bool)
    watch._sample_once(1, 0.0)
    assert "pytest" in box.identity["modules"].split()
    box.identity.clear()
    watch._sample_once(2, 0.0)
    assert box.identity == {}
