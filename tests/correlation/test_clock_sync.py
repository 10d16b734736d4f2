"""Clocks that disagree: found from known pairs, set right, and said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workerdiag
from workerdiag import LogText

WORKER = "tcp://10.0.0.4:4002"
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()


def at(second: float, rest: str) -> str:
    moment = datetime.fromtimestamp(NOON + second, tz=UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d} - distributed.{rest}\n"


def nanny_log(ahead_s: float = 0.0, pid: int = 7012) -> LogText:
    text = (
        at(0.5 + ahead_s, f"worker - INFO -       Start worker at: {WORKER:>26}")
        + at(60.0 + ahead_s, f"nanny - INFO - Worker process {pid} was killed by signal 9")
        + at(60.1 + ahead_s, "nanny - WARNING - Restarting worker (status=Status.running)")
    )
    return LogText(text, "worker")


def scheduler_log(registered: float = 1.0) -> LogText:
    removed = f"Remove worker addr: {WORKER} name: w (stimulus_id='handle-worker-cleanup-1')"
    text = at(registered, f"scheduler - INFO - Register worker addr: {WORKER} name: w")
    return LogText(text + at(60.02, f"scheduler - INFO - {removed}"), "scheduler")


SCHEDULER_LOG = scheduler_log()


def kernel_log(second: float, pid: int = 7012) -> LogText:
    moment = datetime.fromtimestamp(NOON + second, tz=UTC).isoformat(timespec="microseconds")
    victim = f"Killed process {pid} (python) total-vm:9141244kB, anon-rss:4041216kB, file-rss:0kB, shmem-rss:0kB"
    return LogText(f"{moment} node7 kernel: Memory cgroup out of memory: {victim}\n", "kernel")


@pytest.mark.parametrize("ahead_s", [-290.0, 240.0, 7200.0, -5400.0 + 100.0])
def test_a_wrong_clock_does_not_make_two_deaths_of_one(ahead_s):
    """The registration stands in both logs, so minutes of skew, or another time zone, are found."""
    diagnosis = workerdiag.explain(logs=[SCHEDULER_LOG, nanny_log(ahead_s)])

    assert [(each.identity.worker, each.identity.pid, each.signal) for each in diagnosis.deaths] == [
        (WORKER, 7012, 9)
    ]
    assert any("were corrected" in note for note in diagnosis.notes)


@pytest.mark.slow
@given(st.floats(min_value=-300.0, max_value=300.0))
@settings(max_examples=20, deadline=None)
def test_skew_up_to_five_minutes_changes_no_probability(ahead_s):
    """What is concluded does not hang on whose clock was right."""
    exact = workerdiag.explain(logs=[SCHEDULER_LOG, nanny_log()])
    skewed = workerdiag.explain(logs=[SCHEDULER_LOG, nanny_log(ahead_s)])

    assert [(each.id, each.probability) for each in skewed.causes] == [
        (each.id, each.probability) for each in exact.causes
    ]


@pytest.mark.slow
@given(st.floats(min_value=0.5, max_value=30.0), st.floats(min_value=-250.0, max_value=250.0))
@settings(max_examples=30, deadline=None)
def test_a_worker_that_takes_its_time_to_register_is_no_wrong_clock(registered, ahead_s):
    """It is one death, however long the start took, whether clocks agree or not."""
    diagnosis = workerdiag.explain(logs=[scheduler_log(registered), nanny_log(ahead_s)])

    assert len(diagnosis.deaths) == 1


def test_clocks_that_agree_are_left_alone():
    """No note, where there is nothing to set right, also if the worker took its time to register."""
    for registered in (1.0, 13.0):
        notes = workerdiag.explain(logs=[scheduler_log(registered), nanny_log()]).notes
        assert not any("corrected" in note for note in notes)


def test_the_kernel_kill_of_another_process_with_that_pid_does_not_count():
    """Pids are used again: what the kernel did to that number three days ago was another process."""
    old = kernel_log(60.0 - 3 * 86_400)
    diagnosis = workerdiag.explain(logs=[SCHEDULER_LOG, nanny_log(), old])

    assert diagnosis.top is not None
    assert diagnosis.top.id != "kernel.oom-killer"


def test_the_kernel_kill_of_that_pid_at_that_time_does():
    """The same line at the time of the death settles it."""
    diagnosis = workerdiag.explain(logs=[SCHEDULER_LOG, nanny_log(), kernel_log(59.9)])

    assert diagnosis.top is not None
    assert diagnosis.top.id == "kernel.oom-killer"


@pytest.mark.parametrize(
    ("kernel", "nanny"),
    [
        ("Jun 30 03:30:11", "2022-06-30 03:30:12,491"),
        ("Jun 30 03:30:11", "2018-06-30 03:30:12,491"),
        ("Dec 31 23:59:59", "2023-01-01 00:00:00,491"),
    ],
)
def test_a_log_without_years_is_of_the_year_of_the_others(kernel, nanny):
    """Syslog writes none; a report is read years later."""
    victim = "Memory cgroup out of memory: Killed process 7012 (python) total-vm:9141244kB, anon-rss:4041216kB"
    diagnosis = workerdiag.explain(
        logs=[
            LogText(f"{kernel} node7 kernel: {victim}", "kernel"),
            LogText(f"{nanny} - distributed.nanny - INFO - Worker process 7012 was killed by signal 9", "nanny"),
        ]
    )

    assert diagnosis.top is not None
    assert diagnosis.top.id == "kernel.oom-killer"
    assert len(diagnosis.deaths) == 1
