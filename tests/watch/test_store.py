"""The watcher's state: what was committed is there again, what was not is not."""

from __future__ import annotations

import pytest
from attrs import evolve

from support.watch_values import NOW, FakeClock, make_notice, watched_case, watched_death
from workerdiag.errors import StateFileError
from workerdiag.model.evidence import Gap, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.watch.feed.events import Cursor
from workerdiag.watch.store import KEEP_S, Store


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    opened = Store(None if request.param == "memory" else tmp_path / "state.db")
    yield opened
    opened.close()


def test_everything_is_there_again_after_a_restart(tmp_path):
    """Cursor, deaths with their evidence, cases and the outbox are as they were."""
    path = tmp_path / "state.db"
    store = Store(path)
    store.set_cursor("prod", Cursor(epoch="e", position=7))
    store.add_deaths("prod", [watched_death(1), watched_death(2, is_expected=True)])
    store.put_case(watched_case())
    store.outbox.enqueue(make_notice(), ["slack", "mail"])
    store.close()
    store = Store(path)
    assert store.cursor("prod") == Cursor(epoch="e", position=7)
    assert store.cursor("other") is None
    assert store.pending_deaths() == (watched_death(1), watched_death(2, is_expected=True))
    assert [each.evidence for each in store.pending_deaths()] == [
        watched_death(number).evidence for number in (1, 2)
    ]
    assert store.cases() == (watched_case(),)
    assert store.case("case-a") == watched_case()
    assert [(each.sink, each.notice, each.state) for each in store.outbox.stored()] == [
        ("slack", make_notice(), "pending"),
        ("mail", make_notice(), "pending"),
    ]
    store.close()


def test_a_transaction_is_kept_as_a_whole_or_not_at_all(store):
    """An error undoes everything in it: cursor, deaths, case and outbox."""

    def write_and_fail():
        with store.transaction():
            store.set_cursor("prod", Cursor(epoch="e", position=1))
            store.add_deaths("prod", [watched_death()])
            store.put_case(watched_case())
            store.outbox.enqueue(make_notice(), ["slack"])
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert store.cursor("prod") is None
    assert store.pending_deaths() == store.cases() == store.outbox.stored() == ()


def test_a_known_death_is_ignored(store):
    """However often it is read, it is one; once it was judged it does not come back."""
    assert store.add_deaths("prod", [watched_death(1)]) == 1
    assert store.add_deaths("prod", [watched_death(1), watched_death(2)]) == 1
    store.assign(["epoch-1"], "case-a")
    assert store.add_deaths("prod", [watched_death(1)]) == 0
    assert [each.id for each in store.pending_deaths()] == ["epoch-2"]


def test_later_evidence_of_a_pending_death_is_added(store):
    """Pieces that are new are added, once; of a log the longer text is kept."""
    first = watched_death(1)
    more = ProcessExit(identity=first.identity, signal=9, reporter="kubernetes")
    log = first.evidence[-1]
    longer = (evolve(log, data=b"one\n"), evolve(log, data=b"two, and more than before\n"))
    store.add_deaths("prod", [first])
    for _ in range(2):
        store.add_deaths("prod", [evolve(first, evidence=(first.evidence[0], more, *longer))])
    store.add_deaths("prod", [evolve(first, evidence=())])
    (kept,) = store.pending_deaths()
    assert kept.evidence == (*first.evidence[:2], more, *longer)


def test_evidence_is_let_go_once_it_was_judged(store):
    """A death of a case, or of none, is known and no longer pending."""
    store.add_deaths("prod", [watched_death(1), watched_death(2)])
    store.assign(["epoch-1"], "case-a")
    store.assign(["epoch-2"], None)
    assert store.pending_deaths() == ()
    with store.file.transaction() as connection:
        found = connection.execute("SELECT id, case_id, evidence FROM death ORDER BY id").fetchall()
    assert found == [("epoch-1", "case-a", None), ("epoch-2", None, None)]


def test_a_piece_that_cannot_be_read_is_a_gap(store):
    """One piece of evidence that a newer version wrote does not hide the others."""
    store.add_deaths("prod", [watched_death(1)])
    with store.file.transaction() as connection:
        connection.execute("""UPDATE death SET evidence = '[{"kind":"Unheard"},{"kind":"LogChunk"}]'""")
    (death,) = store.pending_deaths()
    assert [type(each) for each in death.evidence] == [Gap, Gap]


def test_clusters_are_kept_apart(store):
    """One file may hold the state of several clusters."""
    store.add_deaths("one", [watched_death(1)])
    store.add_deaths("two", [watched_death(2)])
    store.put_case(watched_case("a", cluster="one"))
    store.put_case(watched_case("b", cluster="two"))
    assert [each.id for each in store.pending_deaths("two")] == ["epoch-2"]
    assert [each.id for each in store.cases("one")] == ["a"]
    assert [each.id for each in store.cases()] == ["a", "b"]


def test_text_that_is_no_utf_8_is_kept(store):
    """Half a surrogate pair, as in a file name that is no UTF-8, stops nothing."""
    odd = "worker-\udcff"
    store.add_deaths(odd, [watched_death(1, id=odd, identity=Identity(name=odd), evidence=())])
    store.set_cursor(odd, Cursor(epoch=odd, position=1))
    store.put_case(watched_case(odd, cluster=odd, what=odd))
    store.outbox.enqueue(make_notice(odd, notice_id=odd, text=odd), [odd])
    store.assign([odd], odd)
    assert store.pending_deaths(odd) == ()
    assert store.case(odd).what == odd
    assert store.outbox.stored()[0].notice.text == odd


def test_what_is_over_is_forgotten(tmp_path):
    """Judged deaths, cases that ended and deliveries go after 30 days; what waits or goes on stays."""
    clock = FakeClock()
    store = Store(tmp_path / "state.db", clock=clock)
    log = LogChunk(origin="log", data=b"line\n" * 100_000)
    store.add_deaths("prod", [watched_death(number, evidence=(log,)) for number in range(4)])
    store.assign(["epoch-0", "epoch-1", "epoch-2"], "case-a")
    store.put_case(watched_case("over", state="resolved"))
    store.put_case(watched_case("goes-on"))
    store.put_case(watched_case("waits", state="ended"))
    for case, sequence in [("over", 1), ("over", 2), ("goes-on", 1), ("goes-on", 2)]:
        store.outbox.enqueue(make_notice(case, sequence), ["slack"])
        store.outbox.note_sent(store.outbox.claim("slack")[0].id, {})
    store.outbox.enqueue(make_notice("waits"), ["slack"])
    clock.now += KEEP_S - 1
    store.prune()
    assert len(store.outbox.stored()) == 5
    size = (tmp_path / "state.db").stat().st_size
    clock.now += 2
    store.add_deaths("prod", [watched_death(9)])
    store.prune()
    assert [each.id for each in store.pending_deaths()] == ["epoch-3", "epoch-9"]
    assert [each.id for each in store.cases()] == ["goes-on", "waits"]
    assert [each.notice.notice_id for each in store.outbox.stored()] == ["goes-on-2", "waits-1"]
    store.close()
    assert (tmp_path / "state.db").stat().st_size < size
    assert clock.now > NOW


def test_a_closed_store_says_so(store):
    """A method of a store that was closed raises what all others raise."""
    store.close()
    with pytest.raises(StateFileError, match="closed"):
        store.cases()
