"""Workers are missing for a reason where a log tells how their start ended."""

from __future__ import annotations

import pytest
from attrs import evolve

from support.diagnoses import FixedSource
from workerdiag import Diagnosis, explain
from workerdiag.model.evidence import Event, ExceptionFacts, LogChunk
from workerdiag.model.identity import Identity

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


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("was killed by signal 11", "signal.segfault"),
        ("was killed by signal 6", "signal.abort"),
        ("was killed by signal 9", "external.sigkill"),
        ("exited with status 3", "exception.startup-other"),
    ],
)
def test_how_a_start_ended_is_why_workers_are_missing(end, cause):
    """Where the nanny's log says why, the answer does too; the nanny that gives up is no second death."""
    diagnosis = of_start(
        f"Worker process 7001 {end}",
        "Closing Nanny at 'tcp://10.0.0.4:40001'. Reason: nanny-start-failed",
    )
    assert diagnosis.top is not None
    assert (diagnosis.top.id, len(diagnosis.deaths)) == (cause, 1)
    assert {each.id: each.probability for each in diagnosis.causes}.get("standstill.no-workers", 0.0) < 0.02


@pytest.mark.parametrize(
    "last_words",
    [
        "Closing Nanny at 'tcp://10.0.0.4:40001'. Reason: nanny-instantiate-failed",
        "End worker\nTraceback (most recent call last):\nRuntimeError: Worker failed to start.",
    ],
)
def test_a_nanny_that_gives_up_on_its_worker_is_no_second_death(last_words):
    """Whatever it says of it, and where the command's own traceback is all that is left."""
    diagnosis = of_start("Worker process 7001 was killed by signal 15", last_words)
    assert [death.identity.pid for death in diagnosis.deaths] == [7001]


def test_workers_are_missing_where_no_start_failed():
    """A nanny that is up says nothing of it."""
    diagnosis = of_start()
    assert diagnosis.top is not None
    assert diagnosis.top.id == "standstill.no-workers"


def test_that_workers_are_missing_is_not_why_a_task_was_given_up():
    """Dask gives a task up because workers died; that none is left comes of that."""
    lost = evolve(ASKED, fields={**ASKED.fields, "lost_unasked": 1})
    waiting = explain(sources=[FixedSource((lost,))], timeout="60s")
    killed = ExceptionFacts(type="distributed.scheduler.KilledWorker", text="Attempted to run task 'load-1'")
    given_up = explain(sources=[FixedSource((lost, killed))], timeout="60s")
    assert waiting.top is not None
    assert waiting.top.id == "standstill.no-workers"
    assert {each.id: each.probability for each in given_up.causes}.get("standstill.no-workers", 0.0) < 0.3
    assert given_up.outcome == "unknown"


def test_a_plugin_that_ends_each_worker_is_found_without_a_nanny():
    """Workers that leave as they come, with nothing to do, and a plugin that a client registered."""
    fields = {"workers": 1, "waiting_tasks": 0, "lost_unasked": 4, "left_at_once": 3, "worker_plugins": 1}
    lost = [
        Event(
            topic=f"tcp://10.0.0.4:{number}",
            fields={"action": "remove-worker", "expected": False},
            when=1_777_893_700.0 + 5 * number,
            identity=Identity(worker=f"tcp://10.0.0.4:{number}"),
        )
        for number in range(4)
    ]
    found = {
        count: explain(
            sources=[FixedSource((evolve(ASKED, fields=fields | {"worker_plugins": count}), *lost))],
            timeout="60s",
        )
        for count in (0, 1)
    }
    assert (found[1].outcome, found[1].top.id) == ("explained", "exception.preload-failed")
    assert found[0].outcome == "unknown"
