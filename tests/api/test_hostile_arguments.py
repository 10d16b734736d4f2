"""Nothing gets out of `explain`, whatever is handed in, and what is good beside it counts."""

from __future__ import annotations

import _thread
import asyncio
import io
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest

import workerdiag
from support.diagnoses import GOOD, KILLED, first_cause, shown
from workerdiag import deadline
from workerdiag.rulebook import load


class Raising:
    """Whatever is asked of it raises."""

    def __init__(self, kind):
        object.__setattr__(self, "kind", kind)

    def __getattribute__(self, name):
        raise object.__getattribute__(self, "kind")(name)

    def __iter__(self):
        raise object.__getattribute__(self, "kind")


def logs_then(failure):
    yield GOOD
    raise failure


class BadError(OSError):
    """An error that cannot say what it is."""

    def __str__(self):
        raise RuntimeError("no words")


class BadFile(io.RawIOBase):
    """An open file that cannot be read."""

    def read(self, _=-1):
        raise BadError


class EndingFile:
    """An open file that ends the thread which reads it."""

    @property
    def name(self):
        """What files have."""
        raise SystemExit

    def read(self, _=-1):
        raise SystemExit


@pytest.mark.parametrize(
    "logs",
    [
        lambda: logs_then(ValueError("no more")),
        lambda: [BadFile(), GOOD],
        lambda: [EndingFile(), GOOD],
        lambda: [None, 5, b"bytes", object(), Mock(), "\0", "two\nlines", "/no/caf\udce9.log", GOOD],
        lambda: {GOOD: 1},
    ],
)
def test_a_bad_log_beside_a_good_one_is_a_gap(logs, tmp_path):
    """The good one is read wherever it stands, and the bad one is told of."""
    diagnosis = workerdiag.explain(logs=logs())

    assert first_cause(diagnosis) == first_cause(workerdiag.explain(logs=[GOOD]))
    shown(diagnosis, tmp_path)


@pytest.mark.parametrize(
    "client",
    [
        lambda: Raising(RuntimeError),
        Mock,
        MagicMock,
    ],
    ids=["error", "mock", "magic"],
)
def test_a_client_that_fails_is_a_gap(client):
    """Logs are read all the same."""
    diagnosis = workerdiag.explain(RuntimeError("x"), client(), logs=[GOOD], timeout=1)

    assert first_cause(diagnosis) == first_cause(workerdiag.explain(logs=[GOOD]))
    assert diagnosis.gaps


class Asynchronous:
    """A client that says so only once: what is asked of it later raises."""

    def __init__(self, answers):
        self._answers = iter(answers)

    scheduler = None

    @property
    def asynchronous(self):
        if not (answer := next(self._answers, None)):
            raise RuntimeError("closed")
        return answer


@pytest.mark.parametrize(
    ("client", "sources"),
    [
        (lambda: Raising(RuntimeError), None),
        (lambda: Asynchronous([]), None),
        (lambda: Asynchronous([True]), None),
        (lambda: Asynchronous([True, True]), None),
        (lambda: Asynchronous([True, True]), []),
        (lambda: None, None),
    ],
)
def test_what_explain_gives_can_be_awaited_whatever_the_client(client, sources):
    """Who writes ``await explain(exc, client)`` gets a diagnosis, and no TypeError in an ``except`` block."""

    async def main():
        return await workerdiag.explain(RuntimeError("x"), client(), logs=[GOOD], sources=sources, timeout=2)

    diagnosis = asyncio.run(main())
    assert isinstance(diagnosis, workerdiag.Diagnosis)
    assert first_cause(diagnosis) == first_cause(workerdiag.explain(logs=[GOOD]))


@pytest.mark.parametrize(
    "timeout",
    [10**400, float("nan"), float("inf"), float("-inf"), -5.0, 0, "9" * 400, "1 day", True],
    ids=str,
)
def test_any_number_is_a_timeout(timeout):
    """What is no time that anybody waits becomes one."""
    assert first_cause(workerdiag.explain(RuntimeError(), logs=[GOOD], timeout=timeout)) is not None


@pytest.mark.parametrize("timeout", [-1, -(10**400), "-2s"])
def test_a_timeout_that_is_written_with_a_minus_is_an_error(timeout):
    """Nobody means it; the error says what to give."""
    with pytest.raises(TypeError, match='give seconds, or text like "10s"'):
        workerdiag.explain(RuntimeError(), logs=[GOOD], timeout=timeout)


@pytest.mark.parametrize(
    "arguments",
    [
        {"exc": 5},
        {"client": 5},
        {"logs": 5},
        {"logs": b"text"},
        {"sources": 5},
        {"sources": "kernel log"},
        {"sources": ["kernel log"]},
        {"rulebook": 5},
        {"timeout": []},
        {"timeout": "soon"},
    ],
    ids=str,
)
def test_an_argument_of_a_wrong_type_is_a_type_error(arguments):
    """It is the caller's mistake, and the one error that gets out."""
    with pytest.raises(TypeError):
        workerdiag.explain(**arguments)


def test_the_time_begins_when_workerdiag_is_loaded(monkeypatch):
    """On a busy machine that takes longer than a timeout allows, and then nobody would have been asked."""
    budgets = []

    class Asked:
        name = "asked"

        def collect(self, *, budget_s):
            budgets.append(budget_s)
            return []

    passed_s = []
    rules = load.shipped_rulebook()
    monkeypatch.setattr(load, "shipped_rulebook", lambda: passed_s.append(60.0) or rules)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(passed_s[:1]))
    monkeypatch.setattr(deadline, "time", clock)
    workerdiag.explain(RuntimeError("x"), sources=[Asked()], timeout=30)

    assert passed_s
    assert budgets[0] > 1


def test_the_users_own_interrupt_gets_out():
    """^C ends the call, not only the source that is being waited for."""
    release = threading.Event()

    class Waiting:
        name = "waiting"

        def collect(self, *, budget_s):
            _thread.interrupt_main()
            release.wait(budget_s)
            yield from ()

    try:
        with pytest.raises(KeyboardInterrupt):
            workerdiag.explain(sources=[Waiting()], timeout=60)
    finally:
        release.set()


def test_an_interrupt_that_a_source_raises_is_a_gap():
    """It is not the user's; neither is an exit, nor a name that cannot be had."""

    class Nameless:
        @property
        def name(self):
            """What sources have."""
            raise SystemExit

    class Interrupting:
        name = "interrupting"

        def collect(self, *, budget_s):
            raise KeyboardInterrupt(budget_s)

    diagnosis = workerdiag.explain(sources=[Interrupting(), Nameless(), 5], logs=[GOOD])

    assert {"interrupting", "Nameless", "int"} <= {each.source for each in diagnosis.gaps}
    assert first_cause(diagnosis) == first_cause(workerdiag.explain(logs=[GOOD]))


def test_sixteen_threads_get_what_one_gets():
    """Calls that run at once answer alike."""
    one = workerdiag.explain(RuntimeError("x"), logs=[GOOD])
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(workerdiag.explain, RuntimeError("x"), logs=[GOOD], timeout=60) for _ in range(32)]

    assert all(each.result() == one for each in asked)


#: Explains 21 times, and prints what is open and which of our threads live, after the first and the last.
ONE_THEN_TWENTY = """
import gc, os, sys, threading
from pathlib import Path
import workerdiag

def held():
    ours = [each for each in threading.enumerate() if each.name.startswith("workerdiag-")]
    for each in ours:
        each.join(10)
    gc.collect()
    print(sorted(os.listdir("/proc/self/fd")), [each.name for each in ours if each.is_alive()])

for calls in (1, 20):
    for _ in range(calls):
        workerdiag.explain(RuntimeError("x"), logs=[Path(sys.argv[1])])
    held()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files as Linux tells them")
def test_a_call_leaves_nothing_behind(tmp_path):
    """No thread and no open file stays of a call that was answered. Asked in a process without other tests."""
    log = tmp_path / "nanny.log"
    log.write_text(KILLED)

    command = [sys.executable, "-c", ONE_THEN_TWENTY, str(log)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    first, last = run.stdout.splitlines()

    assert last == first
    assert last.endswith("] []")


def test_log_text_in_the_place_of_its_path_is_told_where_it_goes():
    """A line of a log is no path, and what to do with it is not to check the path."""
    line = "2026-11-21 17:17:59 - distributed.nanny - WARNING - Worker process 7 was killed by signal 9"
    (gap,) = workerdiag.explain(logs=line).gaps
    assert "workerdiag.LogText(text)" in gap.remedy


def test_a_log_in_the_place_of_the_exception_is_told_where_logs_go():
    with pytest.raises(TypeError, match=r'give logs as explain\(logs=\["worker\.log"\]\)'):
        workerdiag.explain("nanny.log")
