"""Which exceptions are about workers or the scheduler, on the release of Dask at hand."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from inspect import iscoroutinefunction

import distributed.client
import distributed.scheduler
import pytest
from distributed import Client, Future, as_completed
from distributed.actor import ActorFuture
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError
from distributed.shuffle._exceptions import P2PConsistencyError, ShuffleClosedError

from workerdiag.api import noted_calls
from workerdiag.api.dask_errors import (
    cancel_reasons,
    cancelled_keys,
    is_cancelled,
    is_missing_on_workers_only,
    is_of_cluster,
    is_surely_of_cluster,
)
from workerdiag.recorder import internals


class NoWorkerError(Exception):
    """A class of the user's, which happens to have a name of Dask's."""


def failed_shuffle(cause):
    """The error of a task that takes part in a shuffle which failed."""
    exc = RuntimeError("P2P 1234 failed during transfer phase")
    exc.__cause__ = cause
    return exc


@pytest.mark.parametrize(
    ("exc", "is_found"),
    [
        (KilledWorker("load-1", None, 3), True),
        (NoValidWorkerError("load-1", set(), {}, {}, 5.0), True),
        (CommClosedError("closed"), True),
        (P2PConsistencyError("inconsistent"), True),
        (ShuffleClosedError("closed"), True),
        (OSError("Unable to contact Actor's worker"), True),
        (ValueError("Worker holding Actor was lost.  Status: cancelled"), True),
        (failed_shuffle(None), True),
        (failed_shuffle(ConnectionResetError("lost")), True),
        (failed_shuffle(CommClosedError("closed")), True),
        (failed_shuffle(ValueError("bad row")), False),
        (NoWorkerError("mine"), False),
        (MemoryError("mine"), False),
        (ConnectionResetError("the database"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_an_error_of_the_cluster_is_known_by_its_class_or_by_words_of_dask(exc, is_found):
    """A task's own error has neither."""
    assert is_of_cluster(exc) == is_found


def test_an_error_that_cannot_be_shown_is_the_tasks_own():
    """Its text may be code of the user's."""

    class UnshowableError(Exception):
        def __str__(self):
            raise ValueError

    assert not is_of_cluster(UnshowableError())


@pytest.mark.parametrize(
    ("reason", "is_sure"), [("scheduler-connection-lost", True), ("scheduler-restart", True), (None, False)]
)
def test_who_cancelled_a_future_is_told_by_the_reason(reason, is_sure):
    """Dask gives one for what nobody asked it to cancel."""
    exc = FutureCancelledError("load-1", reason)
    assert is_cancelled(exc)
    assert cancelled_keys(exc) == {"load-1"}
    assert is_surely_of_cluster(exc) == is_sure
    plain = CancelledError("load-1")
    assert (is_cancelled(plain), cancelled_keys(plain), cancel_reasons(plain)) == (True, {"load-1"}, {None})


@pytest.mark.parametrize(
    ("exc", "is_found"),
    [
        (ModuleNotFoundError("No module named 'json.decoder'", name="json.decoder"), True),
        (ModuleNotFoundError("No module named 'json.nothing'", name="json.nothing"), False),
        (ModuleNotFoundError("No module named 'nowhere.at.all'", name="nowhere.at.all"), False),
        (ModuleNotFoundError("no name"), False),
        (ImportError("cannot import name 'nothing' from 'json'", name="json"), False),
        (ValueError("No module named 'json'"), False),
    ],
)
def test_a_module_that_only_the_workers_lack_can_be_imported_here(exc, is_found):
    """Nothing is imported to find out."""
    assert is_missing_on_workers_only(exc) == is_found


def test_dask_has_what_is_watched():
    """All calls that wait for work go through coroutines of these names, or through these methods."""
    homes = (Client, Future, distributed.client)
    for name in noted_calls._WAITING:
        assert any(iscoroutinefunction(getattr(home, name, None)) for home in homes), name
    assert iscoroutinefunction(Client._start)
    assert iscoroutinefunction(getattr(ActorFuture._result, internals._ORIGINAL, ActorFuture._result))
    assert not iscoroutinefunction(getattr(as_completed.__next__, internals._ORIGINAL, as_completed.__next__))

    async def scene():
        loop = object()
        return ActorFuture(loop)._io_loop is loop

    assert asyncio.run(scene())
