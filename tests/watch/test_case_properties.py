"""What holds for a case whatever happens to it, in any order."""

from __future__ import annotations

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from support.alerts import CLUSTER, SETTINGS, START, incident, sure_of, watched
from workerdiag.watch.case import ended, rejudged, with_incident, with_time

SURE = {cause: sure_of(cause) for cause in ("nanny.memory-terminate", "kernel.oom-killer")}
HOSTS = [f"10.0.0.{number}" for number in range(9)]

#: Seconds that pass, and what happens then.
PAUSES = st.sampled_from([0.0, 1.0, 30.0, 60.0, 119.0, 121.0, 600.0, 5000.0, 90_000.0, 8 * 86_400.0])
HAPPENINGS = st.one_of(
    st.tuples(st.just("deaths"), st.integers(1, 40), st.sampled_from(HOSTS)),
    st.tuples(st.just("rejudged"), st.sampled_from(sorted(SURE)), st.just("")),
    st.tuples(st.just("seen"), st.just(0), st.just("")),
    st.tuples(st.just("seen"), st.just(0), st.just("")),
    st.tuples(st.just("unseen"), st.just(0), st.just("")),
    st.tuples(st.just("ended"), st.just(0), st.just("")),
)


@define
class Life:
    """One case, what was said of it, and by another count for how long it was seen alive without a death."""

    now: float = START
    seen_at: float = START
    case: object = None
    quiet_s: float = 0.0
    #: Each reason with the number of the notice, and whether enough was seen when it was said.
    said: list = field(factory=list)

    def let(self, pause, happening):
        """Let time pass, and something happen."""
        self.now += pause
        kind, what, where = happening
        before = self.case
        if kind == "deaths":
            deaths = [watched(number, when=self.now, host=where) for number in range(what)]
            self.case, reason = with_incident(self.case, incident(*deaths), CLUSTER, self.now, SETTINGS)
            self.quiet_s, self.seen_at = 0.0, self.now
        elif self.case is None:
            return
        elif kind == "rejudged":
            judged = incident(watched(when=self.now), diagnosis=SURE[what])
            self.case, reason = rejudged(self.case, judged, self.now, SETTINGS)
        elif kind == "ended":
            self.case, reason = ended(self.case, self.now)
        else:
            if kind == "seen":
                step_s = self.now - self.seen_at
                self.quiet_s += step_s if step_s <= SETTINGS.blind_s else 0.0
                self.seen_at = self.now
            self.case, reason = with_time(self.case, self.now, seen_at=self.seen_at, settings=SETTINGS)
        if reason is not None:
            self.said.append((reason, self.case.sequence, self.now, self.quiet_s))
        else:
            assert before.sequence == self.case.sequence


@given(st.lists(st.tuples(PAUSES, HAPPENINGS), max_size=60))
def test_whatever_happens_a_case_keeps_its_word(happenings):
    """Each opening is told first and closed at most once, and nothing is resolved unseen.

    Numbers go up by one; what only adds to a notice keeps its distance to it.
    """
    life = Life()
    for pause, happening in happenings:
        life.let(pause, happening)
    assert [number for _, number, _, _ in life.said] == list(range(1, len(life.said) + 1))
    is_open, last_at = False, 0.0
    for reason, _, now, quiet_s in life.said:
        assert is_open is (reason not in ("new", "recurring"))
        is_open = reason not in ("resolved", "ended")
        assert reason != "resolved" or quiet_s >= SETTINGS.resolve_s
        assert reason not in ("escalating", "changed") or now - last_at >= SETTINGS.collect_s
        last_at = now


@given(st.lists(st.tuples(PAUSES, st.integers(1, 30), st.sampled_from(HOSTS)), min_size=1, max_size=40))
def test_each_level_is_told_at_most_once(deaths):
    """However deaths come, an opening escalates no more often than deaths and hosts have levels."""
    life = Life()
    for pause, count, host in deaths:
        life.let(min(pause, 600.0), ("deaths", count, host))
    assert [reason for reason, *_ in life.said].count("new") == 1
    escalations = [reason for reason, *_ in life.said].count("escalating")
    assert escalations <= 3 + 4  # at most 1,200 deaths at once, on at most 9 hosts
