"""
Workers are missing for a reason where a log tells how their start ended.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from support.diagnoses import FixedSource
from workerdiag import Diagnosis, explain
from workerdiag.model.evidence import Event, ExceptionFacts, LogChunk

#: What a scheduler says of itself while work waits and no worker ever came.
ASKED = Event(
    topic="scheduler-state",
    when=1_777_893_760.0,
    fields={"workers": 0, "waiting_tasks": 1, "lost_unasked": 0, "nannies": 0},
)


def of_start(*ends: str) -> Diagnosis:
    lines = [
        "2026-05-04 11:22:30,200 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.4:40001'",
        *(f"2026-05-04 11:22:31,500 - distributed.nanny - INFO - {each}" for each in ends),
    ]
    log = LogChunk(origin="worker.log", data="\n".join(lines).encode() + b"\n")
    return explain(sources=[FixedSource((ASKED, log))], timeout="60s")


@pytest.mark.parametrize(("signal", "cause"), [(11, "signal.segfault"), (6, "signal.abort")])
def test_a_crash_at_the_start_is_why_workers_are_missing(signal, cause):
    """
    "Nothing says why" is not true where the nanny's log does.
    """
    diagnosis = of_start(
        f"Worker process 7001 was killed by signal {signal}",
        "Closing Nanny at 'tcp://10.0.0.4:40001'. Reason: nanny-start-failed",
    )
    assert diagnosis.top is not None
    assert diagnosis.top.id == cause
    assert {each.id: each.probability for each in diagnosis.causes}.get("standstill.no-workers", 0.0) < 0.02


def test_workers_are_missing_where_no_start_failed():
    """
    A nanny that is up says nothing of it.
    """
    diagnosis = of_start()
    assert diagnosis.top is not None
    assert diagnosis.top.id == "standstill.no-workers"


def test_that_workers_are_missing_is_not_why_a_task_was_given_up():
    """
    Dask gives a task up because workers died; that none is left comes of that.
    """
    lost = evolve(ASKED, fields={**ASKED.fields, "lost_unasked": 1})
    waiting = explain(sources=[FixedSource((lost,))], timeout="60s")
    killed = ExceptionFacts(type="distributed.scheduler.KilledWorker", text="Attempted to run task 'load-1'")
    given_up = explain(sources=[FixedSource((lost, killed))], timeout="60s")
    assert waiting.top is not None
    assert waiting.top.id == "standstill.no-workers"
    assert {each.id: each.probability for each in given_up.causes}.get("standstill.no-workers", 0.0) < 0.3
    assert given_up.outcome == "unknown"
