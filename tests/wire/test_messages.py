"""Which of the recorder's messages describe the same death, for everybody who asks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.death_records import NOW, decoded, found_report, nanny_report, scheduler_record, worker_address
from workerdiag.model.evidence import Inspected
from workerdiag.pipeline import diagnose
from workerdiag.recorder.deaths import DeathRing
from workerdiag.rulebook.load import load_rulebook
from workerdiag.sources.recorder.death_evidence import death_evidence
from workerdiag.sources.recorder.records import RecordCollection, parse_record
from workerdiag.wire.messages import DeathIdentity, decode_message, is_known_death, same_death
from workerdiag.wire.recorded_death import RecordedDeath, merge_messages

BOOK = load_rulebook()
ELSEWHERE, OTHER_NANNY = "tcp://10.0.0.5:1001", "tcp://10.0.0.5:9001"
HOUR = 3600.0


def record(**changes):
    """What the scheduler recorded."""
    return scheduler_record(**{"pid": 7, "noticed_at": NOW, **changes})


def report(**changes):
    """What the nanny of that worker reported."""
    return nanny_report(**{"pid": 7, "noticed_at": NOW + 0.05, **changes})


def found(at=NOW, **changes):
    """What the finder of its box reported."""
    return found_report(**{"pid": 7, "last_written_at": at, **changes})


STALE = worker_address(2)

#: Messages, and how many deaths they describe.
PAIRS = {
    "plain": ((record(), report()), 1),
    "neither nanny nor pid known to both": ((record(nanny_address=None), report(pid=None)), 1),
    "a box found an hour later": ((record(), found(NOW + HOUR)), 1),
    "delivered late": ((record(), report(is_late=True, noticed_at=NOW + HOUR)), 1),
    "a clock 90 s ahead": ((record(), report(noticed_at=NOW + 90)), 1),
    "a pid alone": ((record(), report(worker_address=None, nanny_address=None)), 2),
    "the same pid on two hosts": ((record(), report(worker_address=ELSEWHERE, nanny_address=OTHER_NANNY)), 2),
    "the next process on the same port": ((record(), report(pid=8, noticed_at=NOW + 10)), 2),
    "the address before, minutes apart": ((record(), report(worker_address=STALE, noticed_at=NOW + 500)), 1),
    "the pid used again": ((record(), report(worker_address=STALE, noticed_at=NOW + 1200)), 2),
    "a pid as text": ((record(), report(pid="7")), 1),
    "the address before, and who finds the box": (
        (record(), report(worker_address=STALE), found(NOW + 2, worker_address=STALE, nanny_address=None)),
        1,
    ),
    "another start of the machine": ((report(boot_id="one"), found(boot_id="two")), 2),
    "machines of one address": ((report(hostname="one"), found(hostname="two")), 2),
    "no time": ((record(), report(noticed_at=None)), 1),
    "no worker": ((record(), report(worker_address=None)), 1),
    "another nanny": ((record(), report(nanny_address=OTHER_NANNY)), 1),
    "the scheduler's name of the host": ((record(address_host="10.0.0.4"), report(hostname="node-4")), 1),
}

#: Logs name a process by its pid alone, evidence has no host name, and a third message needs the second.
ONLY_OF_MESSAGES = {"a pid alone", "machines of one address", "the address before, and who finds the box"}


def deaths_in_ring(messages):
    """How many deaths the scheduler's ring makes of them."""
    ring = DeathRing()
    for each in messages:
        ring.add(decode_message(each))
    return len(list(ring))


def deaths_in_topic(messages):
    """How many deaths a client makes of them."""
    return len(merge_messages(map(decode_message, messages)))


def deaths_in_file(messages):
    """How many deaths the reader of a file makes of them."""
    records = RecordCollection(about=[each["worker_address"] for each in messages])
    for each in messages:
        records.add(parse_record(json.dumps(each).encode()))
    return len([each for each in records.evidence() if isinstance(each, Inspected)])


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [deaths_in_ring, deaths_in_topic, deaths_in_file])
def test_scheduler_client_and_file_count_the_same_deaths(name, count):
    """In whatever order the messages come, all find as many deaths as there were."""
    messages, deaths = PAIRS[name]
    assert count(messages) == count(messages[::-1]) == deaths


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - ONLY_OF_MESSAGES))
def test_a_diagnosis_counts_the_same_deaths(name):
    """Deaths that come one by one, as from two files, are joined as the recorder joins its messages."""
    messages, deaths = PAIRS[name]
    alone = [RecordedDeath.of(decode_message(each)) for each in messages]
    assert len(diagnose(list(death_evidence(alone)), BOOK).deaths) == deaths


@pytest.mark.parametrize("messages", [(report(), found()), (found(), report())])
def test_a_nanny_s_report_wins_over_that_of_who_finds_the_box(messages):
    """Only the nanny knows the exit, whoever comes first."""
    ring = DeathRing()
    for each in messages:
        ring.add(decoded(each))
    (kept,), (merged,) = ring, merge_messages(map(decoded, messages))
    assert kept == merged == RecordedDeath.of(decoded(report()))


def test_of_two_reports_of_a_nanny_the_first_counts():
    """In the scheduler's memory as in a file."""
    messages = [decoded(report()), decoded(report(exit={"signal": 9}))]
    ring = DeathRing()
    assert [ring.add(each) for each in messages] == [True, False]
    assert list(ring) == list(merge_messages(messages)) == [RecordedDeath.of(messages[0])]


def few(*values):
    """One of these, or unknown."""
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
    """If one is the same death as the other, the other is the same as the one."""
    assert same_death(one, other) == same_death(other, one)
    assert one.conflicts_with(other) == other.conflicts_with(one)


@given(one=IDENTITIES, other=IDENTITIES)
def test_a_conflict_settles_it(one, other):
    """What differs in pid, host or start of the machine is never the same death, whatever else is equal."""
    assert not (one.conflicts_with(other) and (same_death(one, other) or is_known_death([one], other)))


def test_what_is_known_in_parts_conflicts_as_a_whole():
    """A record without a pid takes no second process, once a report has said which it was."""
    known = [DeathIdentity(worker="a"), DeathIdentity(worker="a", pid=7)]
    assert is_known_death(known, DeathIdentity(worker="a", pid=7))
    assert not is_known_death(known, DeathIdentity(worker="a", pid=8))
