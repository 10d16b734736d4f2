"""
A death that was told is judged again when more becomes known of it.
"""

from __future__ import annotations

from attrs import evolve

from support.alerts import CLUSTER, SETTINGS, START, incident, sure_of, watched
from workerdiag.model.evidence import ProcessExit
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.deaths import Cursor, FeedBatch
from workerdiag.watch.store import Store

FIRST, LATER = sure_of("nanny.memory-terminate"), sure_of("kernel.oom-killer")


class Watcher:
    """
    A casebook, and a judge that says what it is told to.
    """

    def __init__(self):
        self.store = Store.open(None)
        self.book = Casebook(
            store=self.store,
            settings=SETTINGS,
            sink_names=lambda: ["a sink"],
            wake=lambda: None,
            cluster=CLUSTER,
        )
        self.now = START

    def learn(self, *numbers, later_s=0.0):
        """
        The feed tells of these deaths, for the first time or with more evidence.
        """
        self.now += later_s
        deaths = tuple(known_death(number) for number in numbers)
        self.book.receive(
            FeedBatch(cluster=CLUSTER, cursor=Cursor(epoch="e", position=1), now=self.now, deaths=deaths)
        )

    def judge(self, diagnosis):
        """
        All that is to be judged died of one cause.
        """
        deaths = self.book.to_judge()
        self.book.conclude([incident(*deaths, diagnosis=diagnosis)], deaths, self.now)
        assert self.book.to_judge() == ()

    @property
    def told(self):
        """
        Reason, cause, and number of deaths of each notice.
        """
        notices = [each.notice for each in self.store.deliveries()]
        return [(each.reason, each.cause, each.death_count) for each in notices]


def known_death(number):
    """
    A death with some evidence.
    """
    death = watched(number)
    return evolve(death, evidence=(ProcessExit(identity=death.identity, signal=9, when=START),))


def test_late_evidence_changes_what_a_case_says():
    """
    The case keeps its key and its deaths, and says what is now thought.
    """
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
    """
    One death of many that is seen in another light is no news of the case.
    """
    watcher = Watcher()
    watcher.learn(1, 2, 3)
    watcher.judge(FIRST)
    watcher.learn(1, later_s=400)
    watcher.judge(LATER)
    assert watcher.told == [("new", "nanny.memory-terminate", 3)]


def test_new_deaths_beside_late_evidence_open_their_own_case():
    """
    What is new counts as new, what was told is not counted again.
    """
    watcher = Watcher()
    watcher.learn(1)
    watcher.judge(FIRST)
    watcher.learn(1, 2, later_s=400)
    watcher.judge(LATER)
    assert watcher.told == [
        ("new", "nanny.memory-terminate", 1),
        ("changed", "kernel.oom-killer", 1),
        ("new", "kernel.oom-killer", 1),
    ]


def test_what_comes_again_unchanged_is_no_news():
    """
    A feed that repeats itself, as after a restart, makes nobody hear twice.
    """
    watcher = Watcher()
    for _ in range(3):
        watcher.learn(1, 2, later_s=400)
        watcher.judge(FIRST)
    assert watcher.told == [("new", "nanny.memory-terminate", 2)]
