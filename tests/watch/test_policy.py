"""What goes out, what is held back, and that nothing is forgotten on the way."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from support.alerts import CLUSTER, START, opened
from support.sample_secrets import WORD
from workerdiag.errors import QuietHoursError
from workerdiag.watch.notices import TITLE_CHARS, notice_of
from workerdiag.watch.policy import (
    KnownIssue,
    NoticePolicy,
    PolicyState,
    QuietHours,
    apply_policy,
    due_digest,
    new_silence,
)

HOUR_S = 3600.0
CAUSE = "nanny.memory-terminate"
#: 22:00 to 07:00 in Berlin; `START` is 11:02 there.
NIGHT = QuietHours.parse("22:00-07:00 Europe/Berlin")


def note(reason="new", case_id="case-1", **changes):
    """A notice about a case."""
    return evolve(notice_of(opened(), reason, START), case_id=case_id, **changes)


def said(notices, policy, *, state=None, begin=START, step_s=1.0):
    """The state after *notices*, one after the other, and the reasons of those that went out."""
    state, reasons, now = state or PolicyState(), [], begin
    for each in notices:
        state, sent = apply_policy(each, state, policy, now)
        reasons += [sent.reason] if sent else []
        now += step_s
    return state, reasons


def test_without_a_policy_everything_goes_out():
    """A notice that nobody minds is sent as it is."""
    state, sent = apply_policy(note(), PolicyState(), NoticePolicy(), START)
    assert sent == note()
    assert (state.held, state.untold) == ((), frozenset())


@pytest.mark.parametrize("matches", ["case-1", "nanny.*", CLUSTER, "key-nanny*", "*"])
def test_a_silence_holds_back_what_it_matches(matches):
    """A case, a key, a cause or a cluster is silent until the end of the silence."""
    silence = new_silence(matches, until=START + HOUR_S, reason="we know", now=START)
    policy = NoticePolicy(silences=(silence,))
    state, reasons = said([note(), note("reminder")], policy)
    assert reasons == []
    assert [(each.hold, each.count, each.reasons) for each in state.held] == [("silenced", 2, ("new", "reminder"))]
    assert said([note("reminder")], policy, begin=START + HOUR_S)[1] == ["reminder"]


def test_a_silence_of_something_else_holds_nothing_back():
    """What is not named is told."""
    silence = new_silence("kernel.*", until=START + HOUR_S, reason="we know", now=START)
    assert said([note()], NoticePolicy(silences=(silence,)))[1] == ["new"]


def test_what_was_told_is_closed_whatever_holds():
    """The end of a case that people know of passes silence, quiet hours and rate limit."""
    state, _ = said([note()], NoticePolicy(most_notices=1))
    silence = new_silence("*", until=START + HOUR_S, reason="we know", now=START)
    policy = NoticePolicy(silences=(silence,), most_notices=1, quiet_hours=QuietHours.parse("00:00-23:59 UTC"))
    assert said([note("resolved")], policy, state=state)[1] == ["resolved"]


def test_the_end_of_what_nobody_heard_of_is_not_told():
    """A case that opened in silence closes in silence, also after the silence ended."""
    silence = new_silence("*", until=START + HOUR_S, reason="we know", now=START)
    policy = NoticePolicy(silences=(silence,))
    state, _ = said([note()], policy)
    state, reasons = said([note("resolved")], policy, state=state, begin=START + 2 * HOUR_S)
    assert (reasons, state.untold) == ([], frozenset())
    assert [each.hold for each in state.held] == ["silenced", "untold"]


def test_too_many_notices_wait_for_one_digest():
    """Past the limit notices are counted by case and reason, and listed in one notice an hour later."""
    policy = NoticePolicy(most_notices=3)
    cases = [note(case_id=f"case-{number}", title=f"trouble {number}") for number in range(5)]
    state, reasons = said([*cases, evolve(cases[4], reason="reminder")], policy)
    assert reasons == ["new"] * 3
    assert due_digest(CLUSTER, state, policy, START + 1800).notice is None
    after, digest = due_digest(CLUSTER, state, policy, START + 2 * HOUR_S)
    assert digest is not None
    assert (digest.reason, digest.title) == ("digest", "prod: 3 notices about 2 cases were held back")
    assert "- trouble 3: 1 notice (new); too many notices were sent" in digest.text
    assert "- trouble 4: 2 notices (new, reminder); too many notices were sent" in digest.text
    assert due_digest(CLUSTER, after, policy, START + 9 * HOUR_S).notice is None
    assert said([note("resolved", "case-4")], policy, state=after)[1] == ["resolved"]


def test_the_limit_is_one_of_a_window():
    """An hour later there is room again."""
    policy = NoticePolicy(most_notices=2)
    assert said([note()] * 10, policy, step_s=HOUR_S / 2)[1] == ["new"] * 10
    assert said([note()] * 10, policy, step_s=HOUR_S / 4)[1] == ["new"] * 6


def test_each_digest_has_an_id_of_its_own():
    """A receiver that drops repeats does not drop the second digest."""
    policy, state, ids = NoticePolicy(most_notices=1, digest_s=0.0), PolicyState(), set()
    for _ in range(3):
        state, _ = said([note(), note("reminder")], policy, state=state)
        state, digest = due_digest(CLUSTER, state, policy, START + 1)
        ids.add(digest.id)
    assert len(ids) == 3


def test_the_night_is_quiet_and_the_morning_has_a_digest():
    """In quiet hours notices wait; the digest comes as soon as they are over, by the clocks of that place."""
    policy = NoticePolicy(quiet_hours=NIGHT)
    evening = datetime(2026, 11, 21, 21, 30, tzinfo=UTC).timestamp()  # 22:30 in Berlin
    state, reasons = said([note()], policy, begin=evening)
    assert reasons == []
    assert due_digest(CLUSTER, state, policy, evening + 8 * HOUR_S).notice is None  # 06:30
    morning = due_digest(CLUSTER, state, policy, evening + 8.5 * HOUR_S).notice  # 07:00
    assert morning is not None
    assert "quiet hours" in morning.text


def test_blindness_waits_for_no_morning_and_no_rate_limit():
    """Silence would look like health. Who asked for silence has it all the same."""
    night = START + 12 * HOUR_S
    policy = NoticePolicy(quiet_hours=NIGHT, most_notices=1)
    _, reasons = said([note(), note("blind", "case-2"), note("resolved", "case-2")], policy, begin=night)
    assert reasons == ["blind", "resolved"]
    _, reasons = said([note(), note("blind", "case-2")], NoticePolicy(most_notices=1))
    assert reasons == ["new", "blind"]
    silence = new_silence("case-2", until=START + HOUR_S, reason="a move", now=START)
    assert said([note("blind", "case-2")], NoticePolicy(silences=(silence,)))[1] == []


def test_summer_time_is_that_of_the_place():
    """The same hour of UTC is quiet in winter and not in summer."""
    assert NIGHT.holds(datetime(2026, 1, 15, 5, 30, tzinfo=UTC).timestamp())
    assert not NIGHT.holds(datetime(2026, 7, 15, 5, 30, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    "text", ["", "22-7 UTC", "25:00-07:00 UTC", "22:00-22:00 UTC", "22:00-07:00", "22:00-07:00 Mars/Olympus"]
)
def test_quiet_hours_that_cannot_be_understood_say_so(text):
    """The message shows how to write them, or which zones there are."""
    with pytest.raises(QuietHoursError, match=r"Europe/Berlin"):
        QuietHours.parse(text)


def test_a_known_issue_is_said_in_the_notice():
    """Title, text and links say that somebody works on it."""
    issue = KnownIssue(cause="nanny.*", note=f"fixed soon; token={WORD}{WORD}", link="https://tracker.example/1")
    policy = NoticePolicy(known_issues=(issue,))
    sent = apply_policy(note(title="x" * TITLE_CHARS), PolicyState(), policy, START).notice
    assert sent is not None
    assert sent.title.startswith("Known issue: xxx")
    assert len(sent.title) <= TITLE_CHARS
    assert "\nKnown issue: fixed soon;" in sent.text
    assert sent.links["issue"] == "https://tracker.example/1"
    assert WORD not in sent.text


def test_a_known_issue_may_ask_for_silence():
    """Its notices are held back, and the daily digest says why."""
    policy = NoticePolicy(known_issues=(KnownIssue(cause=CAUSE, note="fixed soon", hold=True),))
    state, reasons = said([note()], policy)
    assert reasons == []
    assert due_digest(CLUSTER, state, policy, START + 23 * HOUR_S).notice is None
    digest = due_digest(CLUSTER, state, policy, START + 24 * HOUR_S).notice
    assert digest is not None
    assert "a known issue, fixed soon" in digest.text


REASONS = st.sampled_from(["new", "recurring", "escalating", "changed", "reminder", "resolved", "ended", "blind"])
POLICIES = st.builds(
    NoticePolicy,
    silences=st.sampled_from([(), (new_silence("case-[1-3]", until=START + HOUR_S, reason="r", now=START),)]),
    known_issues=st.sampled_from([(), (KnownIssue(cause=CAUSE, note="n", hold=True),)]),
    quiet_hours=st.sampled_from([None, NIGHT]),
    most_notices=st.integers(1, 5),
)


@given(
    POLICIES,
    st.lists(st.tuples(REASONS, st.integers(0, 150), st.sampled_from([0.0, 9.0, HOUR_S, 9 * HOUR_S]))),
)
def test_no_notice_is_lost(policy, happenings):
    """Whatever is decided, each notice was sent, or is counted in a digest that came or will come."""
    state, now, sent, listed = PolicyState(), START, 0, 0
    for reason, number, pause_s in happenings:
        now += pause_s
        before = state
        state, digest = due_digest(CLUSTER, before, policy, now)
        listed += sum(each.count for each in before.held) + before.unlisted_count if digest else 0
        state, notice = apply_policy(note(reason, f"case-{number}"), state, policy, now)
        sent += notice is not None
    waiting = sum(each.count for each in state.held) + state.unlisted_count
    assert sent + listed + waiting == len(happenings)
    if waiting and policy.quiet_hours is None:
        assert due_digest(CLUSTER, state, policy, now + 25 * HOUR_S).notice is not None
