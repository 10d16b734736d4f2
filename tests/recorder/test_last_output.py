"""What C libraries print to standard error: read at the end of a file, told from what others print, or copied."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hanging_peers import gives_up
from workerdiag.procfs_and_cgroups import boot_id, file_id
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.recorder.last_output import MAX_BYTES, MAX_CHARS, last_stderr, possibly_own_lines, tail
from workerdiag.sources.recorder.death_evidence import death_evidence
from workerdiag.wire.black_box import BlackBox
from workerdiag.wire.messages import DeathReport, StderrTail, decode_message
from workerdiag.wire.recorded_death import RecordedDeath

WHO = {"worker": "tcp://10.0.0.4:34937", "pid": "4711"}
ABORT = "free(): invalid pointer"
LOGGED = "2026-11-21 12:00:00,123 - distributed.worker - INFO - Connected"


def file_of(path):
    """Device and inode, as a box has them."""
    return file_id(path.stat())


def wait_until(ask):
    deadline = time.monotonic() + 10
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


# ------------------------------------------------------------------------------- where it goes


def noted(**streams):
    """What a process whose standard error is so notes of it."""
    code = "import json; from workerdiag.procfs_and_cgroups import stderr_location; print(json.dumps(stderr_location()))"
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
    assert said == StderrTail(text=ABORT, is_shared=False)


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
        ({"is_shared": False}, WHO["worker"], "shared by all that write there"),
        ({"is_shared": True}, None, "shared by all that write there"),
        ({}, None, "shared by all that write there"),
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


@pytest.mark.parametrize("said", ["words", {"text": 7}, {"text": "  "}, None])
def test_a_message_of_another_shape_harms_nothing(said):
    """It came over a network."""
    report = decode_message({"kind": "nanny-report", "pid": 4711, "stderr": said})
    assert not [each for each in death_evidence([RecordedDeath.of(report)]) if hasattr(each, "data")]
