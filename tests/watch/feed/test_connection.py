"""What the watcher's connection sends to a scheduler that runs no functions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import dask
import pytest

from workerdiag.watch.feed.connection import Connection

DISALLOWED = ValueError("The 'run_function' handler has been explicitly disallowed in Scheduler")


def refusals(problem, *, times):
    """What a connection raises, so often asked to run a function, and how often the scheduler was asked."""
    asked = []

    async def run_function(**_):
        asked.append("run_function")
        raise problem

    async def run():
        connection = Connection("tcp://127.0.0.1:1", {})
        connection.scheduler = SimpleNamespace(run_function=run_function)
        answers = [connection.run_on_scheduler(print) for _ in range(times)]
        return await asyncio.gather(*answers, return_exceptions=True)

    return [type(each) for each in asyncio.run(run())], len(asked)


def test_a_scheduler_that_refused_is_not_asked_again():
    """Each refusal is a traceback in its log."""
    assert refusals(DISALLOWED, times=3) == ([PermissionError] * 3, 1)


def test_a_function_that_fails_says_nothing_of_the_next():
    """It is run like any other."""
    assert refusals(ZeroDivisionError(), times=2) == ([ZeroDivisionError] * 2, 2)


@pytest.mark.parametrize(
    "setting",
    [{"distributed.scheduler.blocked-handlers": ["run_function"]}, {"distributed.scheduler.pickle": False}],
)
def test_a_configuration_that_forbids_functions_holds_for_the_scheduler(setting):
    """Clusters often share one, and the first refusal takes a scheduler long."""
    with dask.config.set(setting):
        assert refusals(DISALLOWED, times=2) == ([PermissionError] * 2, 0)
