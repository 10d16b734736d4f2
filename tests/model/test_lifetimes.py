"""The kernel's lines of strangers: a process that spoke after a kill is not the one that was killed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag import Diagnosis, LogText, explain
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.incident import SLACK_S, Lifetimes

WORKER = "tcp://10.0.0.4:40001"
#: When the worker joined and when it was lost.
JOINED_S, LOST_S = 60.0, 75.0
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()
LINES = {
    "signal.segfault": "python[{pid}]: segfault at 0 ip 00007f5b sp 00007fff error 4 in libc.so.6[156219,7f5b8c444000+156000]",
    "kernel.oom-killer": "Memory cgroup out of memory: Killed process {pid} (python) total-vm:848684kB, anon-rss:466676kB",
}


def lost(kernel: str, second: float) -> Diagnosis:
    """What is said of a worker that was lost, with a line in its machine's kernel log at *second*."""
    lines = [
        _at(JOINED_S, f"Register worker addr: {WORKER} name: 0"),
        _at(LOST_S, f"Remove worker addr: {WORKER} name: 0 (stimulus_id='handle-worker-cleanup-1.5')"),
    ]
    stamp = datetime.fromtimestamp(NOON + second, tz=UTC).isoformat(timespec="microseconds").replace(".", ",")
    logs = [
        LogText("\n".join(lines) + "\n", "scheduler"),
        LogText(f"{stamp} {kernel.format(pid=31074)}\n", "kernel"),
    ]
    return explain(logs=logs, timeout="60s")


def _at(second: float, text: str) -> str:
    when = datetime.fromtimestamp(NOON + second, tz=UTC)
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} - distributed.scheduler - INFO - {text}"


@pytest.mark.parametrize("cause", LINES)
@pytest.mark.parametrize("before_s", [3.0, 30.0, 500.0])
def test_a_kill_before_the_worker_joined_is_of_a_stranger(cause, before_s):
    """Whose pid nobody knows is not for that the process that the kernel names."""
    diagnosis = lost(LINES[cause], JOINED_S - before_s)
    assert diagnosis.outcome == "unknown"
    assert cause not in {each.id for each in diagnosis.causes}


@pytest.mark.parametrize("cause", LINES)
@pytest.mark.parametrize("second", [LOST_S - 1.0, LOST_S + 0.5, LOST_S - 3600.0])
def test_a_kill_of_its_time_counts(cause, second):
    """Also where the kernel's log is in another time zone."""
    assert lost(LINES[cause], second).top.id == cause


def _spoke(owner: str, when: float) -> Match:
    return Match(owner=owner, when=when, identity=Identity(worker=WORKER))


def _kill(when: float) -> Match:
    return Match(owner="kernel.killed-process", when=when, stream="kernel")


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_whoever_speaks_after_a_kill_was_not_killed(joined, kill):
    """By more than clocks may differ; only the time counts."""
    lifetimes = Lifetimes([_spoke("scheduler.register-worker", joined)])
    assert lifetimes.outlived([WORKER], _kill(kill)) == (joined > kill + SLACK_S)


@given(st.lists(st.floats(0, 1e4), max_size=5), st.floats(0, 1e4), st.floats(0, 1e4))
def test_one_more_sign_of_life_never_makes_a_kill_its_own(spoke, more, kill):
    """Of a process that joined once."""
    marks = [
        _spoke("scheduler.register-worker", 0.0),
        *(_spoke("event.closing-worker", when) for when in spoke),
    ]
    fewer = Lifetimes(marks).outlived([WORKER], _kill(kill))
    assert Lifetimes([*marks, _spoke("event.closing-worker", more)]).outlived([WORKER], _kill(kill)) >= fewer


def test_the_next_worker_of_an_address_says_nothing_of_the_last_one():
    """Fixed ports give addresses again."""
    lifetimes = Lifetimes(_spoke("scheduler.register-worker", when) for when in (10.0, 50.0))
    assert not lifetimes.outlived([WORKER], _kill(30.0))
    assert lifetimes.outlived([WORKER], _kill(5.0))
