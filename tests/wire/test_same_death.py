"""
Which of the recorder's messages describe the same death, for everybody who asks.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.death_records import NOW, nanny_report, scheduler_record, worker_address
from workerdiag.pipeline import diagnose
from workerdiag.recorder.scheduler.ring import DeathRing
from workerdiag.rulebook import load_rulebook
from workerdiag.sources.recorder.evidence import death_evidence
from workerdiag.sources.recorder.selection import RecordedDeath, deaths_from_messages
from workerdiag.wire.same_death import DeathIdentity, is_known_death, same_death

BOOK = load_rulebook()
ELSEWHERE, OTHER_NANNY = "tcp://10.0.0.5:1001", "tcp://10.0.0.5:9001"
HOUR = 3600.0


def record(**changes):
    """
    What the scheduler recorded.
    """
    return scheduler_record(**{"pid": 7, "when": NOW, **changes})


def report(**changes):
    """
    What the nanny of that worker reported.
    """
    return nanny_report(**{"pid": 7, "when": NOW + 0.05, **changes})


STALE = worker_address(2)

#: Messages, and how many deaths they describe.
PAIRS = {
    "plain": ((record(), report()), 1),
    "neither nanny nor pid known to both": ((record(nanny=None), report(pid=None)), 1),
    "a box found an hour later": ((record(), report(source="orphan", when=NOW + HOUR)), 1),
    "delivered late": ((record(), report(late=True, when=NOW + HOUR)), 1),
    "a clock 90 s ahead": ((record(), report(when=NOW + 90)), 1),
    "a pid alone": ((record(), report(worker=None, nanny=None)), 2),
    "the same pid on two hosts": ((record(), report(worker=ELSEWHERE, nanny=OTHER_NANNY)), 2),
    "the next process on the same port": ((record(), report(pid=8, when=NOW + 10)), 2),
    "the address before, minutes apart": ((record(), report(worker=STALE, when=NOW + 500)), 1),
    "the pid used again": ((record(), report(worker=STALE, when=NOW + 1200)), 2),
    "a pid as text": ((record(), report(pid="7")), 1),
    "the address before, and who finds the box": (
        (record(), report(worker=STALE), report(source="orphan", worker=STALE, nanny=None, when=NOW + 2)),
        1,
    ),
    "another start of the machine": ((report(boot_id="one"), report(boot_id="two", source="orphan")), 2),
    "machines of one address": ((report(host="one"), report(host="two", source="orphan")), 2),
    "no time": ((record(), report(when=None)), 1),
    "no worker": ((record(), report(worker=None)), 1),
    "another nanny": ((record(), report(nanny=OTHER_NANNY)), 1),
    "the scheduler's name of the host": ((record(host="10.0.0.4"), report(host="node-4")), 1),
}

#: Logs name a process by its pid alone, evidence has no host name, and a third message needs the second.
ONLY_OF_MESSAGES = {"a pid alone", "machines of one address", "the address before, and who finds the box"}


def deaths_in_ring(messages):
    """
    How many deaths the scheduler's ring makes of them.
    """
    ring = DeathRing()
    for each in messages:
        (ring.add_removal if each["source"] == "scheduler" else ring.report)(each)
    return len(ring)


def deaths_in_events(messages):
    """
    How many deaths a client makes of them.
    """
    return len(deaths_from_messages([(each["when"] or NOW, each) for each in messages]).deaths)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [deaths_in_ring, deaths_in_events])
def test_scheduler_and_client_count_the_same_deaths(name, count):
    """
    In whatever order the messages come, both find as many deaths as there were.
    """
    messages, deaths = PAIRS[name]
    assert count(messages) == count(messages[::-1]) == deaths


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - ONLY_OF_MESSAGES))
def test_a_diagnosis_counts_the_same_deaths(name):
    """
    Deaths that come one by one, as from two files, are joined as the recorder joins its messages.
    """
    messages, deaths = PAIRS[name]
    alone = [
        RecordedDeath(record=each, report={})
        if each["source"] == "scheduler"
        else RecordedDeath(record={}, report=each)
        for each in messages
    ]
    assert len(diagnose(list(death_evidence(alone)), BOOK).deaths) == deaths


def few(*values):
    """
    One of these, or unknown.
    """
    return st.sampled_from([None, *values])


IDENTITIES = st.builds(
    DeathIdentity,
    worker=few("a", "b"),
    pid=few(7, 8),
    nanny=few("n", "m"),
    boot_id=few("1", "2"),
    host=few("h", "i"),
    noticed_at=st.none() | st.floats(0.0, 2000.0),
    found_later=st.booleans(),
)


@given(one=IDENTITIES, other=IDENTITIES)
def test_the_order_does_not_matter(one, other):
    """
    If one is the same death as the other, the other is the same as the one.
    """
    assert same_death(one, other) == same_death(other, one)
    assert one.conflicts_with(other) == other.conflicts_with(one)


@given(one=IDENTITIES, other=IDENTITIES)
def test_a_conflict_settles_it(one, other):
    """
    What differs in pid, host or start of the machine is never the same death, whatever else is equal.
    """
    assert not (one.conflicts_with(other) and (same_death(one, other) or is_known_death([one], other)))


def test_what_is_known_in_parts_conflicts_as_a_whole():
    """
    A record without a pid takes no second process, once a report has said which it was.
    """
    known = [DeathIdentity(worker="a"), DeathIdentity(worker="a", pid=7)]
    assert is_known_death(known, DeathIdentity(worker="a", pid=7))
    assert not is_known_death(known, DeathIdentity(worker="a", pid=8))


@given(
    st.dictionaries(
        st.sampled_from(["worker", "pid", "nanny", "boot_id", "host", "when", "source", "late"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=1),
    )
)
def test_any_message_has_an_identity(message):
    """
    Messages come over the network; whatever they hold, they compare.
    """
    identity = DeathIdentity.from_message({"when": 10**400, **message})
    assert same_death(identity, identity) in (True, False)
