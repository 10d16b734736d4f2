"""Real deaths of which only a C library said something. Each test makes one promise about where that is found."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import workerdiag
from workerdiag.recorder.recording import recorder_status
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.messages import DEATH_KINDS

from . import tasks
from .cluster import IMPATIENT, _environment, raised
from .processes import PATIENCE_S, Daemon, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]
common = pytest.mark.common

PRELOADS = {
    f"DASK_DISTRIBUTED__{process}__PRELOAD": '["workerdiag.recorder.preload"]'
    for process in ("NANNY", "WORKER", "SCHEDULER")
}
COPY = {"DASK_WORKERDIAG__RECORDER__STDERR": "copy"}
#: What glibc says of a bad pointer (malloc/malloc.c); which, depends on what lies before it.
ABORTS = ("free(): invalid pointer", "munmap_chunk(): invalid pointer", "free(): invalid size")
CUDA = "CUDA error: an illegal memory access was encountered"
#: Standard error of the command becomes a pipe to a program that writes to the log.
PIPED = 'exec "$@" 2> >(exec cat)'


def piped_worker(lab, name="worker", **env):
    """A nanny, and its worker, whose standard error is a pipe."""
    options = [
        "--name",
        name,
        "--nthreads",
        "1",
        "--no-dashboard",
        "--local-directory",
        str(lab.folder / name),
    ]
    more = {"DASK_TEMPORARY_DIRECTORY": str(lab.folder), tasks.ON_WORKER: "1"}
    daemon = Daemon(
        ["bash", "-c", PIPED, "bash", sys.executable, "-m", "dask", "worker", lab.address, *options],
        log=lab.folder / f"{name}.log",
        env={**_environment(), **more, **env},
    )
    lab.callback(daemon.close)
    lab.daemons[name] = daemon
    return daemon


def bad_free(mark=None):
    """Free what was never allocated, as broken extension modules do: with the interpreter lock."""
    buffer = ctypes.create_string_buffer(4096)
    tasks._announce(mark)
    ctypes.PyDLL(None).free(ctypes.c_void_p(ctypes.addressof(buffer) + 64))


def bad_free_beside_threads():
    """The same without the interpreter lock, while other threads run.

    In one of four runs faulthandler crashes over their stacks, so that SIGSEGV or SIGBUS ends the process.
    """

    def run_on():
        while True:
            json.dumps([1] * 50)

    for _ in range(4):
        threading.Thread(target=run_on, daemon=True).start()
    buffer = ctypes.create_string_buffer(4096)
    ctypes.CDLL(None).free(ctypes.c_void_p(ctypes.addressof(buffer) + 64))


def print_as_c_does(text):
    """Past all of Python; returns the process id."""
    os.write(2, text.encode() + b"\n")
    return os.getpid()


def death_message(client):
    """What a nanny, or who found the box, told of the one death."""

    def ask():
        messages = [message for _, message in client.get_events(DEATH_TOPIC)]
        return [message for message in messages if message["kind"] in DEATH_KINDS[1:]]

    (message,) = wait_until(ask, "a message about the death")
    return message


def goes_to(pid):
    """Where standard error of a process goes."""
    return str(Path(f"/proc/{pid}/fd/2").readlink())


def copied(daemon):
    """The worker's process, once its standard error goes by way of a file."""
    pid = daemon.worker_pid()
    wait_until(lambda: goes_to(pid).endswith(".stderr"), "standard error to be copied")
    return pid


def evidence(diagnosis):
    """All that speaks for the first cause, as text."""
    assert diagnosis.top is not None, str(diagnosis)
    return "\n".join(str(each) for each in diagnosis.top.evidence)


@common
def test_what_glibc_says_before_it_aborts_is_found_in_the_workers_log(lab):
    """Where standard error is a file, nothing is changed and the C library's line explains the death."""
    lab.scheduler(**IMPATIENT)
    daemon = lab.worker()
    client = lab.client()
    workerdiag.install(client)
    log = goes_to(daemon.worker_pid())
    problem = raised(client.submit(bad_free, key="deadly"))
    message = death_message(client)
    assert log == str(daemon.log)
    assert message["stderr"]["text"].strip() in ABORTS
    assert (message["stderr"]["origin"], message["stderr"]["is_shared"]) == ("file", False)
    diagnosis = workerdiag.explain(problem, client, timeout="30s")
    assert diagnosis.top.id == "signal.abort", str(diagnosis)
    assert any(each in evidence(diagnosis) for each in ABORTS)


def test_an_abort_is_one_whatever_signal_ends_it(lab):
    """The C library's line and the first signal that faulthandler names count, not the last."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    workerdiag.install(client)
    problem = raised(client.submit(bad_free_beside_threads, key="deadly"))
    diagnosis = workerdiag.explain(problem, client, timeout="30s")
    assert diagnosis.top is not None, str(diagnosis)
    assert diagnosis.top.id == "signal.abort", str(diagnosis)


def test_of_workers_that_share_a_log_it_is_said_that_they_do(lab):
    """Two nannies of one command write into one file; only the one that died is told of."""
    lab.scheduler(**IMPATIENT)
    lab.worker("--nworkers", "2", name="both")
    client = lab.client(workers=2)
    workerdiag.install(client)
    problem = raised(client.submit(bad_free, key="deadly"))
    message = death_message(client)
    assert message["stderr"]["text"].strip() in ABORTS
    assert message["stderr"]["is_shared"]
    assert any(each in evidence(workerdiag.explain(problem, client, timeout="30s")) for each in ABORTS)


@common
def test_what_glibc_says_into_a_pipe_is_copied_if_asked_for(lab):
    """The line is with the death, explains it, and is where it was before all the same."""
    lab.scheduler(**IMPATIENT)
    daemon = piped_worker(lab, **COPY)
    client = lab.client()
    workerdiag.install(client)
    copied(daemon)
    problem = raised(client.submit(bad_free, key="deadly"))
    message = death_message(client)
    assert message["stderr"]["text"].strip() in ABORTS
    assert (message["stderr"]["origin"], message["stderr"]["is_shared"]) == ("copy", False)
    daemon.wait_for_output("|".join(each.replace("(", r"\(").replace(")", r"\)") for each in ABORTS))
    diagnosis = workerdiag.explain(problem, client, timeout="30s")
    assert diagnosis.top.id == "signal.abort", str(diagnosis)
    assert any(each in evidence(diagnosis) for each in ABORTS)


def test_a_pipe_is_left_alone_if_nobody_asks(lab):
    """Off by default: standard error stays what it is."""
    lab.scheduler(**IMPATIENT)
    daemon = piped_worker(lab)
    client = lab.client()
    before = goes_to(daemon.worker_pid())
    workerdiag.install(client)
    time.sleep(1)
    assert goes_to(daemon.worker_pid()) == before
    raised(client.submit(bad_free, key="deadly"))
    assert "stderr" not in death_message(client)


def test_a_worker_that_is_killed_with_its_nanny_leaves_its_copy_to_the_next(lab, boxes):
    """What it printed last lies beside its box, and goes with it."""
    lab.scheduler(**IMPATIENT)
    daemon = piped_worker(lab, **PRELOADS, **COPY)
    client = lab.client()
    wait_until(
        lambda: all(each["is_recording"] for each in client.run(recorder_status, nanny=True).values()),
        "the nanny",
    )
    pid = copied(daemon)
    assert client.submit(print_as_c_does, CUDA).result(timeout=PATIENCE_S) == pid
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    lab.running()
    daemon.send(signal.SIGSTOP)  # so that it cannot see its worker die
    os.kill(pid, signal.SIGKILL)
    daemon.send(signal.SIGKILL)
    raised(future)
    piped_worker(lab, "second", **PRELOADS)
    message = death_message(client)
    assert (message["kind"], message["pid"]) == ("box-found", pid)
    assert CUDA in message["stderr"]["text"]
    wait_until(lambda: not [each for each in boxes.iterdir() if str(pid) in each.name], "its files to go")


def test_after_uninstall_standard_error_is_what_it_was(lab, boxes):
    """No file is left, and what C prints then still comes to the nanny's standard error."""
    lab.scheduler(**IMPATIENT)
    daemon = piped_worker(lab, **COPY)
    client = lab.client()
    pid = daemon.worker_pid()
    before = goes_to(pid)
    workerdiag.install(client)
    copied(daemon)
    client.submit(print_as_c_does, "while it is copied").result(timeout=PATIENCE_S)
    workerdiag.uninstall(client)
    wait_until(lambda: goes_to(pid) == before, "standard error to be as before")
    wait_until(lambda: not list(boxes.iterdir()), "the files to go")
    daemon.wait_for_output("while it is copied\n")
    client.submit(print_as_c_does, "after the end").result(timeout=PATIENCE_S)
    daemon.wait_for_output("after the end\n")


def test_a_worker_that_is_told_to_end_leaves_nothing_out(lab, boxes):
    """What it printed until then came to the nanny's standard error, and its files are gone."""
    lab.scheduler(**IMPATIENT)
    daemon = piped_worker(lab, **COPY)
    client = lab.client()
    workerdiag.install(client)
    copied(daemon)
    client.submit(print_as_c_does, "its last words").result(timeout=PATIENCE_S)
    daemon.send(signal.SIGTERM)
    daemon.ended()
    daemon.wait_for_output("its last words\n")
    assert not [each for each in boxes.iterdir() if each.name.endswith(".stderr")]


def test_a_child_of_the_worker_prints_where_it_did(lab):
    """Programs that a task runs inherit the file, and what they print is passed on too."""
    lab.scheduler(**IMPATIENT)
    daemon = piped_worker(lab, **COPY)
    client = lab.client()
    workerdiag.install(client)
    copied(daemon)
    command = ["sh", "-c", "echo from a child >&2"]
    assert client.submit(subprocess.call, command).result(timeout=PATIENCE_S) == 0
    daemon.wait_for_output("from a child\n")
