"""What KilledWorker's text says is read as far as it is worded so, in time linear in it."""

from __future__ import annotations

import pytest

from workerdiag.model.dask import KILLED_WORKER, KILLED_WORKER_OLD

LOST = "Attempted to run task 'f-1' on 4 different workers, but all those workers died while running it. \
The last worker that attempt to run the task was tcp://10.0.0.4:1. Inspecting worker logs"
OLD = "('f-1', <Worker 'tcp://10.0.0.4:1', name: 0, memory: 0, processing: 1>)"


@pytest.mark.parametrize("text", [LOST, OLD, f"\n{LOST}", LOST.replace("attempt ", "attempted ")])
def test_task_and_worker_are_read_in_every_wording(text):
    """As a sentence since 2022.9.2, and as a tuple before."""
    (found,) = filter(None, (each.match(text) for each in (KILLED_WORKER, KILLED_WORKER_OLD)))
    assert (found["task"], found["worker"]) == ("f-1", "tcp://10.0.0.4:1")


@pytest.mark.parametrize("pattern", [KILLED_WORKER, KILLED_WORKER_OLD])
def test_no_part_of_a_wording_goes_on_without_end(pattern):
    """A search for the end of what has no end, from each place anew, took four seconds for 16 KiB of brackets."""
    assert not [each for each in ("+?", "*?", ".*", ".+", r"\d+", r"\w+") if each in pattern.pattern]
