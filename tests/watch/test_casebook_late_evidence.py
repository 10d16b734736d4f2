"""A death that was told is judged again when more becomes known of it."""

from __future__ import annotations

from attrs import evolve

from support.alerts import CLUSTER, SETTINGS, START, incident, sure_of, unsure, watched
from workerdiag.model.evidence import ProcessExit
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.feed.events import Cursor, FeedBatch
from workerdiag.watch.store import Store

FIRST, LATER = sure_of("nanny.memory-terminate"), sure_of("kernel.oom-killer")


class Watcher:
    """A casebook, and a judge that says what it is told to."""

    def __init__(self):
        self.store = Store(None)
        self.book = Casebook(
            store=self.store,
            settings=SETTINGS,
            sink_names=lambda: ["a sink"],
            wake=lambda: None,
            cluster=CLUSTER,
        )
        self.now = START

    def learn(self, *numbers, later_s=0.0):
        """The feed tells of these deaths, for the first time or with more evidence."""
        self.now += later_s
        deaths = tuple(known_death(number) for number in numbers)
        self.book.receive(FeedBatch(cursor=Cursor(epoch="e", position=1), now=self.now, deaths=deaths))

    def judge(self, diagnosis, **more):
        """All that is to be judged died of one cause."""
        deaths = self.book.to_judge()
        self.book.conclude([evolve(incident(*deaths, diagnosis=diagnosis), **more)], deaths, self.now)
        assert self.book.to_judge() == ()

    @property
    def counted(self):
        """Of each case the key, its deaths, and those beside them."""
        return {each.key: (each.death_count, len(each.unexplained_ids)) for each in self.store.cases()}

    @property
    def told(self):
        """Reason, cause, and number of deaths of each notice."""
        notices = [each.notice for each in self.store.outbox.stored()]
        return [(each.reason, each.cause, each.death_count) for each in notices]


def known_death(number):
    """A death with some evidence."""
    death = watched(number)
    return evolve(death, evidence=(ProcessExit(identity=death.identity, signal=9, when=START),))


def test_late_evidence_changes_what_a_case_says():
    """The case keeps its key and its deaths, and says what is now thought."""
    watcher = Watcher()
    watcher.learn(1, 2)
    watcher.judge(FIRST)
    watcher.learn(1, 2, later_s=400)
    watcher.judge(LATER)
    assert watcher.told == [
        ("new", "nanny.memory-terminate", 2),
        ("changed", "kernel.oom-killer", 2),
    ]
    assert [case.key for case in watcher.store.cases()] == [FIRST.fingerprint]


def test_late_evidence_of_few_deaths_changes_nothing():
    """One death of many that is seen in another light is no news of the case."""
    watcher = Watcher()
    watcher.learn(1, 2, 3)
    watcher.judge(FIRST)
    watcher.learn(1, later_s=400)
    watcher.judge(LATER)
    assert watcher.told == [("new", "nanny.memory-terminate", 3)]


def test_new_deaths_beside_late_evidence_join_the_case_of_their_cause():
    """What is new counts as new, what was told is not counted again, and one cause has one case."""
    watcher = Watcher()
    watcher.learn(1)
    watcher.judge(FIRST)
    watcher.learn(1, 2, later_s=400)
    watcher.judge(LATER)
    assert watcher.told == [
        ("new", "nanny.memory-terminate", 1),
        ("changed", "kernel.oom-killer", 1),
    ]
    assert watcher.counted == {FIRST.fingerprint: (2, 0)}


def test_what_comes_again_unchanged_is_no_news():
    """A feed that repeats itself, as after a restart, makes nobody hear twice."""
    watcher = Watcher()
    for _ in range(3):
        watcher.learn(1, 2, later_s=400)
        watcher.judge(FIRST)
    assert watcher.told == [("new", "nanny.memory-terminate", 2)]


def test_a_death_that_was_counted_into_another_case_moves_to_that_of_its_cause():
    """The last worker of a KilledWorker was judged before its nanny's report came: it leaves the wrong case."""
    watcher = Watcher()
    watcher.learn(1, 2, 3)
    watcher.judge(FIRST)
    watcher.learn(4, 5, 6)
    watcher.judge(LATER)
    watcher.learn(3)
    watcher.judge(LATER)
    assert watcher.counted == {FIRST.fingerprint: (2, 0), LATER.fingerprint: (4, 0)}
    assert [each[0] for each in watcher.told] == ["new", "new"]


def test_a_death_without_exit_and_cause_is_counted_beside_a_firing_case():
    """Nothing tells it apart from the case's own: it is no news, and the next notice says it."""
    watcher = Watcher()
    watcher.learn(1, 2)
    watcher.judge(FIRST)
    watcher.learn(3, later_s=5)
    watcher.judge(unsure(), is_unexplained=True)
    assert watcher.counted == {FIRST.fingerprint: (2, 1)}
    watcher.book.end(watcher.now)
    (_, last) = [each.notice for each in watcher.store.outbox.stored()]
    assert (last.death_count, last.unexplained_count) == (2, 1)
    assert "Also: 1 worker died of an unknown cause" in last.text


def test_a_cause_that_comes_late_takes_the_death_to_its_own_case():
    """Once the exit is known, the death is told as what it was."""
    watcher = Watcher()
    watcher.learn(1, 2)
    watcher.judge(FIRST)
    watcher.learn(3, 4)
    watcher.judge(unsure(), is_unexplained=True)
    watcher.learn(3)
    watcher.judge(LATER)
    watcher.learn(4)
    watcher.judge(FIRST)
    assert watcher.counted == {FIRST.fingerprint: (3, 0), LATER.fingerprint: (1, 0)}


def test_unexplained_deaths_are_news_where_they_are_more_or_alone_or_later():
    """More than a case explains, without a case, or long after its last death: they have a case of their own."""
    watcher = Watcher()
    watcher.learn(1)
    watcher.judge(unsure("key-alone"), is_unexplained=True)
    watcher.learn(2, 3)
    watcher.judge(LATER)
    watcher.learn(4, 5, 6)
    watcher.judge(unsure("key-more"), is_unexplained=True)
    assert watcher.counted == {"key-alone": (1, 0), LATER.fingerprint: (2, 0), "key-more": (3, 0)}


def test_an_unexplained_death_on_another_machine_is_news():
    """That machine may have gone: nobody else died there."""
    watcher = Watcher()
    watcher.learn(1, 2)
    watcher.judge(FIRST)
    elsewhere = watched(3, host="10.0.0.9")
    watcher.book.conclude(
        [evolve(incident(elsewhere, diagnosis=unsure()), is_unexplained=True)], [elsewhere], watcher.now
    )
    assert watcher.counted == {FIRST.fingerprint: (2, 0), "key-unsure": (1, 0)}


def test_a_death_whose_exit_is_known_has_a_case_of_its_own():
    """Of an unknown cause too: its exit tells it apart."""
    watcher = Watcher()
    watcher.learn(1, 2)
    watcher.judge(LATER)
    watcher.learn(3)
    watcher.judge(unsure(), is_unexplained=False)
    assert watcher.counted == {LATER.fingerprint: (2, 0), "key-unsure": (1, 0)}


def test_a_case_that_was_opened_on_a_guess_takes_the_deaths_that_bear_it_out():
    """The same cause is not told twice, once as a guess and once for sure: the case says that it is found."""
    watcher = Watcher()
    watcher.learn(1)
    watcher.judge(unsure("key-guess"))
    guessed = watcher.store.cases()[0].cause
    watcher.learn(2, later_s=5)
    watcher.judge(sure_of(guessed))
    watcher.book.pass_time(watcher.now + 400, seen_at=watcher.now + 400, problem=None)
    assert watcher.counted == {"key-guess": (2, 0)}
    assert [each[0] for each in watcher.told] == ["new", "changed"]


def test_a_death_whose_best_guess_is_the_cause_of_a_case_is_counted_beside_it():
    """Its exit speaks for that case, and not loudly enough to count as one of its deaths."""
    watcher = Watcher()
    guess = unsure("key-guess")
    watcher.learn(1, 2)
    watcher.judge(sure_of(guess.top.id))
    watcher.learn(3)
    watcher.judge(guess)
    assert list(watcher.counted.values()) == [(2, 1)]


def test_a_standstill_whose_cause_becomes_known_is_one_case():
    """It was told without a cause, and says then that this is found."""
    watcher = Watcher()
    for diagnosis in (unsure("key-guess"), sure_of("standstill.unschedulable")):
        watcher.book.conclude([incident(diagnosis=diagnosis)], (), watcher.now)
    watcher.book.pass_time(watcher.now + 400, seen_at=watcher.now + 400, problem=None)
    assert [each[:2] for each in watcher.told] == [
        ("new", unsure().top.id),
        ("changed", "standstill.unschedulable"),
    ]
