"""What the client's own state says, where its scheduler does not answer."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from workerdiag.deadline import Deadline
from workerdiag.sources.cluster.state import client_state_events


def told(address, cluster=None, *, left_s=5.0):
    """The fields of the event of a client that looks for its scheduler there."""
    client = SimpleNamespace(status="connecting", scheduler=SimpleNamespace(address=address), cluster=cluster)
    (event,) = client_state_events(client, Deadline.after(left_s))
    assert event.topic == "client-state"
    return event.fields


@pytest.fixture
def listener():
    """A socket that listens on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_at_which_nothing_listens_refuses(listener):
    """The process that listened there has ended."""
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    assert told(address)["answer"] == "answers"
    listener.close()
    fields = told(address)
    assert (fields["answer"], fields["status"], fields["address"]) == ("refused", "connecting", address)


@pytest.mark.parametrize("address", ["inproc://10.0.0.4/1/2", "tcp://no-port", "tcp://10.0.0.4:x"])
def test_what_is_no_address_of_tcp_is_not_asked(address):
    """Nothing is said of it."""
    assert told(address)["answer"] is None


def test_without_time_nothing_is_asked(listener):
    """The caller does not wait longer than was agreed."""
    assert told(f"tcp://127.0.0.1:{listener.getsockname()[1]}", left_s=0.0)["answer"] is None


def test_a_scheduler_in_this_process_says_its_own_status():
    """A LocalCluster's scheduler is an object here."""
    cluster = SimpleNamespace(
        status=SimpleNamespace(name="running"),
        scheduler=SimpleNamespace(status=SimpleNamespace(name="closed")),
    )
    fields = told("inproc://x", cluster)
    assert (fields["cluster"], fields["scheduler"]) == ("running", "closed")


def test_a_client_without_a_scheduler_says_at_most_that_it_is_closed():
    """There is no address to look at."""
    (closed,) = client_state_events(SimpleNamespace(status="closed"), Deadline.after(1.0))
    assert closed.fields["status"] == "closed"
    assert not list(client_state_events(SimpleNamespace(status="connecting"), Deadline.after(1.0)))
