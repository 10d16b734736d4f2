"""What an answer needs is loaded beside a program. The client here is a stand-in; tests/lab has real ones."""

from __future__ import annotations

import gc
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from workerdiag.api import warm_up
from workerdiag.lazy import collector_paused


class Clock:
    """The time of a program, in seconds: on the wall, and of its processor."""

    def __init__(self, monkeypatch):
        self.now_s = self.used_s = 0.0
        monkeypatch.setattr(warm_up, "time", self)

    def run(self, seconds, *, busy):
        """Let the program run, and use this share of the processor."""
        self.now_s += seconds
        self.used_s += busy * seconds

    def monotonic(self):
        return self.now_s

    def process_time(self):
        return self.used_s

    def thread_time(self):
        return self.used_s


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still."""
    return Clock(monkeypatch)


@pytest.fixture
def warming(clock, monkeypatch):
    """The loading of three steps."""
    return Warming(clock, monkeypatch)


class Warming:
    """Three steps, each of which takes the processor for `step_s` seconds."""

    def __init__(self, clock, monkeypatch):
        self.clock, self.step_s, self.problem = clock, 0.0, None
        self.quiet_s = 1.0
        #: The threads of the steps done, and the seconds until each next look.
        self.steps, self.waits = [], []
        monkeypatch.setattr(warm_up, "STEPS", [self.step] * 3)
        loop = SimpleNamespace(call_later=None, add_callback=lambda _, wait_s, __: self.waits.append(wait_s))
        self.client = SimpleNamespace(loop=loop, status="running")
        self.made = warm_up.WarmUp(self.client, lambda: self.quiet_s)

    def step(self):
        """Take the processor."""
        self.steps.append(threading.current_thread())
        self.clock.run(self.step_s, busy=1.0)
        if self.problem is not None:
            raise self.problem

    def look(self):
        """Take a look, and wait for the step."""
        self.made.look()
        for thread in threading.enumerate():
            if thread.name == "workerdiag-knowledge":
                thread.join()


def test_an_idle_program_loads_at_once(clock, warming):
    """Whoever waits for his cluster may press Ctrl-C soon, and is answered within half a second."""
    for _ in range(4):
        clock.run(0.25, busy=0.02)
        warming.look()
    assert len(warming.steps) == 3


def test_a_program_whose_futures_finish_is_not_idle(clock, warming):
    """It hands out work and passes; the machine is busy with its tasks."""
    warming.quiet_s = 0.1
    for _ in range(4):
        clock.run(0.25, busy=0.02)
        warming.look()
    assert not warming.steps


def test_after_a_step_an_idle_program_rests(clock, warming):
    """Threads of the program that wake up meanwhile wait for one step at most."""
    warming.step_s = 0.05
    clock.run(0.25, busy=0.02)
    warming.look()
    assert warming.waits == [pytest.approx(warm_up._REST * 0.05)]
    clock.run(warming.waits[0], busy=0.02)
    warming.look()
    assert len(warming.steps) == 2, "the step itself is no work of the program"


def test_a_short_program_that_works_loads_nothing(clock, warming):
    """Most programs pass, and need none of it."""
    for _ in range(10):
        clock.run(0.4, busy=0.5)
        warming.look()
    assert not warming.steps
    assert set(warming.waits) == {warm_up._LOOK_S}


def test_a_program_that_works_loads_a_little_at_a_time(clock, warming):
    """After a step the next one waits until all of them have taken a small share of the program's own work."""
    warming.step_s = 0.3
    clock.run(10.0, busy=0.5)
    warming.look()
    clock.run(10.0, busy=0.5)
    warming.look()
    assert len(warming.steps) == 1
    clock.run(60.0, busy=0.5)
    warming.look()
    assert len(warming.steps) == 2


def test_a_client_that_closes_does_not_wait_for_the_knowledge(clock, warming):
    """There is no other step, and the end of the process would abort what is just in C++ in a daemon."""
    clock.run(1.0, busy=0.0)
    warming.look()
    warming.client.status = "closed"
    clock.run(1.0, busy=0.0)
    warming.look()
    (thread,) = warming.steps
    assert not thread.daemon


def test_a_step_that_fails_is_nobodys_trouble(clock, warming, monkeypatch):
    """What cannot be loaded is told to whoever needs an answer, not to a program that passes."""
    complain = Mock()
    monkeypatch.setattr(threading, "excepthook", complain)
    warming.problem = ImportError("no file")
    clock.run(1.0, busy=0.0)
    warming.look()
    complain.assert_not_called()
    assert warming.waits


def test_other_threads_wait_less_for_ours_while_it_works():
    """Blocks may overlap, in any order; the last one to end leaves the program as it was."""
    usual_s = sys.getswitchinterval()
    first, second = warm_up.yielding(), warm_up.yielding()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert sys.getswitchinterval() < usual_s / 2
    second.__exit__()
    assert sys.getswitchinterval() == usual_s


@pytest.mark.parametrize("usual", [True, False], ids=["on", "off"])
def test_the_garbage_collector_rests_while_something_is_loaded(usual):
    """Afterwards it is as the program had it."""
    (gc.enable if usual else gc.disable)()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is usual
    finally:
        gc.enable()


def test_each_step_of_loading_can_be_done():
    """What a program loads beside its work is what an answer needs."""
    for step in warm_up.STEPS:
        step()
