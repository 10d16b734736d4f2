"""Which of the three answers is given: explained, nothing died, could not tell."""

from __future__ import annotations

import pytest
from attrs import evolve

import workerdiag
from workerdiag import LogText, load_rulebook
from workerdiag.correlation.assemble import assemble
from workerdiag.model.evidence import Event, ExceptionFacts, Gap, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.pipeline import diagnose
from workerdiag.scoring.conclude import conclude

BOOK = load_rulebook()


@pytest.mark.parametrize(
    "text",
    [
        "distributed.scheduler.KilledWorker: Attempted to run task",
        "KilledWorker: (\"('getitem-4f7d', 3)\", <Worker",
    ],
)
def test_a_killed_worker_that_was_cut_short_is_a_death_of_unknown_cause(text):
    """A title or a table shows half of the message; that nothing died would be wrong."""
    assert workerdiag.explain(logs=LogText(text)).outcome == "unknown"


def test_the_same_trouble_is_told_once():
    """Eight victims on one machine whose log cannot be read are one gap, not eight."""
    gap = Gap(source="journal", reason="forbidden", detail="of others", remedy="journalctl _PID=1")
    found = conclude(assemble([], []), BOOK, gaps=[gap, evolve(gap, remedy="journalctl _PID=2")], version="")

    assert found.gaps == (gap,)


@pytest.mark.slow
def test_of_thousands_of_deaths_all_are_listed():
    """Not all are judged, which would take longer than anybody waits."""
    line = (
        "2026-05-04 11:{:02d}:{:02d},444 - distributed.nanny - INFO - Worker process {} was killed by signal 11\n"
    )
    log = "".join(line.format(number // 60 % 60, number % 60, 7000 + number) for number in range(700))
    diagnosis = workerdiag.explain(logs=LogText(log), timeout="100s")

    assert diagnosis.top is not None
    assert diagnosis.top.id == "signal.segfault"
    assert len(diagnosis.deaths) == 700


def lost(*, second, signal):
    """A worker that the scheduler removed with ``load-1`` assigned to it, and whose nanny tells the signal."""
    worker = Identity(worker=f"tcp://10.0.0.4:{3000 + second}", pid=3000 + second)
    removed = {"action": "remove-worker", "worker": worker.worker, "processing": "load-1"}
    return (
        Event(topic="all", fields=removed, when=1e9 + second, identity=worker),
        ProcessExit(reporter="nanny log", signal=signal, when=1e9 + second, identity=worker),
    )


@pytest.mark.parametrize(("allowed_failures", "expected"), [(0, ""), (1, " (2 worker processes)")])
def test_deaths_of_an_earlier_call_are_not_counted_into_this_one(allowed_failures, expected):
    """A task of the same name was given up before; this time it died as often as its exception says."""
    earlier = [*lost(second=0, signal=11), *lost(second=10, signal=11)]
    now = lost(second=20, signal=11)
    exc = ExceptionFacts(
        type="distributed.scheduler.KilledWorker",
        text="Attempted to run task 'load-1'",
        task="load-1",
        allowed_failures=allowed_failures,
        identity=now[0].identity,
    )
    found = diagnose([exc, *earlier, *now], BOOK)
    assert found.top is not None
    assert found.summary == f"{found.top.title}{expected}."
    assert len(found.deaths) == 3


@pytest.mark.parametrize(
    ("signals", "outcome"), [((6, 6, 6), "explained"), ((6, 6), "unknown"), ((6, 6, 11), "unknown")]
)
def test_deaths_of_no_known_task_are_those_that_dask_counts(signals, outcome):
    """The scheduler was too busy to say which workers the task has cost: the nannies tell how as many ended."""
    pids = range(4000, 4000 + len(signals))
    exits = [
        ProcessExit(reporter="nanny log", signal=signal, when=1e9 + pid, identity=Identity(pid=pid))
        for pid, signal in zip(pids, signals, strict=True)
    ]
    exc = ExceptionFacts(
        type="distributed.scheduler.KilledWorker",
        text="Attempted to run task 'load-1'",
        task="load-1",
        allowed_failures=3,
        identity=Identity(worker="tcp://10.0.0.4:3000", pid=3000),
    )
    found = diagnose([exc, *exits], BOOK)
    assert found.outcome == outcome
    assert found.top is None or found.top.id == "signal.abort"


@pytest.mark.parametrize("allowed_failures", [-2, 0, 10**9])
def test_any_number_of_allowed_failures_can_be_judged(allowed_failures):
    """An exception whose number makes no sense, and no death to count, is no defect of ours."""
    killed = ExceptionFacts(
        type="distributed.scheduler.KilledWorker", text="", task="t", allowed_failures=allowed_failures
    )
    assert diagnose([killed], BOOK).outcome == "unknown"


@pytest.mark.parametrize(("signal", "sender"), [(1, "session"), (10, "batch system"), (14, "timer")])
def test_of_a_signal_that_somebody_sends_the_report_says_who_that_may_be(signal, sender):
    """Of a hang-up, a warning or an alarm no kernel's log tells."""
    log = f"2026-11-21 08:04:22,580 - distributed.nanny - INFO - Worker process 1761 was killed by signal {signal}"
    diagnosis = workerdiag.explain(logs=LogText(log))
    assert diagnosis.outcome == "unknown"
    assert sender in diagnosis.next_steps[0].inspect
