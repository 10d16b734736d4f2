"""Whom an order to stop is for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import RETIREMENT
from workerdiag.scoring.relevance import OrderIndex, StopRequests


@pytest.mark.parametrize(("line", "others"), [(3, False), (2, True)])
def test_a_worker_that_joins_after_a_death_takes_no_order_from_it(line, others):
    """With fixed ports the next worker has the same address; what was said before the first one's end is its."""
    worker = Identity(worker="tcp://10.0.0.4:4002")
    joined = Match(owner="scheduler.register-worker", origin="log", line=line, identity=worker)
    order = Match(owner="exit.scheduler-retired", sign="retired", origin="log", line=1)
    removal = Match(owner="scheduler.remove-worker", role="removal", origin="log", line=2, last_line=2)
    end = ProcessEnd(identity=worker, marks=(removal,))
    assert StopRequests({"scheduler.register-worker": [joined]}).is_for_other_worker(order, end) is others


workers = st.sampled_from([f"tcp://10.0.0.4:{port}" for port in range(4)])
retired_names = st.lists(workers | st.sampled_from(["0", "1"]), max_size=3)


@st.composite
def retirements(draw):
    """A sign of a retirement and its landmark: in a line of its own, of listed workers."""
    line = draw(st.integers(1, 9))
    text = f"Retire worker addresses {draw(retired_names)}"
    named = Identity(worker=draw(st.none() | workers))
    sign = Match(owner="exit.retired", sign="retired", origin="log", line=line, identity=named)
    return sign, Match(owner=RETIREMENT, role="stop-request", origin="log", line=line, text=text)


@given(st.lists(retirements(), max_size=8), st.none() | workers, st.none() | workers, st.integers(1, 9))
def test_an_index_leaves_out_only_orders_to_others(found, worker, name, line):
    """Whatever is not looked at is for another worker, and does not stand in a message that reports the end."""
    signs = [sign for sign, _ in found]
    requests = StopRequests({RETIREMENT: [mark for _, mark in found]})
    removal = Match(owner="scheduler.remove-worker", role="removal", origin="log", line=line, last_line=line)
    end = ProcessEnd(identity=Identity(worker=worker, name=name), marks=(removal,))
    seen = OrderIndex(signs, requests.named_in).may_be_for(end)
    assert [each for each in signs if each in seen] == list(seen)
    for each in signs:
        if each not in seen:
            assert requests.is_for_other_worker(each, end)
            assert (each.origin, each.line) not in end.places


def test_thousands_of_retired_workers_are_each_held_against_few_orders():
    """An adaptive cluster's scheduler retires thousands: each end is compared with the orders to its worker."""
    names = [f"tcp://10.0.0.4:{port}" for port in range(5000)]
    signs = [
        Match(owner="exit.retired", origin="log", line=line, identity=Identity(worker=name))
        for line, name in enumerate(names, 1)
    ]
    index = OrderIndex(signs, StopRequests({}).named_in)
    for sign, name in zip(signs, names, strict=True):
        assert list(index.may_be_for(ProcessEnd(identity=Identity(worker=name)))) == [sign]
