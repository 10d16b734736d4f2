"""The writing end of a black box: what is noted is there at once, and nothing that goes wrong reaches the worker."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import workerdiag
from workerdiag.recorder.box import directories, layout
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.box.writer import BoxWriter

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="a black box needs Linux")


@pytest.fixture
def writer(tmp_path):
    """A box with four slots."""
    box = BoxWriter.create(tmp_path, slots=4, worker="tcp://10.0.0.4:34937", name="alice")
    yield box
    box.close(remove=True)


def forked(work):
    """Exit status of a forked child that did *work*; minus the signal, if one killed it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_runs_is_there_at_once(writer):
    """A task that began a moment ago can be read, with its thread, before anything else happens."""
    writer.started(2, "('sum', 3)", 1234, "Dask-Default-Threads-1")
    (task,) = read_box(writer.path).running_tasks
    assert (task.slot, task.key, task.is_clipped) == (2, "('sum', 3)", False)
    assert (task.thread_id, task.thread_name) == (1234, "Dask-Default-Threads-1")


def test_what_ended_runs_no_more(writer):
    """A finished task moves from the running ones to the finished ones, with how it ended."""
    writer.started(0, "x", 1, "a")
    writer.started(1, "y", 2, "b")
    writer.finished(0, "error")
    box = read_box(writer.path)
    assert [each.key for each in box.running_tasks] == ["y"]
    (task,) = box.finished_tasks
    assert (task.key, task.outcome, task.slot) == ("x", "error", 0)
    assert task.started_at <= task.ended_at
    assert task.duration_s >= 0


def test_the_last_of_everything_is_kept(writer):
    """Rings forget the oldest, and say the rest in the order it happened."""
    for number in range(1000):
        writer.started(0, f"task-{number}", 1, "a")
        writer.finished(0, "ok")
        writer.sample(process_rss_bytes=number)
        writer.lag(number, None)
    box = read_box(writer.path)
    assert [each.key for each in box.finished_tasks] == [
        f"task-{nth}" for nth in range(1000 - len(box.finished_tasks), 1000)
    ]
    assert [each.process_rss_bytes for each in box.samples] == list(range(936, 1000))
    assert [each.loop_s for each in box.lags] == list(range(936, 1000))
    assert box.unreadable_parts == ()


def test_a_sample_says_what_is_not_known(writer):
    """A number that was not given is None, also when zero is a number like others."""
    writer.sample(process_rss_bytes=0, cgroup_limit_bytes=None)
    (sample,) = read_box(writer.path).samples
    assert (sample.process_rss_bytes, sample.cgroup_limit_bytes, sample.open_files) == (0, None, None)


def test_a_number_below_zero_is_not_known(writer):
    """All are counts and sizes: nobody has less than none, and a damaged box may say so."""
    writer.sample(process_rss_bytes=-5, thread_count=3)
    (sample,) = read_box(writer.path).samples
    assert (sample.process_rss_bytes, sample.thread_count) == (None, 3)


def test_long_texts_are_cut_at_whole_characters(writer):
    """Keys and names of any length and language fit, and a cut key says so."""
    writer.started(0, "é" * 500, 1, "線" * 100)
    writer.started(1, "k" * layout.KEY_BYTES, 1, "\ud800")
    writer.stage("closing", "ü" * 1000)
    writer.identify(worker="tcp://" + "x" * 10_000, name="a\0b")
    box = read_box(writer.path)
    assert [(each.key, each.is_clipped) for each in box.running_tasks] == [
        ("é" * 100, True),
        ("k" * 200, False),
    ]
    assert box.running_tasks[0].thread_name == "線" * 16
    assert box.running_tasks[1].thread_name == "?"
    assert set(box.close_reason) == {"ü"}
    assert len(box.identity["worker"]) == 512
    assert box.identity["name"] == "a\0b"


def test_identity_tells_this_process_from_all_others(writer):
    """Pid, start, host and boot are there by themselves; what changes later wins."""
    writer.identify(worker="tcp://10.0.0.4:4")
    identity = read_box(writer.path).identity
    assert identity["pid"] == str(os.getpid())
    assert identity["worker"] == "tcp://10.0.0.4:4"
    assert identity["workerdiag"] == workerdiag.__version__
    assert {"host", "started_ms", "boot_id", "python"} <= set(identity)


def test_lines_come_back_as_they_were_written(writer):
    """Lines longer than a cell are put together again; very long ones keep their beginning and their end."""
    writer.line(b"short\n")
    writer.line(b"x" * 2000)
    writer.line(b"")
    writer.line(b"HEAD" + b"-" * 100_000 + b"TAIL\n")
    short, long, cut = read_box(writer.path).last_output.split("\n", 2)
    assert (short, long) == ("short", "x" * 2000)
    assert cut.startswith("HEAD")
    assert cut.endswith("TAIL\n")
    assert len(cut) < 8300


def test_more_threads_than_slots_are_told(writer):
    """A task without a slot is not recorded, and nobody takes what is executing for all of it."""
    writer.started(4, "x", 1, "a")
    writer.finished(4, "ok")
    box = read_box(writer.path)
    assert box.running_tasks == box.finished_tasks == ()
    assert box.missing == {"tasks-without-slot"}
    assert not box.has_all_running_tasks


def test_many_threads_write_at_once(writer):
    """Without a lock, nothing of one thread's gets into another's."""

    def work(slot):
        for number in range(2000):
            writer.started(slot, f"{slot}-{number}" * 20, slot, str(slot))
            writer.line(f"{slot}".encode() * 300)
            writer.finished(slot, "ok")

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    box = read_box(writer.path)
    assert box.running_tasks == box.unreadable_parts == ()
    assert all(each.key.startswith(f"{each.slot}-") for each in box.finished_tasks)
    assert all(len(set(line)) == 1 for line in box.last_output.split() if "[" not in line)


def test_a_closed_box_is_written_no_more(writer):
    """Whatever still runs when the worker closes may go on noting; nothing is raised, nothing is left."""
    writer.open_fault().close()
    writer.close(remove=True)
    writer.started(0, "x", 1, "a")
    writer.finished(0, "ok")
    writer.sample(process_rss_bytes=3)
    writer.line(b"late")
    writer.stage("closed")
    writer.identify(worker="late")
    assert list(writer.path.parent.iterdir()) == []


def test_a_forked_child_has_no_box(writer):
    """What a task's child process does is not noted as the worker's, and does not disturb it."""
    writer.started(0, "x", 1, "a")

    def work():
        writer.finished(0, "ok")
        writer.line(b"from the child")
        writer.close(remove=False)

    assert forked(work) == 0
    box = read_box(writer.path)
    assert [each.key for each in box.running_tasks] == ["x"]
    assert box.last_output == ""


def test_two_workers_of_one_process_have_a_box_each(writer):
    """A LocalCluster without processes does not mix its workers."""
    other = BoxWriter.create(writer.path.parent, name="bob")
    assert other.path != writer.path
    assert [read_box(each.path).identity["name"] for each in (writer, other)] == ["alice", "bob"]
    other.close(remove=True)


def test_a_box_is_for_its_owner_only(writer):
    """Keys and log lines are nobody else's business."""
    assert writer.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("slots", [1, 16, 256, 10_000])
def test_any_number_of_slots_fits(tmp_path, slots):
    """The file grows with the slots if need be, up to 256 of them and 4 MiB."""
    writer = BoxWriter.create(tmp_path, size_bytes=1, slots=slots)
    writer.started(writer.slots - 1, "x", 1, "a")
    writer.line(b"said")
    box = read_box(writer.path)
    assert [each.slot for each in box.running_tasks] == [min(slots, 256) - 1]
    assert box.last_output == "said\n"
    assert writer.path.stat().st_size < 4 * 2**20
    writer.close(remove=True)


@pytest.mark.parametrize("size", [1, 2**18, 2**30])
def test_the_parts_of_a_box_do_not_overlap(size):
    """Each region begins behind the one before, and the last ends within the file."""
    size_bytes, regions = layout.plan_regions(size, 16)
    ends = [layout.HEADER_BYTES, *(each.end for each in regions.values())]
    assert [each.offset for each in regions.values()] == ends[:-1]
    assert ends[-1] <= size_bytes <= layout.MAX_BYTES
    assert len(layout.pack_header(size_bytes, 16, 0.0)) <= layout.HEADER_BYTES


# ------------------------------------------------------------------------------- stepping aside


def test_without_room_there_is_no_box(tmp_path, monkeypatch):
    """A full disk is found out when the box is made, and nothing is left behind."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        BoxWriter.create(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["btrfs", "nfs4", "fuse.sshfs", ""])
def test_where_room_may_be_lost_there_is_no_box(tmp_path, monkeypatch, kind):
    """On a file system that writes elsewhere each time, a full disk would kill the worker later."""
    monkeypatch.setattr(directories, "filesystem_type", lambda _: kind)
    with pytest.raises(OSError, match="cannot keep room"):
        BoxWriter.create(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_os_error(tmp_path):
    """Everything the system may do wrong is of one kind, which the recorder catches."""
    with pytest.raises(OSError, match="missing"):
        BoxWriter.create(tmp_path / "missing")


FULL = """
mount -t tmpfs -o size=1m none "$1" && cd "$1" && exec "$2" - <<'END'
import os
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.box.writer import BoxWriter
writer = BoxWriter.create(".", slots=4)
try:
    with open("filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError:
    pass
assert os.statvfs(".").f_bavail == 0
for number in range(5000):
    writer.started(0, f"task-{number}", 1, "a")
    writer.line(b"x" * 300)
    writer.sample(process_rss_bytes=number)
    writer.finished(0, "ok")
assert read_box(writer.path).finished_tasks[-1].key == "task-4999"
try:
    BoxWriter.create(".", slots=4)
except OSError as problem:
    print("no second box:", problem)
END
"""


def test_a_disk_that_fills_up_later_does_not_kill_the_worker(tmp_path):
    """The room of a box is taken when it is made, so that no write to it is ever a SIGBUS."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no right to mount a small disk")
    command = ["unshare", "-rm", "sh", "-c", FULL, "sh", str(tmp_path), sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(Path(workerdiag.__file__).parents[1])}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if "mount:" in run.stderr:
        pytest.skip("no right to mount a small disk")
    assert run.returncode == 0, run.stderr
    assert "no second box" in run.stdout


# ---------------------------------------------------------------------------------------- cost


def test_the_writer_loads_next_to_nothing():
    """A dying worker, and one that starts, imports no reader, no attrs and nothing of Dask for its box."""
    code = "import workerdiag.recorder.box.writer, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"attr", "attrs", "dask", "distributed", "asyncio", "json", "workerdiag.errors"}


def test_a_task_is_noted_by_copying_some_bytes(writer):
    """Tasks may last a microsecond: there are few calls in it, none of them of a file or of the system."""
    calls = Counter()

    def counting(frame, event, called):
        if event == "call":
            calls[frame.f_globals["__name__"]] += 1
        elif event == "c_call":
            calls[called.__module__ or type(called.__self__).__module__] += 1

    sys.setprofile(counting)
    writer.started(0, "chunk-0123456789abcdef", 1, "Dask-Default-Threads-1")
    writer.finished(0, "ok")
    sys.setprofile(None)

    calls.pop("sys")  # the end of counting
    of_c = {"builtins", "_struct", "msgpack", "msgpack._cmsgpack", "time", "zlib"}
    assert set(calls) <= {BoxWriter.__module__, *of_c}
    assert calls.total() <= 80


# --------------------------------------------------------------------------------------- death


def test_a_killed_worker_leaves_what_it_did(tmp_path):
    """SIGKILL leaves no time for anything, and takes nothing of what was noted."""

    def work():
        writer = BoxWriter.create(tmp_path)
        writer.stage("running")
        writer.started(0, "fatal", 7, "thread")
        os.kill(os.getpid(), signal.SIGKILL)

    assert forked(work) == -signal.SIGKILL
    (path,) = tmp_path.iterdir()
    box = read_box(path)
    assert (box.stage, [each.key for each in box.running_tasks]) == ("running", ["fatal"])


def test_faulthandler_adds_to_the_box(tmp_path):
    """Of a segmentation fault the reader has the stacks, too."""
    code = (
        "import faulthandler, sys; from workerdiag.recorder.box.writer import BoxWriter\n"
        "writer = BoxWriter.create(sys.argv[1]); file = writer.open_fault()\n"
        "faulthandler.enable(file); faulthandler._sigsegv()"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert run.returncode == -signal.SIGSEGV
    (path,) = tmp_path.glob("*.box")
    assert read_box(path).faulthandler_dump.startswith("Fatal Python error: Segmentation fault")
