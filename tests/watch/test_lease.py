"""Two watchers and one state file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from support.watch_values import FakeClock, make_notice, watched_case
from workerdiag.errors import StateFileError, StateInUseError
from workerdiag.procfs_and_cgroups import process_identity
from workerdiag.watch import lease as lease_module
from workerdiag.watch.lease import Lease, LeaseHolder, lease_holder
from workerdiag.watch.store import Store

#: Longer than any test waits.
LONG_S = 60.0

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="other processes are seen in /proc")

HOLD = """
import sys, time
from workerdiag.watch.lease import Lease
from workerdiag.watch.store import Store
store = Store.open(sys.argv[1])
Lease(store.file).acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stores(tmp_path):
    opened = [Store.open(tmp_path / "state.db") for _ in range(2)]
    yield opened
    for each in opened:
        each.close()


@pytest.fixture
def unseen(monkeypatch):
    """As if the other watcher ran where its process cannot be seen."""
    monkeypatch.setattr(LeaseHolder, "is_seen_running", lambda _: None)


@needs_proc
def test_the_second_watcher_is_told_who_the_first_is(stores):
    """It names the file and the process, and writes nothing."""
    first = Lease(stores[0].file)
    first.acquire()
    with pytest.raises(StateInUseError, match=rf"state\.db: pid {os.getpid()} on .*\(end that one"):
        Lease(stores[1].file).acquire()
    stores[0].put_case(watched_case())
    first.release()


def test_a_lease_that_is_released_is_free(stores):
    """The next watcher has it at once."""
    first, second = (Lease(each.file) for each in stores)
    first.acquire()
    first.release()
    assert lease_holder(stores[0].file) is None
    second.acquire()
    assert lease_holder(stores[0].file).process["pid"] == str(os.getpid())
    second.release()


@needs_proc
def test_a_watcher_that_was_killed_is_followed_at_once(stores, tmp_path):
    """Nobody waits for the lease of a process that is seen to be gone."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "state.db")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    lease = Lease(stores[0].file, clock=FakeClock(0))  # it never expires by this clock
    with pytest.raises(StateInUseError, match=f"pid {child.pid} "):
        lease.acquire()
    child.send_signal(signal.SIGKILL)
    child.wait()
    lease.acquire()
    lease.release()
    child.stdout.close()


def test_a_lease_that_expired_is_taken_over(stores, unseen):
    """By its time alone, where the other process cannot be seen; one that is in time is kept."""
    clock = FakeClock()
    first, second = (Lease(each.file, clock=clock, length_s=LONG_S) for each in stores)
    first.acquire()
    clock.now += LONG_S - 1
    assert second._take() is not None
    first.renew()
    clock.now += 2
    assert second._take() is not None
    clock.now += LONG_S
    second.acquire()
    second.release()


def test_who_lost_the_lease_writes_no_more(stores, unseen):
    """A watcher that was stopped for long and goes on cannot spoil the state of the other one."""
    clock = FakeClock()
    first, second = (Lease(each.file, clock=clock) for each in stores)
    first.acquire()
    stores[0].enqueue(make_notice("before"), ["slack"])
    clock.now += LONG_S
    second.acquire()
    for write in (
        lambda: stores[0].put_case(watched_case()),
        lambda: stores[0].enqueue(make_notice(), ["slack"]),
        lambda: stores[0].outbox.claim("slack"),
        first.renew,
    ):
        with pytest.raises(StateInUseError):
            write()
    assert [each.notice.case_id for each in stores[1].deliveries("pending")] == ["before"]
    second.release()
    with pytest.raises(StateInUseError):
        stores[0].cases()


def test_one_that_renews_is_alive(stores, unseen):
    """The second watcher waits only until it knows that."""
    first = Lease(stores[0].file, length_s=0.3)  # renewed every 0.1 s
    first.acquire()
    with pytest.raises(StateInUseError):
        Lease(stores[1].file, length_s=0.03, clock=FakeClock(0)).acquire()
    first.release()


def test_a_watcher_may_stand_by(stores, monkeypatch):
    """It gets the lease when the first one lets go."""
    monkeypatch.setattr(lease_module, "_POLL_S", 0.01)
    first, second = (Lease(each.file) for each in stores)
    first.acquire()
    thread = threading.Thread(target=lambda: second.acquire(waits=True))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    first.release()
    thread.join(LONG_S)
    assert not thread.is_alive()
    second.release()


def test_standing_by_can_be_ended(stores, monkeypatch):
    """A watcher that is closed while it waits stops waiting."""
    monkeypatch.setattr(lease_module, "_POLL_S", 0.01)
    first, second = (Lease(each.file) for each in stores)
    first.acquire()
    ended = threading.Event()

    def stand_by():
        with pytest.raises(StateInUseError):
            second.acquire(waits=True)
        ended.set()

    thread = threading.Thread(target=stand_by)
    thread.start()
    second.release()
    assert ended.wait(LONG_S)
    thread.join(LONG_S)
    first.release()


def test_who_only_looks_needs_no_lease(stores):
    """Status and silences come from other processes while a watcher runs."""
    lease = Lease(stores[0].file)
    lease.acquire()
    stores[1].put_case(watched_case())
    assert stores[0].cases() == (watched_case(),)
    lease.release()


@needs_proc
@pytest.mark.parametrize(
    ("changes", "is_seen"),
    [
        ({}, True),
        ({"started_ms": "1"}, False),
        ({"boot_id": "another"}, None),
        ({"pid_namespace": "pid:[1]"}, None),
        ({"started_ms": ""}, None),
        ({"pid": "no number"}, None),
    ],
)
def test_only_a_process_that_can_be_seen_is_said_to_be_gone(changes, is_seen):
    """One of another machine or container, or of which too little is known, is not judged by its pid."""
    holder = LeaseHolder(id="x", process={**process_identity(), **changes}, expires_at=0)
    assert holder.is_seen_running() is is_seen


def test_a_watcher_that_was_closed_gets_no_lease(stores):
    """It leaves none behind either."""
    lease = Lease(stores[0].file)
    lease.release()
    with pytest.raises(StateInUseError, match="closed"):
        lease.acquire()
    assert lease_holder(stores[0].file) is None


def test_a_lease_that_nobody_can_renew_is_let_go(stores, monkeypatch):
    """A system without another thread says so, and the next watcher has the lease at once."""

    def start_thread(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(lease_module, "start_thread", start_thread)
    with pytest.raises(RuntimeError):
        Lease(stores[0].file).acquire()
    assert lease_holder(stores[0].file) is None
    stores[0].put_case(watched_case())


def test_renewing_goes_on_until_the_lease_is_lost(stores, monkeypatch):
    """A full disk may have room again; what another watcher took does not come back."""
    lease = Lease(stores[0].file, length_s=0.001)
    problems = [StateInUseError("state.db", "another"), StateFileError("state.db", "full")]

    def renew():
        raise problems.pop()

    monkeypatch.setattr(lease, "renew", renew)
    lease._renew_always()
    assert problems == []
