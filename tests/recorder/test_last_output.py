"""What C libraries print to standard error: read at the end of a file, told from what others print, or copied."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hanging_peers import gives_up
from workerdiag.procfs_and_cgroups import boot_id, process_start_ms
from workerdiag.recorder import stderr
from workerdiag.recorder.box import directories
from workerdiag.recorder.box.layout import stderr_path
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.recorder.last_output import MAX_BYTES, MAX_CHARS, last_stderr, possibly_own_lines, tail
from workerdiag.sources.recorder.source import death_evidence
from workerdiag.wire.black_box import BlackBox
from workerdiag.wire.messages import DeathReport, StderrTail, decode_message
from workerdiag.wire.recorded_death import RecordedDeath

WHO = {"worker": "tcp://10.0.0.4:34937", "pid": "4711"}
ABORT = "free(): invalid pointer"
LOGGED = "2026-11-21 12:00:00,123 - distributed.worker - INFO - Connected"


def file_of(path):
    """Device and inode, as a box has them."""
    return stderr.file_id(path.stat())


def wait_until(ask):
    deadline = time.monotonic() + 10
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


# ------------------------------------------------------------------------------- where it goes


def noted(**streams):
    """What a process whose standard error is so notes of it."""
    code = (
        "import json; from workerdiag.recorder.stderr import stderr_location; print(json.dumps(stderr_location()))"
    )
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, **streams)
    return json.loads(run.stdout)


def test_a_file_is_noted_with_what_is_in_it_already(tmp_path):
    """Path, device, inode and size tell later what came to it since."""
    log = tmp_path / "job.err"
    log.write_text("from before\n")
    with log.open("ab") as stderr:
        said = noted(stderr=stderr)
    assert said == {"stderr_path": str(log), "stderr_file": file_of(log), "stderr_offset": "12"}


@pytest.mark.parametrize("sink", [subprocess.PIPE, subprocess.DEVNULL])
def test_what_is_no_file_is_not_noted(sink):
    """A pipe or a device has nothing to read later."""
    assert noted(stderr=sink) == {}


# --------------------------------------------------------------------------- the end of a file


def test_only_what_came_since_is_read(tmp_path):
    """What was there at the worker's start is none of its words, nor is what came after its end."""
    log = tmp_path / "log"
    log.write_text("before\nmine\nafter\n")
    assert tail(log, file=file_of(log), since=7, until=12) == "mine\n"


def test_of_much_the_last_whole_lines_are_read(tmp_path):
    """At most 16 KiB, and no half line in front."""
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    said = tail(log).splitlines()
    assert said[-1] == "line 9999"
    assert said[0] == f"line {10_000 - len(said)}"
    assert len("\n".join(said)) <= MAX_BYTES


def test_a_file_that_was_cut_is_not_guessed_at(tmp_path):
    """Nobody knows what of a file that is shorter than it was is new."""
    log = tmp_path / "log"
    log.write_text("old words\n")
    file = file_of(log)
    log.write_text("short\n")
    assert tail(log, file=file, since=10) == ""


def test_a_file_that_was_replaced_is_not_read(tmp_path):
    """Another file of the same name is not the one that the worker wrote to."""
    log = tmp_path / "log"
    log.write_text("words\n")
    file = file_of(log)
    other = tmp_path / "other"
    other.write_text("words of others\n")
    other.replace(log)
    assert tail(log, file=file) == ""


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "nothing"])
def test_what_is_no_regular_file_is_never_opened(tmp_path, kind):
    """A fifo does not make us wait, and no link leads us elsewhere."""
    path, real = tmp_path / "log", tmp_path / "real"
    real.write_text("words\n")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(real)
    elif kind == "folder":
        path.mkdir()
    assert tail(path) == ""


def test_hostile_bytes_become_text(tmp_path):
    """What is no UTF-8 is replaced; zeros, which a cut file begins with, are left out."""
    log = tmp_path / "log"
    log.write_bytes(b"\0\0\xff\xfe\x1b[2J" + ABORT.encode() + b"\n")
    assert tail(log) == f"��\x1b[2J{ABORT}\n"


# -------------------------------------------------------------------------------- whose it is


def test_what_the_box_has_is_not_told_twice():
    """Dask's log and Python's standard error come to the same file."""
    assert possibly_own_lines(f"{LOGGED}\nfrom python\n{ABORT}\n", {LOGGED, "from python"}, WHO) == [ABORT]


def test_dasks_records_of_others_are_left_out_with_their_tracebacks():
    """Whatever of Dask's log the box does not have is of a nanny, or of another worker."""
    text = """\
2026-11-21 12:00:00,123 - distributed.worker - ERROR - Compute Failed
Traceback (most recent call last):
  File "x.py", line 1, in f
ValueError: 3
12:00 [WARNING] distributed.nanny: Restarting worker
terminate called after throwing an instance of 'std::bad_alloc'
  what():  std::bad_alloc
"""
    assert possibly_own_lines(text, set(), WHO) == text.splitlines()[-2:]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("==4711==ERROR: AddressSanitizer: heap-use-after-free", True),
        ("==4712==ERROR: AddressSanitizer: heap-use-after-free", False),
        ("[node1:4711] *** Process received signal ***", True),
        ("[node1:4712] *** Process received signal ***", False),
        ("node1:4712:4720 [0] NCCL WARN Cuda failure", False),
        ("lost tcp://10.0.0.4:34937", True),
        ("lost tcp://10.0.0.5:34937", False),
        ("worker pid=4712 died", False),
        ("CUDA error: an illegal memory access was encountered", True),
    ],
)
def test_a_line_that_names_only_others_is_left_out(line, kept):
    """By process id, as programs word it, or by address."""
    assert possibly_own_lines(line, set(), WHO) == ([line] if kept else [])


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_any_text_is_taken(text):
    """Nothing that a file holds is a problem, and nothing is made up."""
    assert all(line in text for line in possibly_own_lines(text, set(), WHO))


# --------------------------------------------------------------------------------- the message


@pytest.fixture
def log(tmp_path):
    """A file that a job's standard error goes to."""
    path = tmp_path / "job.err"
    path.write_text("from before\n")
    return path


def a_box(log, **more):
    """Of a worker that wrote to the file from its twelfth byte on."""
    goes = {"stderr_path": str(log), "stderr_file": file_of(log), "stderr_offset": "12"}
    known = {"identity": {**WHO, **goes, "boot_id": boot_id()}, "created_at": 100.0, "written_at": 200.0}
    return BlackBox(**{**known, **more})


def another_box(folder, log, *lines, offset="12"):
    """Of this process, which writes to the same file."""
    goes = {"stderr_path": str(log), "stderr_file": file_of(log), "stderr_offset": offset}
    box = BoxWriter.create(folder, **goes)
    for line in lines:
        box.line(line.encode())
    return box


def test_the_file_is_told_without_what_is_known(tmp_path, log):
    """With where it is from, and that nobody else is known to write there."""
    with log.open("a") as file:
        file.write(f"{LOGGED}\n{ABORT}\n")
    said = last_stderr(tmp_path / "a.box", a_box(log, last_output=LOGGED), just_now=True)
    assert said == StderrTail(text=ABORT, origin="file", is_shared=False)


def test_of_a_file_that_another_worker_writes_to_it_is_said(tmp_path, log):
    """What that one's box has is left out; whose the rest is, nobody knows."""
    other = another_box(tmp_path, log, "its own words")
    with log.open("a") as file:
        file.write(f"its own words\n{ABORT}\n")
    said = last_stderr(tmp_path / "a.box", a_box(log, written_at=time.time()), just_now=True)
    other.close(remove=True)
    assert (said.text, said.is_shared) == (ABORT, True)


def test_what_a_later_worker_wrote_is_not_the_dead_ones(tmp_path, log):
    """Who tells of an orphan has often begun to write to the same file."""
    with log.open("a") as file:
        file.write(f"{ABORT}\n")
    later = another_box(tmp_path, log, offset=str(log.stat().st_size))
    with log.open("a") as file:
        file.write("double free or corruption (out)\n")
    said = last_stderr(tmp_path / "a.box", a_box(log), just_now=False)
    later.close(remove=True)
    assert (said.text, said.is_shared) == (ABORT, False)


@pytest.mark.parametrize("offset", ["inf", "-3", "1e400", "never"])
def test_a_hostile_box_beside_it_harms_nothing(tmp_path, log, offset):
    """Anybody of this user may have written it; at worst there is nothing to tell."""
    with log.open("a") as file:
        file.write(f"{ABORT}\n")
    other = another_box(tmp_path, log, offset=offset)
    said = last_stderr(tmp_path / "a.box", a_box(log), just_now=False)
    other.close(remove=True)
    assert said is None


def test_a_copy_is_this_workers_alone(tmp_path, log):
    """It wins over the file, and other processes that it names are its own."""
    log.write_text("from before\nwords of anybody\n")
    stderr_path(tmp_path / "a.box").write_text(f"{ABORT}\n==4712== from a child\n")
    said = last_stderr(tmp_path / "a.box", a_box(log), just_now=True)
    assert said == StderrTail(text=f"{ABORT}\n==4712== from a child", origin="copy", is_shared=False)


def test_nothing_is_told_where_nothing_was_printed(tmp_path, log):
    """Nor where the file is gone."""
    box = a_box(log)
    assert last_stderr(tmp_path / "a.box", box, just_now=True) is None
    log.unlink()
    assert last_stderr(tmp_path / "a.box", box, just_now=True) is None


def test_what_is_told_is_never_too_long(tmp_path, log):
    """As it stands in the message, however it has to be written there; the last words stay."""
    with log.open("ab") as file:
        file.write(b"\x01" * 40_000 + b"\n" + b"\x02\x03\n" * 3000 + ABORT.encode() + b"\n")
    said = last_stderr(tmp_path / "a.box", a_box(log), just_now=True)
    assert len(json.dumps(said.text)) <= MAX_CHARS
    assert said.text.endswith(ABORT)


@gives_up
def test_a_file_that_does_not_answer_is_given_up(tmp_path, log, monkeypatch):
    """A nanny has more to do than to wait for a disk on a network."""
    given_up = threading.Event()
    monkeypatch.setattr("workerdiag.recorder.last_output._read_last_output", lambda *_, **__: given_up.wait())
    assert last_stderr(tmp_path / "a.box", a_box(log), just_now=True) is None
    given_up.set()


@pytest.mark.parametrize(
    ("said", "worker", "title"),
    [
        ({"origin": "copy", "is_shared": False}, WHO["worker"], "flight recorder, standard error of"),
        ({"origin": "file", "is_shared": False}, WHO["worker"], "shared by all that write there"),
        ({"origin": "file", "is_shared": True}, None, "shared by all that write there"),
        ({"origin": "file"}, None, "shared by all that write there"),
    ],
)
def test_rules_see_the_text_as_whose_it_certainly_is(said, worker, title):
    """A worker's own where no other worker wrote there; else nobody's in particular."""
    tail = StderrTail(text=ABORT, **said)
    report = DeathReport(kind="nanny-report", worker_address=WHO["worker"], pid=4711, stderr=tail)
    chunks = [
        each for each in death_evidence([RecordedDeath.of(report)]) if getattr(each, "data", None) == ABORT.encode()
    ]
    (chunk,) = chunks
    assert chunk.identity.worker == worker
    assert title in chunk.origin


@pytest.mark.parametrize("said", ["words", {"text": 7}, {"text": "  ", "origin": "copy"}, {"text": "x"}, None])
def test_a_message_of_another_shape_harms_nothing(said):
    """It came over a network."""
    report = decode_message({"kind": "nanny-report", "pid": 4711, "stderr": said})
    assert not [each for each in death_evidence([RecordedDeath.of(report)]) if hasattr(each, "data")]


# -------------------------------------------------------------------------------- passing it on


class Copied:
    """A file as a worker makes it, its nanny's thread, and the pipe that this passes on to."""

    def __init__(self, folder):
        self.path = folder / "a.box.stderr"
        self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.out, sink = os.pipe()
        os.set_blocking(self.out, False)
        self.forwarder = stderr.Forwarder(self.path, sink, os.getpid(), process_start_ms(os.getpid()))

    def write(self, data):
        os.write(self.file, data)

    def read(self):
        try:
            return os.read(self.out, 2**20)
        except BlockingIOError:
            return b""

    def is_locked(self):
        try:
            fcntl.flock(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self.file, fcntl.LOCK_UN)
        return False

    def close(self):
        self.forwarder.finish()
        os.close(self.file)
        os.close(self.out)


@pytest.fixture
def copied(tmp_path):
    copied = Copied(tmp_path)
    yield copied
    copied.close()


def test_what_is_written_is_passed_on_at_once(copied):
    """Within a tenth of a second, when the machine is not busy, and with a lock as the nanny's word."""
    assert copied.is_locked()
    copied.write(b"words\n")
    assert wait_until(copied.read) == b"words\n"


def test_the_rest_is_passed_on_when_the_worker_has_ended(copied):
    """Nothing is lost that was written before the end."""
    lines = b"".join(b"line %d\n" % number for number in range(5000))
    copied.write(lines)
    copied.forwarder.finish()
    assert copied.read() == lines
    assert copied.forwarder.is_finished


def test_room_is_given_back_and_the_end_is_kept(copied):
    """The file takes little room however much is written, and ends with the last words."""
    for number in range(64):
        copied.write(b"%d" % number * 50_000 + b"\n")
        while not copied.read():
            time.sleep(0.001)
    copied.write(b"the last words\n")
    wait_until(lambda: b"last words" in copied.read())
    wait_until(lambda: copied.path.stat().st_blocks * 512 < 2 * 2**20)
    assert copied.path.stat().st_size > 4 * 2**20
    assert tail(copied.path).endswith("the last words\n")


def test_a_reader_that_does_not_read_is_not_waited_for(copied):
    """The worker writes on; of what is too much for later, the reader is told how much is missing."""
    for _ in range(12):
        copied.write(b"x" * 2**20 + b"\n")
        time.sleep(0.01)
    wait_until(lambda: copied.path.stat().st_blocks * 512 < stderr.MAX_WAITING_BYTES + 2 * 2**20)
    seen = bytearray()
    wait_until(lambda: seen.extend(copied.read()) or b"were not passed on" in seen)


def test_a_reader_that_is_gone_harms_nothing(copied):
    """The worker gets no EPIPE, and its last words are in the file."""
    os.close(copied.out)
    copied.out = os.open(os.devnull, os.O_RDONLY)
    copied.write(b"words\n")
    time.sleep(0.2)
    copied.write(b"the last words\n")
    assert not copied.forwarder.is_finished
    assert tail(copied.path) == "words\nthe last words\n"


def test_it_ends_when_the_worker_takes_its_file_away(copied):
    """What was written before is passed on."""
    copied.write(b"words\n")
    copied.path.unlink()
    wait_until(lambda: copied.forwarder.is_finished)
    assert copied.read() == b"words\n"


def test_a_nanny_that_withdraws_passes_on_until_the_worker_knows(copied):
    """The lock goes first, then the worker takes its standard error back, then the thread ends."""
    copied.forwarder.withdraw()
    wait_until(lambda: not copied.is_locked())
    copied.write(b"words\n")
    assert wait_until(copied.read) == b"words\n"


def test_on_a_disk_that_fills_up_the_nanny_withdraws(copied, monkeypatch):
    """Before the worker's own writing could fail."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stderr, "reserve_space", full)
    copied.write(b"x" * 400_000)
    wait_until(lambda: not copied.is_locked())


def test_where_the_disk_keeps_no_room_nothing_begins(tmp_path, monkeypatch):
    """Without the nanny's word the worker leaves its standard error as it is."""

    def unable(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(stderr, "release_space", unable)
    path = tmp_path / "a.box.stderr"
    path.touch()
    with pytest.raises(OSError, match="not supported"):
        stderr.Forwarder(path, 2, os.getpid(), process_start_ms(os.getpid()))


# ---------------------------------------------------------------------------------- the worker


COPYING = """
import asyncio, fcntl, os, sys
from pathlib import Path
from workerdiag.recorder import stderr

async def main(box, mode):
    notes = []
    stderr._NANNY_TIMEOUT_S = 0.5
    copy = stderr.copy_stderr(Path(box), notes.append)
    path = Path(box + ".stderr")
    if copy is not None:
        if mode != "no nanny":
            nanny = os.open(path, os.O_RDONLY)
            fcntl.flock(nanny, fcntl.LOCK_EX)
        copy.attach()
        await asyncio.sleep(1)
        os.write(2, b"while it is copied\\n")
        print(path.read_bytes() if path.exists() else None, flush=True)
        if mode == "nanny gone":
            os.close(nanny)
            await asyncio.sleep(1)
        copy.detach()
    os.write(2, b"afterwards\\n")
    print(path.exists(), notes)

asyncio.run(main(*sys.argv[1:]))
"""


def a_worker(tmp_path, mode, **options):
    """What a process said that copies its standard error, on both of its streams."""
    command = [sys.executable, "-c", COPYING, str(tmp_path / "a.box"), mode]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    run = subprocess.run(command, text=True, check=True, timeout=60, **streams)
    return run.stdout.splitlines(), run.stderr


def test_with_a_nanny_standard_error_goes_to_the_file_and_back(tmp_path):
    """After the end it is what it was, and the file is gone."""
    said, errors = a_worker(tmp_path, "all's well")
    assert said == [str(b"while it is copied\n"), "False []"]
    assert errors == "afterwards\n"


def test_without_a_nannys_word_nothing_is_touched(tmp_path):
    """The worker says what it does without."""
    said, errors = a_worker(tmp_path, "no nanny")
    assert errors == "while it is copied\nafterwards\n"
    assert said[0] == "None"
    assert "its nanny does not pass it on" in said[1]


def test_when_the_nanny_withdraws_standard_error_is_taken_back(tmp_path):
    """The worker sees that the lock is gone."""
    said, errors = a_worker(tmp_path, "nanny gone")
    assert errors == "afterwards\n"
    assert said[0] == str(b"while it is copied\n")
    assert "its nanny passes it on no more" in said[1]


def test_a_file_stays_as_it_is(tmp_path):
    """It is read where it is."""
    with (tmp_path / "log").open("ab") as log:
        said, _ = a_worker(tmp_path, "all's well", stderr=log)
    assert said == ["False []"]


def test_where_files_may_not_grow_nothing_begins(tmp_path, monkeypatch):
    """A copy would fail there, and the worker's writing with it."""
    command = ["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", sys.executable, "-c", COPYING]
    run = subprocess.run(
        [*command, str(tmp_path / "a.box"), "x"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "the size of files is limited" in run.stdout


def test_a_full_disk_is_noted(tmp_path):
    """Where the file cannot be made the worker does without."""
    notes = []
    read, write = os.pipe()
    saved = os.dup(2)
    os.dup2(write, 2)
    try:
        assert stderr.copy_stderr(tmp_path / "nowhere" / "a.box", notes.append) is None
    finally:
        os.dup2(saved, 2)
        for each in (read, write, saved):
            os.close(each)
    assert "what C libraries print to standard error" in notes[0]


def test_a_copy_goes_with_its_box(tmp_path):
    """Who throws away a box leaves nothing beside it; without a box a copy is a leftover."""
    box = another_box(tmp_path, Path(__file__))
    copy = stderr_path(box.path)
    copy.write_text(ABORT)
    box.close(remove=True)
    assert list(tmp_path.iterdir()) == []
    copy.write_text(ABORT)
    assert directories.sweep([tmp_path], now=time.time() + directories.RETENTION_S + 60) == (copy,)


def test_copies_are_made_only_if_asked_for(monkeypatch):
    """Off by default."""
    import dask.config

    assert not stderr.is_copy_configured()
    with dask.config.set({"workerdiag.recorder.stderr": "copy"}):
        assert stderr.is_copy_configured()
