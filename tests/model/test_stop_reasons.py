"""
What the reason for which a worker closes says of who asked.
"""

from __future__ import annotations

import pytest

from workerdiag.model.stop_reasons import is_dask_stop_request, is_stop_request, is_stop_request_beyond_tasks

#: Reason: whether somebody asked, whether Dask did, whether it was surely not a task.
REASONS = {
    "signal-15": (True, False, True),
    "scheduler-close": (True, True, True),
    "scheduler-retire": (True, True, True),
    "scheduler-remove-worker": (True, True, False),
    "retire-workers-1795249445.79": (True, True, True),
    "client-restart-1795249445.79": (True, True, False),
    "nanny-close-gracefully": (True, True, True),
    "nanny-plugin-environ-restart": (True, True, True),
    "nanny-kill": (True, True, False),
    "nanny-restart": (True, True, False),
    "worker-close": (True, False, False),
    "worker-close-gracefully": (True, True, False),
    "worker-lifetime-reached": (True, True, True),
    "out of the way, please": (True, False, False),
    "worker-handle-scheduler-connection-broken": (False, False, False),
    "check-worker-ttl-1795249445.79": (False, False, False),
    "nanny-start-failed": (False, False, False),
    "": (False, False, False),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_says_who_asked(reason):
    """
    Who asked decides whether a death is looked into, and whether it counts against tasks.
    """
    asked = is_stop_request(reason), is_dask_stop_request(reason), is_stop_request_beyond_tasks(reason)
    assert asked == REASONS[reason]
