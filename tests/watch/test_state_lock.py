"""Two watchers and one state file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.watch_values import watched_case
from workerdiag.errors import StateFileError, StateInUseError
from workerdiag.watch.store import Store

HOLD = """
import os, sys, time
from workerdiag.watch.store import Store
store = Store(sys.argv[1])
store.file.take()
if os.fork():
    print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stores(tmp_path):
    opened = [Store(tmp_path / "state.db") for _ in range(2)]
    yield opened
    for each in opened:
        each.close()


def test_the_second_watcher_is_told_who_the_first_is(stores):
    """It names the file and the process; once the first one is closed the state is free."""
    first, second = (each.file for each in stores)
    assert first.watcher() is None
    first.take()
    me = f"pid {os.getpid()} on "
    with pytest.raises(StateInUseError, match=rf"state\.db: {me}.*\(end that one"):
        second.take()
    assert first.watcher().startswith(me)
    assert second.watcher().startswith(me)
    first.close()
    assert second.watcher() is None
    second.take()


def test_who_only_looks_takes_nothing(stores):
    """Status comes from other processes while a watcher runs."""
    stores[0].file.take()
    stores[1].put_case(watched_case())
    assert stores[0].cases() == (watched_case(),)


def test_a_watcher_that_was_killed_is_followed_at_once(stores, tmp_path):
    """Nobody waits, though a process that it had forked lives on."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "state.db")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(StateInUseError, match=f"pid {child.pid} "):
            stores[0].file.take()
        child.send_signal(signal.SIGKILL)
        child.wait()
        stores[0].file.take()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()


def test_states_in_memory_are_apart():
    """Two of them in one process are two."""
    for store in (Store(), Store()):
        store.file.take()


def test_a_folder_that_cannot_be_written_is_named(stores, tmp_path):
    """No lock can be made there: the error names the state."""
    (tmp_path / "state.db-lock").mkdir()
    with pytest.raises(StateFileError, match=r"state\.db"):
        stores[0].file.take()
