"""A watcher as programs use it: a context manager, an iterator, callbacks, asynchronous; on a simulated cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from attrs import define, evolve, field

import workerdiag
from support.simulated_feed import NOON, SimulatedFeed, death
from workerdiag.errors import StateFileError, StateInUseError
from workerdiag.watch.case import WatchSettings
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError, as_sink
from workerdiag.watch.store import DeliveryTable, SinkStatus, Store
from workerdiag.watch.watcher import Watcher

PATIENCE_S = 60.0


def watching(feed, *sinks, state=None, **settings):
    """A watcher of a simulated cluster, at work."""
    return Watcher(
        feed=feed,
        cluster=feed.cluster,
        sinks=[as_sink(each) for each in sinks],
        store=Store(state, clock=feed.now),
        settings=WatchSettings(**settings),
        clock=feed.now,
        pause=feed.pause,
    ).start()


def ended(*deaths, **more):
    """A cluster that is closed after five minutes."""
    return SimulatedFeed(deaths or [death(1, 100.0)], **{"ends_at": 300.0, **more})


@define(eq=False)
class GatedFeed(SimulatedFeed):
    """A cluster that does nothing before it is let."""

    gate: threading.Event = field(factory=threading.Event, init=False)

    async def poll(self, after, *, wait_s):
        await asyncio.to_thread(self.gate.wait, PATIENCE_S)
        return await SimulatedFeed.poll(self, after, wait_s=wait_s)


def heard_by_loop(watcher):
    """All that the loop over a watcher of a gated cluster hears, from the beginning."""
    notices = iter(watcher)
    watcher._feed.gate.set()
    return list(notices)


def until(is_so):
    """Wait for what another thread does."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def sink_status(watcher, name):
    """How the sink is doing that has *name* in its name."""
    found = [each for each in watcher.status().sinks if name in each.name]
    return found[0] if found else SinkStatus(name=name)


def reached_end(feed):
    """An event that is set when the simulated time is over."""
    over = threading.Event()
    feed.at_end = over.set
    return over


def test_iterating_yields_each_notice_and_ends_with_the_cluster():
    """As in the ten lines that people write."""
    with watching(ended()) as watcher:
        assert [each.reason for each in watcher] == ["new", "ended"]


def test_a_plain_function_hears_each_notice():
    """A callback needs no class."""
    heard = []
    with watching(ended(), heard.append) as watcher:
        until(lambda: watcher.status().state == "ended")
    assert [each.reason for each in heard] == ["new", "ended"]


def test_functions_and_the_loop_hear_the_same():
    """Each sink, and the loop, gets every notice of its own."""
    heard = []
    with watching(GatedFeed([death(1, 100.0)], ends_at=300.0), heard.append) as watcher:
        looped = heard_by_loop(watcher)
    assert [each.reason for each in looped] == ["new", "ended"]
    assert heard == looped


def test_a_loop_that_takes_its_time_holds_up_no_function():
    """The sinks have threads of their own."""
    heard = threading.Event()
    with watching(ended(), lambda _: heard.set()) as watcher:
        iter(watcher)
        assert heard.wait(PATIENCE_S)


def test_a_function_that_fails_holds_up_no_loop():
    """What it raises is in the status, and it is called again later."""

    def failing(notice):
        raise RuntimeError("chat is down")

    with watching(GatedFeed([death(1, 100.0)], ends_at=300.0), failing) as watcher:
        assert [each.reason for each in heard_by_loop(watcher)] == ["new", "ended"]
        until(lambda: "chat is down" in sink_status(watcher, "failing").problem)
        watcher.close(timeout_s=0.1)


def test_an_asynchronous_program_watches_too():
    """``async with`` and ``async for`` hold up nothing else of it."""

    async def program():
        async with watching(ended()) as watcher:
            return [each.reason async for each in watcher]

    assert asyncio.run(program()) == ["new", "ended"]


def test_a_loop_that_fails_gets_the_notice_again(tmp_path):
    """The next watcher with the same state yields it, with the same id."""
    state = tmp_path / "state.db"
    seen = []

    def fail_on_the_first():
        with watching(ended(), state=state) as watcher:
            for notice in watcher:
                seen.append(notice.notice_id)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_on_the_first()
    with watching(ended(), state=state) as watcher:
        again = [each.notice_id for each in watcher]
    assert again[0] == seen[0]
    assert len(again) == len(set(again))


def test_a_loop_that_is_left_has_worked_on_its_notice(tmp_path):
    """After ``break`` the notice is not told again."""
    state = tmp_path / "state.db"
    with watching(ended(), state=state) as watcher:
        first = next(watcher)
    with watching(ended(), state=state) as watcher:
        assert first.notice_id not in [each.notice_id for each in watcher]


def test_a_notice_that_was_worked_on_is_noted_however_slow_the_state_is(tmp_path, monkeypatch):
    """A watcher that is closed waits until the state says so: else the next one would tell it again."""
    note_sent = DeliveryTable.note_sent

    def slowly(table, id_, receipt):
        time.sleep(0.5)
        note_sent(table, id_, receipt)

    monkeypatch.setattr(DeliveryTable, "note_sent", slowly)
    state = tmp_path / "state.db"
    with watching(ended(), state=state) as watcher:
        first = next(watcher)
    with watching(ended(), state=state) as watcher:
        assert first.notice_id not in [each.notice_id for each in watcher]


def test_what_was_not_judged_is_judged_by_the_next_watcher(tmp_path):
    """A kill between reading a death and judging it loses nothing."""
    state = tmp_path / "state.db"
    store = Store(state)
    store.add_deaths("prod", [death(1, 100.0)])
    store.close()
    with watching(SimulatedFeed(ends_at=300.0), state=state) as watcher:
        assert next(watcher).death_count == 1


def test_a_watcher_that_is_closed_delivers_what_is_due():
    """Also a death that had no time to settle."""
    heard = []
    feed = SimulatedFeed([death(1, 599.0)], until=600.0)
    over = reached_end(feed)
    with watching(feed, heard.append):
        assert over.wait(PATIENCE_S)
    assert [each.reason for each in heard] == ["new"]


def test_closing_waits_no_longer_than_it_may():
    """A sink that hangs and a feed that hangs are left behind."""
    hanging = threading.Event()
    feed = SimulatedFeed([death(1, 100.0)], until=600.0)
    over = reached_end(feed)
    watcher = watching(feed, lambda _: hanging.wait(PATIENCE_S))
    assert over.wait(PATIENCE_S)
    watcher.close(timeout_s=0.5)
    hanging.set()
    assert watcher.status().state == "closed"


def test_a_closed_watcher_has_nothing_more_to_say():
    """Loops end, and closing again does nothing."""
    watcher = watching(SimulatedFeed())
    watcher.close()
    watcher.close()
    assert list(watcher) == []
    assert watcher.status().state == "closed"


def test_looking_for_a_limited_time():
    """A program that has other things to do asks now and then."""
    feed = SimulatedFeed(until=10.0)
    with watching(feed) as watcher, pytest.raises(TimeoutError):
        watcher.next_notice(0.01)


def test_cases_are_there_to_look_at():
    """Open ones, and those that are over."""
    with watching(ended()) as watcher:
        list(watcher)
        (case,) = watcher.cases()
        assert (case.state, case.death_count, case.opened_at) == ("ended", 1, NOON + 100)


def test_two_watchers_do_not_share_a_state(tmp_path):
    """The second one is told who has it, and nothing is lost."""
    state = tmp_path / "state.db"
    with watching(SimulatedFeed(), state=state), pytest.raises(StateInUseError, match=f"pid {os.getpid()}"):
        watching(SimulatedFeed(), state=state)
    watching(SimulatedFeed(), state=state).close()


@pytest.mark.slow
def test_thousand_deaths_of_three_causes_are_three_notices():
    """Within a minute; afterwards at most three updates. The judge is the real one."""
    deaths = [death(n, 100.0 + n * 0.06, signal=(6, 11, 4)[n % 3], host=f"10.0.0.{n % 200}") for n in range(1000)]
    feed = SimulatedFeed(deaths, until=900.0)
    over = reached_end(feed)
    heard = []
    with watching(feed, heard.append):
        assert over.wait(PATIENCE_S)
    reasons = [each.reason for each in heard]
    assert reasons.count("new") == 3
    assert len(reasons) <= 6
    assert len({each.id for each in heard}) == 3


def test_an_hour_without_scheduler_is_two_notices():
    """One that it is blind, one that it sees again."""
    heard = []
    feed = SimulatedFeed(outages=[(1000.0, 4600.0)], until=7200.0)
    over = reached_end(feed)
    with watching(feed, heard.append):
        assert over.wait(PATIENCE_S)
    assert [each.reason for each in heard] == ["blind", "resolved"]


@pytest.mark.parametrize("target", [None, 8786, object()])
def test_what_is_no_cluster_is_a_type_error(target):
    """Said at once, to who called."""
    with pytest.raises(TypeError, match="expected a Client, an address"):
        workerdiag.watch(target)


def test_a_sink_that_is_none_is_said_at_once():
    """Before anything is started."""
    with pytest.raises(SinkSetupError):
        workerdiag.watch("tcp://127.0.0.1:9", "#dask")


def test_a_sink_has_not_the_name_of_the_loop_over_notices():
    """Each would get what is the other's."""
    sink = evolve(as_sink(print), name="iterator")
    with pytest.raises(SinkSetupError, match="has this name"):
        workerdiag.watch("tcp://127.0.0.1:9", sink)


def test_a_state_of_another_program_is_left_alone(tmp_path):
    """A clear message, and not a byte of the file is changed."""
    state = tmp_path / "notes.txt"
    state.write_text("my notes\n" * 100)
    with pytest.raises(StateFileError, match=r"notes\.txt"):
        workerdiag.watch("tcp://127.0.0.1:9", state=state)
    assert state.read_text() == "my notes\n" * 100


def refused_status(watcher):
    """How the sink does that refuses everything."""
    (status,) = [each for each in watcher.status().sinks if "refused" in each.name]
    return status


def test_a_refused_notice_is_a_dead_letter_and_the_rest_goes_on():
    """A sink with a wrong token holds up no other."""
    heard = []

    def refused(notice):
        raise DeliveryError(problem="wrong token", is_final=True)

    with watching(ended(), refused, heard.append) as watcher:
        list(watcher)
        late = time.monotonic() + PATIENCE_S
        while (status := refused_status(watcher)).counts["dead"] < 2 and time.monotonic() < late:
            time.sleep(0.01)  # each sink has a thread of its own
        assert (status.counts["dead"], status.problem) == (2, "wrong token")
    assert len(heard) == 2


def run_program(code):
    """What a program prints that ends by itself, without hanging."""
    source = textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_that_forgets_to_close_ends_all_the_same():
    """Its threads hold up no end of an interpreter, also where no scheduler answers."""
    printed = run_program("""
        import workerdiag
        watcher = workerdiag.watch("tcp://127.0.0.1:9", print)
        print(watcher.status().state)
    """)
    assert printed == "connecting\n"


def test_a_forked_copy_ends_at_once_and_closes_nothing():
    """Threads are not forked; the state belongs to the parent."""
    printed = run_program("""
        import os, workerdiag
        with workerdiag.watch("tcp://127.0.0.1:9", print) as watcher:
            child = os.fork()
            if child == 0:
                print("child", list(watcher), watcher.status().state, flush=True)
                watcher.close()
                os._exit(0)
            os.waitpid(child, 0)
            print("parent", watcher.status().state)
    """)
    assert sorted(printed.splitlines()) == ["child [] closed", "parent connecting"]
