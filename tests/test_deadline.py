"""Deadlines are handed down and split into shares, and helper threads never block their caller."""

from __future__ import annotations

import ast
import signal
import threading
import time
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workerdiag
from workerdiag import deadline as room
from workerdiag.deadline import (
    NO_DEADLINE,
    Deadline,
    GraceDeadline,
    HelperThread,
    call_in_time,
)

PACKAGE = Path(workerdiag.__file__).parent
#: The probes are sent as text to processes that may not have workerdiag.
PROBES = "sources/host/probes/"
#: Who else may read the monotonic clock: the recorder measures in workers;
#: the looks into schedulers run where workerdiag may not be; programs that pass import no more than they must.
CLOCKS = (
    "deadline.py",
    PROBES,
    "api/noted_calls.py",
    "api/warm_up.py",
    "recorder/box/writer.py",
    "recorder/large_objects.py",
    "recorder/sampler.py",
    "recorder/scheduler.py",
    "sources/cluster/scheduler_functions.py",
    "watch/feed/look_handler.py",
)
#: Who else may start a thread: they work as long as the process lives; `testing` has a server, and the process of a
#: replay imports nothing of workerdiag.
THREADS = (
    "deadline.py",
    PROBES,
    "recorder/sampler.py",
    "recorder/journal.py",
    "replay/child.py",
    "testing.py",
)


@pytest.mark.parametrize(
    ("names", "owners"), [({"monotonic", "perf_counter"}, CLOCKS), ({"Thread", "Timer"}, THREADS)]
)
def test_nothing_else_keeps_time_or_starts_a_thread(names, owners):
    """A deadline is computed, and waiting is stopped, in one module."""
    users = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if any(name in text for name in names) and names & used_names(text):
            users.add(path.relative_to(PACKAGE).as_posix())
    assert [each for each in sorted(users) if not each.startswith(owners)] == []


def used_names(text: str) -> set[str]:
    """Attributes that a module looks up, and names that it imports."""
    nodes = list(ast.walk(ast.parse(text)))
    looked_up = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return looked_up | {node.name for node in nodes if isinstance(node, ast.alias)}


@given(st.floats(0, 1), st.floats(0, 1e6))
def test_a_share_never_ends_after_the_whole(part, seconds):
    """A step that gets a part of the time cannot use more than there is."""
    whole = Deadline.after(seconds)
    assert whole.share(part).left_s <= seconds


def test_a_step_can_have_a_least_and_a_most():
    """Some work is done however late it is, and some never takes long."""
    assert Deadline.after(-1).share(at_least_s=100).left_s > 99
    assert Deadline.after(100).share(0.5, at_most_s=2).left_s <= 2


def test_without_a_deadline_nothing_is_over():
    """Where nobody waits, there is time for each share."""
    assert not NO_DEADLINE.share(0.1).is_over
    assert Deadline.after(0).is_over
    assert Deadline.after(-5).left_s == 0


def test_a_grace_is_used_up():
    """The first few looks find time left."""
    late = GraceDeadline(Deadline.after(0), grace=2)
    assert [late.is_over() for _ in range(4)] == [False, False, True, True]


def test_what_a_call_returns_and_raises_comes_back():
    """An error is there as text, also one that ends threads."""

    def ends():
        raise SystemExit("away")

    assert call_in_time("workerdiag-test", lambda: 7, Deadline.after(60)) == 7
    with pytest.raises(RuntimeError, match="SystemExit: away"):
        call_in_time("workerdiag-test", ends, Deadline.after(60))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="only POSIX interrupts one thread")
def test_the_callers_keyboard_interrupt_passes():
    """^C ends the wait at once, whatever is waited for."""
    caller, release = threading.get_ident(), threading.Event()

    def hangs():
        signal.pthread_kill(caller, signal.SIGINT)
        release.wait(60)

    with pytest.raises(KeyboardInterrupt):
        call_in_time("workerdiag-test", hangs, Deadline.after(60))
    release.set()


def test_who_does_not_come_back_is_left_behind():
    """The caller goes on when time is up, and the thread ends at its next piece."""
    release = threading.Event()

    def pieces():
        yield 1
        release.wait(60)
        yield from count(2)

    thread = HelperThread("workerdiag-left-behind", pieces)
    taken = []
    with pytest.raises(TimeoutError):
        taken.extend(thread.take(Deadline.after(0.2)))
    assert taken == [1]
    release.set()
    while any(each.name == "workerdiag-left-behind" for each in threading.enumerate()):
        time.sleep(0.01)


def test_a_reader_goes_no_further_ahead_than_it_may():
    """What nobody takes does not fill the memory."""
    made = []

    def pieces():
        for number in range(100):
            made.append(number)
            yield number

    thread = HelperThread("workerdiag-ahead", pieces, read_ahead=2)
    assert thread.next_piece(Deadline.after(60)) == (0,)
    assert len(made) <= 4
    assert len(list(thread.take(Deadline.after(60)))) == 99


def test_no_more_threads_than_a_few_live_of_one_name(monkeypatch):
    """A program that waits for what hangs, for ever, does not fill up with threads."""
    monkeypatch.setattr(room, "MAX_THREADS", 0)
    with pytest.raises(RuntimeError, match="have not returned"):
        call_in_time("workerdiag-test", lambda: 7, Deadline.after(60))
