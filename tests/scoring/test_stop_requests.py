"""
Whom an order to stop is for.
"""

from __future__ import annotations

import pytest

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.scoring.stop_requests import StopRequests


@pytest.mark.parametrize(("line", "others"), [(3, False), (2, True)])
def test_a_worker_that_joins_after_a_death_takes_no_order_from_it(line, others):
    """
    With fixed ports the next worker has the same address; what was said before the first one's end is its.
    """
    worker = Identity(worker="tcp://10.0.0.4:4002")
    joined = Match(owner="scheduler.register-worker", origin="log", line=line, identity=worker)
    order = Match(owner="exit.scheduler-retired", sign="retired", origin="log", line=1)
    removal = Match(owner="scheduler.remove-worker", role="removal", origin="log", line=2, last_line=2)
    end = ProcessEnd(identity=worker, marks=(removal,))
    assert StopRequests({"scheduler.register-worker": [joined]}).is_for_other_worker(order, end) is others
