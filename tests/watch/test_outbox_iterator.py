"""The loop of a program over a watcher: each notice is handed over, and delivered once it was worked on."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest

from support.notices import sample_notice
from workerdiag.watch.outbox import Inbox
from workerdiag.watch.sinks.base import Delivery, DeliveryError

PATIENCE_S = 60.0


@contextmanager
def delivering(inbox, *notices):
    """An outbox's thread that delivers these, one after the other; what became of each."""
    outcomes = []

    def deliver():
        for each in notices:
            try:
                inbox.deliver(Delivery(id=each.id, notice=each))
            except DeliveryError:
                outcomes.append((each.id, "not delivered"))
            else:
                outcomes.append((each.id, "delivered"))

    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    try:
        yield outcomes
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_notice_is_delivered_when_the_next_one_is_asked_for():
    """Until then the program may fail on it, or be killed."""
    inbox = Inbox()
    first, second = sample_notice(id="a-1"), sample_notice(id="a-2")
    with delivering(inbox, first, second) as outcomes:
        assert inbox.take(PATIENCE_S) == first
        assert outcomes == []
        assert inbox.take(PATIENCE_S) == second
        assert outcomes == [("a-1", "delivered")]
        inbox.close(is_worked_on=False)
    assert outcomes == [("a-1", "delivered"), ("a-2", "not delivered")]


def test_the_last_notice_is_delivered_when_the_watcher_is_closed_in_order():
    """A loop that ends by ``break`` has worked on the notice it had."""
    inbox = Inbox()
    with delivering(inbox, sample_notice(id="a-1")) as outcomes:
        inbox.take(PATIENCE_S)
        inbox.close(is_worked_on=True)
    assert outcomes == [("a-1", "delivered")]


def test_what_nobody_took_is_not_delivered():
    """The outbox keeps it for the next watcher."""
    inbox = Inbox()
    with delivering(inbox, sample_notice(id="a-1"), sample_notice(id="a-2")) as outcomes:
        inbox.close(is_worked_on=True)
    assert outcomes == [("a-1", "not delivered"), ("a-2", "not delivered")]


def test_a_program_may_look_for_a_limited_time():
    """Nothing came: that is no end."""
    with pytest.raises(TimeoutError):
        Inbox().take(0.0)


def test_the_loop_ends_after_the_last_notice():
    """What was offered before the end is still taken."""
    inbox = Inbox()
    with delivering(inbox, sample_notice(id="a-1")) as outcomes:
        assert inbox.take(PATIENCE_S) is not None
        inbox.end()
        assert inbox.take(PATIENCE_S) is None
    assert outcomes == [("a-1", "delivered")]


def test_an_asynchronous_program_takes_notices_and_goes_on_meanwhile():
    """Waiting for a notice holds up nothing else in the program's event loop."""

    async def program(inbox):
        taken = asyncio.ensure_future(inbox.take_async())
        await asyncio.sleep(0)
        assert not taken.done()
        with delivering(inbox, sample_notice(id="a-1")):
            first = await asyncio.wait_for(taken, PATIENCE_S)
            inbox.close(is_worked_on=True)
            return first, await inbox.take_async()

    first, last = asyncio.run(program(Inbox()))
    assert first.id == "a-1"
    assert last is None


def test_a_program_that_gives_up_waiting_is_forgotten():
    """Its event loop may be closed when the next notice comes."""
    inbox = Inbox()

    async def program():
        await asyncio.wait_for(inbox.take_async(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(program())
    with delivering(inbox, sample_notice(id="a-1")):
        assert inbox.take(PATIENCE_S) is not None
        inbox.close(is_worked_on=True)
