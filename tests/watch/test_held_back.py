"""What the watcher holds back is in its state, and comes out again."""

from __future__ import annotations

import pytest
from attrs import evolve

from support.alerts import CLUSTER, SETTINGS, START, incident, sure_of, watched
from workerdiag.errors import StateFileError
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.policy import HeldBack, KnownIssue, NoticePolicy, PolicyState, new_silence
from workerdiag.watch.store import Store

HOUR_S = 3600.0


def casebook(store, **policy):
    """The cases of one cluster, kept in *store*."""
    return Casebook(
        store=store,
        settings=SETTINGS,
        sink_names=lambda: ["a sink"],
        wake=lambda: None,
        cluster=CLUSTER,
        policy=NoticePolicy(**policy),
    )


def die(book, *causes, now=START):
    """A worker dies of each cause."""
    incidents = [incident(watched(n), diagnosis=sure_of(cause)) for n, cause in enumerate(causes)]
    book.conclude(incidents, [], now)


def told(store):
    """The reasons of what is in the outbox."""
    return [each.notice.reason for each in store.deliveries()]


def test_a_silence_that_is_added_later_holds_from_then_on():
    """Silences are looked up when there is something to say, so that the command line can add one at any time."""
    store = Store.open(None)
    book = casebook(store)
    die(book, "kernel.oom-killer")
    store.policy_table.add_silence(new_silence("nanny.*", until=START + HOUR_S, reason="r", now=START))
    die(book, "nanny.memory-terminate", "signal.segfault")
    assert [each.notice.cause for each in store.deliveries()] == ["kernel.oom-killer", "signal.segfault"]


def test_the_digest_comes_with_time():
    """What a rate limit held back is told an hour later, once."""
    store = Store.open(None)
    book = casebook(store, most_notices=1)
    die(book, "kernel.oom-killer", "nanny.memory-terminate")
    for minute in range(1, 14):
        now = START + 600 * minute
        book.pass_time(now, seen_at=now - 599, problem=None)
    assert told(store).count("digest") == 1


def test_the_end_of_a_cluster_leaves_nothing_untold():
    """A known issue that was held back is in the last digest."""
    store = Store.open(None)
    book = casebook(store, known_issues=(KnownIssue(cause="nanny.*", note="n", hold=True),))
    die(book, "nanny.memory-terminate")
    book.end(START + 60)
    assert told(store) == ["digest"]
    text = store.deliveries()[0].notice.text
    assert text.startswith("prod: 2 notices about 1 case were held back\n")
    assert "1 notice (new); a known issue, n" in text
    assert "1 notice (ended); the case was never reported" in text


def test_what_was_held_back_survives_the_watcher(tmp_path):
    """Silences and what is to be told are in the state file."""
    path = tmp_path / "state.db"
    silence = new_silence("caf\u00e9-*", until=START + HOUR_S, reason="\ud800", now=START)
    held = HeldBack(case_id="c", title="t", hold="rate-limit", reasons=("new",), since=START)
    state = PolicyState(sent_at=(START,), held=(held,), untold=frozenset({"c"}), digest_count=3)
    store = Store.open(path)
    store.policy_table.add_silence(silence)
    store.policy_table.set_state(CLUSTER, state)
    store.close()
    again = Store.open(path)
    assert again.policy_table.silences() == (silence,)
    assert again.policy_table.state(CLUSTER) == state
    assert again.policy_table.state("another") == PolicyState()


def test_a_silence_can_be_ended():
    """Removing one says whether it was there; old ones are forgotten."""
    store = Store.open(None, clock=lambda: START + 40 * 24 * HOUR_S)
    first = new_silence("a", until=START + HOUR_S, reason="r", now=START)
    store.policy_table.add_silence(first)
    store.policy_table.add_silence(evolve(first, id="b", until=START + 100 * 24 * HOUR_S))
    assert store.policy_table.remove_silence("unknown") is False
    store.prune()
    assert [each.id for each in store.policy_table.silences()] == ["b"]
    assert store.policy_table.remove_silence("b") is True


def test_a_row_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path):
    """A state that was changed by hand is not taken for silence."""
    store = Store.open(tmp_path / "state.db")
    with store.file.transaction() as connection:
        connection.execute("INSERT INTO silence VALUES ('x', '{}')")
    with pytest.raises(StateFileError, match=r"state\.db"):
        store.policy_table.silences()
