"""What the reason for which a worker closes says of who asked."""

from __future__ import annotations

import pytest

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.rules import RETIREMENT
from workerdiag.model.stop_reasons import (
    is_dask_stop_request,
    is_retirement,
    is_stop_request,
    may_retire,
)

#: Reason: whether somebody asked, and whether Dask did.
REASONS = {
    "signal-15": (True, False),
    "scheduler-close": (True, True),
    "scheduler-retire": (True, True),
    "scheduler-remove-worker": (True, True),
    "retire-workers-1795249445.79": (True, True),
    "client-restart-1795249445.79": (True, True),
    "nanny-close-gracefully": (True, True),
    "nanny-plugin-environ-restart": (True, True),
    "nanny-kill": (True, True),
    "nanny-restart": (True, True),
    "worker-close": (True, False),
    "worker-close-gracefully": (True, True),
    "worker-lifetime-reached": (True, True),
    "out of the way, please": (True, False),
    "worker-handle-scheduler-connection-broken": (False, False),
    "check-worker-ttl-1795249445.79": (False, False),
    "nanny-start-failed": (False, False),
    "": (False, False),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_says_who_asked(reason):
    """Who asked decides whether a death is looked into."""
    asked = is_stop_request(reason), is_dask_stop_request(reason)
    assert asked == REASONS[reason]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Retire worker names (3, 4)", "3", True),
        ("Retire worker names (3, 4)", "5", False),
        ("Retire worker names (3, 4)", None, True),
        ("Retire worker names ('w-3', 'w-4')", "dask-1f-worker-7", False),
        (
            "Retire workers {<WorkerState 'tcp://10.0.0.9:1', name: w-3, memory: 0, processing: 0>}",
            None,
            False,
        ),
        (
            "Retire workers {<WorkerState 'tcp://10.0.0.4:1', name: w-3, memory: 0, processing: 0>}",
            None,
            True,
        ),
    ],
)
def test_a_retirement_is_for_the_workers_that_it_lists(text, name, expected):
    """By address, by name, or by the scheduler's state of them; where that does not tell, it may be for each."""
    order = Match(owner=RETIREMENT, role="stop-request", origin="log", line=1, text=text)

    assert may_retire(order, Identity(worker="tcp://10.0.0.4:1", name=name)) is expected


@pytest.mark.parametrize(
    ("stimulus", "expected"),
    [
        ("retire-workers-1795249445.79", True),
        ("worker-close-gracefully-1795249445.79", True),
        ("handle-worker-cleanup-1795249445.79", False),
        ("client-restart-1795249445.79", False),
        ("", False),
    ],
)
def test_a_stimulus_says_whether_a_removal_was_expected(stimulus, expected):
    """Those of a retirement are of the two forms that ``retire_workers`` gives."""
    assert is_retirement(stimulus) is expected
