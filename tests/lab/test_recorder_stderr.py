"""Real deaths of which only a C library said something. Each test makes one promise about where that is found."""

from __future__ import annotations

import ctypes
import json
import threading
from pathlib import Path

import pytest

import workerdiag
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.messages import DEATH_KINDS

from . import tasks
from .cluster import IMPATIENT, raised
from .processes import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]
common = pytest.mark.common

#: What glibc says of a bad pointer (malloc/malloc.c); which, depends on what lies before it.
ABORTS = ("free(): invalid pointer", "munmap_chunk(): invalid pointer", "free(): invalid size")


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
    assert not message["stderr"]["is_shared"]
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
