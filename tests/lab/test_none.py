"""No faults of the cluster at all: we do not cry wolf."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve
from distributed import Client

import workerdiag

from .promises import check_promises, named_cause

pytestmark = pytest.mark.lab
common = pytest.mark.common


@common
def test_a_task_error_kills_nobody(provoke, explain):
    """An exception of the user's own code is the user's, and no worker died of it."""
    diagnosis = explain(provoke("task-error"))
    assert diagnosis.outcome == "no-death"
    assert diagnosis.deaths == ()
    assert "ZeroDivisionError" in str(diagnosis)


def test_a_child_of_a_task_is_no_worker(provoke, explain):
    """A task whose own child process was killed has failed, and no worker died of it."""
    diagnosis = explain(provoke("child-killed"))
    assert diagnosis.outcome == "no-death"
    assert diagnosis.deaths == ()
    assert "BrokenProcessPool" in str(diagnosis)


@pytest.mark.parametrize("fault", ["nothing-wrong", "noisy"])
def test_nothing_wrong_is_an_answer(provoke, explain, fault):
    """Asked about a healthy cluster, with warnings or without, we say that nothing died."""
    diagnosis = explain(provoke(fault))
    assert diagnosis.outcome == "no-death"
    assert diagnosis.causes == ()


@pytest.mark.parametrize(
    ("fault", "stop"),
    [
        ("quiet-retirement", "exit.scheduler-retired"),
        ("quiet-restart", "exit.client-restart"),
        ("orderly-end", "exit.scheduler-closed"),
    ],
)
def test_a_clean_stop_is_at_most_called_that(provoke, explain, fault, stop):
    """Workers that left in order, with nothing lost: no crash, no network, no kill is made of it."""
    assert named_cause(explain(provoke(fault))) in ("no-death", stop)


def test_a_stranger_that_the_kernel_kills_is_no_worker(provoke, explain):
    """A kill elsewhere on the machine is none of the cluster's, asked with the kernel's log or without."""
    aftermath = provoke("restart-beside-kernel-kill")
    for logs in ((), (aftermath.facts["kernel"],)):
        diagnosis = explain(evolve(aftermath, logs=logs))
        assert named_cause(diagnosis) in ("no-death", "exit.client-restart")
        assert not any(death.signal for death in diagnosis.deaths)


def test_an_asynchronous_client_is_awaited(provoke, lab):
    """In a coroutine the diagnosis is awaited, as everything in Dask, and is the same."""
    aftermath = provoke("segfault")

    async def ask() -> workerdiag.Diagnosis:
        async with Client(lab.address, asynchronous=True, set_as_default=False) as client:
            return await workerdiag.explain(aftermath.exc, client)

    diagnosis = asyncio.run(ask())
    check_promises(diagnosis)
    assert named_cause(diagnosis) == "signal.segfault"
