"""The life of a case, by an injected clock."""

from __future__ import annotations

import pytest
from attrs import evolve

from support.alerts import CLUSTER, SETTINGS, START, incident, opened, sure_of, unsure, watched
from workerdiag.watch.case import (
    blind_case,
    case_id,
    ended,
    rejudged,
    settling_case,
    with_incident,
    with_time,
)

#: How often a watcher looks in these tests.
TICK_S = 30.0


def let_pass(case, seconds, *, begin, seen=True):
    """The case after *seconds* of looking, what was said, and the time."""
    said, now, seen_at = [], begin, begin
    while now < begin + seconds:
        now += TICK_S
        seen_at = now if seen else seen_at
        case, reason = with_time(case, now, seen_at=seen_at, settings=SETTINGS)
        said += [reason] if reason else []
    return case, said, now


def test_the_first_incident_is_news():
    """A case opens with its first incident, tells it at once, and names the first victim."""
    case, reason = with_incident(
        None, incident(watched(1), watched(2, when=START + 1)), CLUSTER, START + 10, SETTINGS
    )
    assert (reason, case.state, case.sequence, case.death_count) == ("new", "firing", 1, 2)
    assert (case.first_victim, case.hosts) == ("tcp://10.0.0.4:10001", frozenset({"10.0.0.4"}))
    assert (case.opened_at, case.last_death_at) == (START, START + 1)


def test_a_repeat_is_counted_in_silence():
    """One more death of the same key is no news."""
    case, reason = with_incident(opened(), incident(watched(2)), CLUSTER, START + 3600, SETTINGS)
    assert (reason, case.death_count, case.sequence) == (None, 2, 1)


def test_the_id_is_the_same_for_whoever_watches():
    """Cluster and key make the id; two watchers agree on it."""
    assert opened().id == case_id(CLUSTER, sure_of().fingerprint) != case_id("dev", sure_of().fingerprint)


def test_a_quiet_quarter_of_an_hour_resolves():
    """A case is resolved once, after fifteen minutes without a death on a cluster that is seen alive."""
    case, said, now = let_pass(opened(), 870, begin=START)
    assert (said, case.state) == ([], "firing")
    case, said, _ = let_pass(case, 24 * 3600, begin=now)
    assert (said, case.state) == (["resolved"], "resolved")


def test_silence_of_a_cluster_that_is_not_seen_resolves_nothing():
    """While nobody can see, nothing is resolved."""
    case, said, now = let_pass(opened(), 24 * 3600, begin=START, seen=False)
    assert said == []
    _, said, _ = let_pass(case, 1000, begin=now)
    assert said[-1] == "resolved"


def test_a_gap_in_what_was_seen_does_not_count():
    """Ten minutes seen, an hour not, and four minutes seen are no quarter of an hour."""
    case, said, now = let_pass(opened(), 600, begin=START)
    case, more, _ = let_pass(case, 240, begin=now + 3600)
    assert (said, more, case.state) == ([], [], "firing")


def test_a_death_begins_the_quarter_of_an_hour_again():
    """What was quiet before a death does not count."""
    case, _, now = let_pass(opened(), 840, begin=START)
    case, _ = with_incident(case, incident(watched(2, when=now)), CLUSTER, now, SETTINGS)
    case, said, _ = let_pass(case, 840, begin=now)
    assert (said, case.state) == ([], "firing")


@pytest.mark.parametrize(
    ("later_s", "reason", "state"), [(86_400, "recurring", "recurring"), (8 * 86_400, "new", "firing")]
)
def test_a_resolved_case_comes_back(later_s, reason, state):
    """Within seven days it is the old trouble again, later a new one; the numbers of its notices go on."""
    case, _, now = let_pass(opened(), 1000, begin=START)
    again, said = with_incident(case, incident(watched(9, when=now + later_s)), CLUSTER, now + later_s, SETTINGS)
    assert (said, again.state, again.id) == (reason, state, case.id)
    assert (again.sequence, again.death_count, again.first_victim) == (3, 1, "tcp://10.0.0.4:10009")


def test_ten_times_the_deaths_escalate_once():
    """Ten times the deaths of the first incident are told once, a hundred times once more."""
    case, said, now = opened(), [], START
    for count in (5, 5, 5, 90):
        now += 400
        deaths = [watched(number, when=now) for number in range(count)]
        for batch in (deaths[:2], deaths[2:]):
            case, reason = with_incident(case, incident(*batch), CLUSTER, now, SETTINGS)
            said.append(reason)
    assert said == [None] * 7 + ["escalating"]
    deaths = [watched(number, when=now + 400) for number in range(100)]
    case, reason = with_incident(case, incident(*deaths), CLUSTER, now + 400, SETTINGS)
    assert (reason, case.state) == ("escalating", "escalating")


def test_twice_the_hosts_escalate():
    """A trouble that spreads to twice the hosts is told, but not within five minutes of the last word."""
    case, reason = with_incident(opened(), incident(watched(2, host="10.0.0.5")), CLUSTER, START + 60, SETTINGS)
    assert reason is None
    _, said, _ = let_pass(case, 600, begin=START + 60)
    assert said == ["escalating"]


def test_late_evidence_that_makes_another_cause_sure_is_told_once():
    """The case keeps its key; a cause that was told before is no news again."""
    case, now, said = opened(), START, []
    for cause in ("kernel.oom-killer", "nanny.memory-terminate", "kernel.oom-killer"):
        now += 400
        case, reason = rejudged(case, incident(watched(), diagnosis=sure_of(cause)), now, SETTINGS)
        said.append(reason)
        assert (case.cause, case.key, case.death_count) == (cause, sure_of().fingerprint, 1)
    assert said == ["changed", None, None]


def test_the_first_cause_that_late_evidence_makes_sure_is_told():
    """People who heard that the cause is unknown hear what it is, once."""
    case, _ = with_incident(None, incident(watched(), diagnosis=unsure()), CLUSTER, START, SETTINGS)
    now_sure = incident(watched(), diagnosis=sure_of())
    case, reason = rejudged(case, now_sure, START + 400, SETTINGS)
    assert (reason, case.progress.told_causes) == ("changed", (sure_of().top.id,))
    assert rejudged(case, now_sure, START + 800, SETTINGS)[1] is None


def test_doubt_is_no_change():
    """A sure cause that becomes unsure is not told."""
    case, reason = rejudged(opened(), incident(watched(), diagnosis=unsure()), START + 4000, SETTINGS)
    assert (reason, case.what[:13]) == (None, "cause unknown")


def test_deaths_that_settle_are_shown():
    """What is shown while evidence arrives has no key yet; deliberate stops do not even settle."""
    assert settling_case(CLUSTER, [watched(is_expected=True)]) is None
    waiting = settling_case(CLUSTER, [watched(1), watched(2, is_expected=True)])
    assert waiting is not None
    assert (waiting.state, waiting.death_count) == ("settling", 1)


def test_a_cluster_that_went_is_ended_and_not_resolved():
    """The end of the cluster ends open cases once, and no other."""
    case, reason = ended(opened(), START + 60)
    assert (reason, case.state) == ("ended", "ended")
    assert ended(case, START + 70) == (case, None)
    assert let_pass(case, 3600, begin=START + 70)[1] == []


def test_an_hour_without_a_scheduler_is_one_word_and_one_more():
    """One notice that nobody can see, and one that it is seen again."""
    case = blind_case(CLUSTER, START, "the scheduler has not answered for 2 minutes")
    assert (case.state, case.sequence) == ("firing", 1)
    case, said, now = let_pass(case, 3600, begin=START, seen=False)
    assert said == []
    assert blind_case(CLUSTER, now, "still", case) is case
    case, said, now = let_pass(case, 3600, begin=now)
    assert (said, case.state, case.sequence) == (["resolved"], "resolved", 2)
    assert blind_case(CLUSTER, now, "again", case).sequence == 3


def test_a_standstill_goes_on_and_ends_as_deaths_do():
    """A standstill is a case without deaths: told once, resolved when it was not seen for a while."""
    stands = incident(diagnosis=sure_of("standstill.no-workers"))
    case, reason = with_incident(None, stands, CLUSTER, START, SETTINGS)
    assert (reason, case.death_count) == ("new", 0)
    case, reason = with_incident(case, evolve(stands, when=START + 600), CLUSTER, START + 600, SETTINGS)
    assert reason is None
    assert let_pass(case, 1000, begin=START + 600)[1] == ["resolved"]


def test_a_clock_that_was_set_back_holds_nothing_up_for_good():
    """After the clock was set back by a day, a quiet quarter of an hour still resolves."""
    _, said, _ = let_pass(opened(now=START + 86_400), 1200, begin=START)
    assert said == ["resolved"]
