"""What the feed says of an address that is no scheduler's."""

from __future__ import annotations

import socket
import threading

import pytest

from support.simulated_scheduler import SimulatedConnection, SimulatedScheduler, polled
from workerdiag.errors import SchedulerUnreachableError
from workerdiag.watch.feed import scheduler_feed
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed

ADDRESS = "tcp://10.0.0.4:40001"
SCHEDULER = "tcp://10.0.0.1:8786"


class WorkerConnection:
    """A connection to a worker: it knows who it is, and answers nothing to what only schedulers are asked."""

    def __init__(self, address, asked):
        self.address, self.scheduler = address, self
        self._asked = asked

    async def has_same_python(self):
        return True

    async def run_on_scheduler(self, *_):
        self._asked.append("run_function")
        response = None
        return response["status"]

    async def identity(self):
        self._asked.append("identity")
        return {"type": "Worker", "id": "w", "scheduler": SCHEDULER}

    async def close(self):
        """Let go."""


@pytest.fixture
def servers(monkeypatch):
    """What answers at which address, and what the workers among them were asked."""
    found, asked = {}, []

    def connect(address, *_):
        known = address in found
        return SimulatedConnection(found, address) if known else WorkerConnection(address, asked)

    monkeypatch.setattr(scheduler_feed, "Connection", connect)
    return found, asked


def refused(feed):
    """Why a question fails."""
    with pytest.raises(SchedulerUnreachableError) as caught:
        polled(feed)
    return caught.value.problem


def test_a_worker_is_called_a_worker(servers):
    """The message says what answers there, and which address to give."""
    expected = f"{ADDRESS} is a Worker, not a scheduler: give the scheduler's address, {SCHEDULER}"
    assert refused(SchedulerFeed(ADDRESS)) == expected


def test_a_worker_is_asked_for_a_death_only_once(servers):
    """Each question that it does not know is a traceback in its log."""
    _, asked = servers
    feed = SchedulerFeed(ADDRESS)
    assert refused(feed) == refused(feed) == refused(feed)
    assert asked == ["run_function", "identity", "identity", "identity"]


def test_a_scheduler_that_takes_the_address_is_watched(servers):
    """Ports are given to other processes."""
    found, _ = servers
    feed = SchedulerFeed(ADDRESS)
    refused(feed)
    found[ADDRESS] = SimulatedScheduler()
    assert polled(feed).deaths == ()


def test_a_scheduler_that_answered_before_is_not_asked_who_it_is(servers, monkeypatch):
    """The answer of a large one names all its workers."""
    found, _ = servers
    found[ADDRESS] = SimulatedScheduler()
    feed = SchedulerFeed(ADDRESS)
    polled(feed)
    found[ADDRESS].watch.answer = None
    assert refused(feed) == "TypeError: 'NoneType' object is not callable"


def test_a_port_of_another_program_says_what_to_check():
    """A database or a dashboard does not speak Dask's protocol."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_hang_up, args=[server], daemon=True).start()
        problem = refused(SchedulerFeed(f"tcp://127.0.0.1:{server.getsockname()[1]}"))
    assert "give the scheduler's own port (8786 by default)" in problem


def _hang_up(server):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(1)


@pytest.mark.parametrize("connect_s", [0.2, 1e-9])
def test_a_port_that_nobody_listens_at_is_no_other_program(monkeypatch, connect_s):
    """The scheduler may just not be there yet. The system's reason is named, also if Dask had no time to learn it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr("workerdiag.watch.feed.connection._CONNECT_S", connect_s)
    problem = refused(SchedulerFeed(f"tcp://127.0.0.1:{port}"))
    assert problem.endswith("Connection refused")
    assert "own port" not in problem
