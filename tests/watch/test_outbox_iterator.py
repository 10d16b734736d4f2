"""The loop of a program over a watcher: each notice is handed over, and delivered once it was worked on."""

from __future__ import annotations

import asyncio

import pytest

from support.notices import sample_notice
from workerdiag.errors import StateFileError
from workerdiag.watch.outbox import INBOX_NAME, Inbox
from workerdiag.watch.store import Store

PATIENCE_S = 60.0


@pytest.fixture
def store():
    store = Store()
    yield store
    store.close()


@pytest.fixture
def inbox(store):
    return Inbox(store.outbox)


def say(store, *names):
    """Notices of these names, each of a case of its own."""
    made = [sample_notice(id=name, notice_id=name) for name in names]
    for each in made:
        store.outbox.enqueue(each, [INBOX_NAME])
    return made


def states(store):
    return [each.state for each in store.outbox.stored()]


def test_a_notice_is_delivered_when_the_next_one_is_asked_for(store, inbox):
    """Until then the program may fail on it, or be killed."""
    first, second = say(store, "a-1", "a-2")
    assert inbox.take(PATIENCE_S) == first
    assert states(store) == ["sending", "pending"]
    assert inbox.take(PATIENCE_S) == second
    assert states(store) == ["sent", "sending"]
    inbox.close(is_worked_on=False)
    assert states(store) == ["sent", "pending"]


def test_the_last_notice_is_delivered_when_the_watcher_is_closed_in_order(store, inbox):
    """A loop that ends by ``break`` has worked on the notice it had."""
    say(store, "a-1")
    inbox.take(PATIENCE_S)
    inbox.close(is_worked_on=True)
    assert states(store) == ["sent"]


def test_what_nobody_took_is_not_delivered(store, inbox):
    """The outbox keeps it for the next watcher."""
    say(store, "a-1", "a-2")
    inbox.close(is_worked_on=True)
    assert states(store) == ["pending", "pending"]


def test_a_program_may_look_for_a_limited_time(inbox):
    """Nothing came: that is no end."""
    with pytest.raises(TimeoutError):
        inbox.take(0.0)


def test_the_loop_ends_after_the_last_notice(store, inbox):
    """What was said before the end is still taken."""
    say(store, "a-1")
    inbox.end()
    assert inbox.take(PATIENCE_S) is not None
    assert inbox.take(PATIENCE_S) is None
    assert states(store) == ["sent"]


def test_what_a_killed_program_had_is_told_again(store, inbox):
    """It may not have worked on it."""
    (notice,) = say(store, "a-1")
    inbox.take(PATIENCE_S)
    again = Inbox(store.outbox)
    again.start()
    assert again.take(PATIENCE_S) == notice


def test_a_state_that_cannot_be_written_holds_the_loop_up(store, inbox, monkeypatch):
    """As on a full disk: nothing is lost, and nothing is told twice."""
    first, second = say(store, "a-1", "a-2")
    assert inbox.take(PATIENCE_S) == first

    def refused(*_):
        raise StateFileError("state.db", "the disk is full", "make room")

    with monkeypatch.context() as full:
        full.setattr(type(store.outbox), "note_sent", refused)
        with pytest.raises(TimeoutError):
            inbox.take(0.01)
    assert inbox.take(PATIENCE_S) == second
    assert states(store) == ["sent", "sending"]


def test_an_asynchronous_program_takes_notices_and_goes_on_meanwhile(store, inbox):
    """Waiting for a notice holds up nothing else in the program's event loop."""

    async def program():
        taken = asyncio.ensure_future(inbox.take_async())
        await asyncio.sleep(0.1)
        assert not taken.done()
        say(store, "a-1")
        inbox.wake()
        first = await asyncio.wait_for(taken, PATIENCE_S)
        inbox.close(is_worked_on=True)
        return first, await inbox.take_async()

    first, last = asyncio.run(program())
    assert first.id == "a-1"
    assert last is None


def test_a_program_that_gives_up_waiting_is_forgotten(store, inbox):
    """Its event loop may be closed when the next notice comes."""

    async def program():
        await asyncio.wait_for(inbox.take_async(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(program())
    say(store, "a-1")
    inbox.wake()
    assert inbox.take(PATIENCE_S) is not None
