"""Thousands of workers that come and go: none of them died, and one that did is told."""

from __future__ import annotations

import pytest

import workerdiag
from workerdiag import LogText

START = "distributed.scheduler - INFO -   Scheduler at:    tcp://10.0.0.1:8786"
STREAM = "distributed.scheduler - INFO - Starting worker compute stream, {worker}"
DEATHS = {
    "2026.8.0": "distributed.scheduler - INFO - Remove worker addr: {worker} name: {number} (stimulus_id='handle-worker-cleanup-1763712000.5')",
    "2022.5.0": "distributed.scheduler - INFO - Remove worker <WorkerState '{worker}', name: {number}, status: running, memory: 0, processing: 4>",
}
#: What a scheduler says of a worker that joins, and of one that leaves in order: retired; sent away by its
#: cluster manager, which lists its number; retired by an old release.
JOINS = {
    "2026.8.0": "distributed.scheduler - INFO - Register worker addr: {worker} name: {number}",
    "2022.5.0": "distributed.scheduler - INFO - Register worker <WorkerState '{worker}', name: {number}, status: undefined, memory: 0, processing: 0>",
}
DEPARTURES = {
    "retired": (
        "2026.8.0",
        "distributed.scheduler - INFO - Retire worker addresses (stimulus_id='retire-workers-1763712000.5') ['{worker}']",
        "distributed.scheduler - INFO - Remove worker addr: {worker} name: {number} (stimulus_id='retire-workers-1763712000.5')",
        "distributed.scheduler - INFO - Retired worker '{worker}' (stimulus_id='retire-workers-1763712000.5')",
    ),
    "sent away": (
        "2026.8.0",
        "distributed.scheduler - INFO - Retire worker addresses (stimulus_id='retire-workers-1763712000.5') ({number},)",
        "distributed.core - INFO - Received 'close-stream' from {worker}; closing.",
        "distributed.scheduler - INFO - Remove worker addr: {worker} name: {number} (stimulus_id='handle-worker-cleanup-1763712000.5')",
    ),
    "retired by an old release": (
        "2022.5.0",
        "distributed.scheduler - INFO - Retire workers {{<WorkerState '{worker}', name: {number}, status: closing_gracefully, memory: 0, processing: 0>}}",
        "distributed.scheduler - INFO - Remove worker <WorkerState '{worker}', name: {number}, status: closing_gracefully, memory: 0, processing: 0>",
    ),
}


def log(departure: str, count: int, dying: int | None) -> str:
    """A scheduler's log of *count* workers, one after the other. The one with the number *dying* just vanishes."""
    release, *leaves = DEPARTURES[departure]
    said = [(0, START)]
    for number in range(count):
        end = [DEATHS[release]] if number == dying else leaves
        said += [
            (number * 30, JOINS[release]),
            (number * 30, STREAM),
            *((number * 30 + 20, each) for each in end),
        ]
    return "\n".join(
        f"2026-11-{21 + at // 86400} {at // 3600 % 24:02d}:{at // 60 % 60:02d}:{at % 60:02d},000 - "
        + text.format(worker=f"tcp://10.0.{at // 7500}.4:{30000 + at // 30}", number=at // 30)
        for at, text in said
    )


@pytest.mark.parametrize("departure", DEPARTURES)
@pytest.mark.parametrize("count", [450, 1000])
def test_workers_that_leave_in_order_did_not_die(departure, count):
    """Not even where so many orders and goodbyes were seen that only the first and the last are kept."""
    diagnosis = workerdiag.explain(logs=LogText(log(departure, count, None)))

    assert diagnosis.top is not None
    assert diagnosis.top.id == "exit.scheduler-retired"
    assert "died" not in diagnosis.summary


@pytest.mark.parametrize("departure", DEPARTURES)
@pytest.mark.parametrize("count", [450, 1000])
def test_a_death_in_the_middle_of_many_departures_is_told(departure, count):
    """As one, not as "at least one": those that leave in order hide none."""
    diagnosis = workerdiag.explain(logs=LogText(log(departure, count, count // 2)))

    assert diagnosis.outcome == "unknown"
    assert diagnosis.summary.startswith("a worker died")
