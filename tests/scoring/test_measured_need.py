"""What a replay's number changes in a diagnosis."""

from __future__ import annotations

import pytest
from attrs import evolve

from support.findings import explained
from workerdiag import Diagnosis
from workerdiag.model.diagnosis import RetryPolicy
from workerdiag.model.memory import Cure, MemoryAccount, MemoryTerm
from workerdiag.model.replay import ThreadNeed
from workerdiag.replay.outcome import Replay, ReplayedTask

MB = 10**6
GUESSED = Cure(kind="worker-memory", value=800 * MB, do="Guess", change="memory", why="a guess", probability=0.4)
SMALLER = Cure(kind="piece-size", value=50 * MB, do="Cut", change="chunks", why="a sum", probability=0.6)
REPLAY = Replay(
    verdict="only-in-company",
    task="work-3",
    tasks=(ReplayedTask(key="work-3", end="returned", base_bytes=70 * MB, peak_bytes=330 * MB),),
    limit_bytes=400 * MB,
    peak_bytes=330 * MB,
    needs_memory_bytes=620 * MB,
    table=(ThreadNeed(threads=1, memory_bytes=350 * MB), ThreadNeed(threads=2, memory_bytes=620 * MB)),
)


@pytest.fixture
def diagnosis():
    """A death for memory, with cures that were worked out."""
    findings = explained(
        memory=MemoryAccount(limit=MemoryTerm(bytes=400 * MB, origin="the nanny")), cures=(GUESSED, SMALLER)
    )
    facts = {each.name: getattr(findings, each.name) for each in findings.__attrs_attrs__}
    made = Diagnosis(**facts)
    policy = RetryPolicy(action="do-not-retry", reason="it would fail again")
    return evolve(made, decision=evolve(made.decision, needs_memory_bytes=None, policy=policy))


def test_a_measured_number_takes_the_place_of_what_was_worked_out(diagnosis):
    """In the decision, in the account and in the cures; fewer threads come first, as they cost nothing."""
    told = diagnosis.with_replay(REPLAY)
    assert told.decision.needs_memory_bytes == 620 * MB
    assert told.memory.measured.bytes == 260 * MB
    assert [each.kind for each in told.cures] == ["threads", "worker-memory", "piece-size"]
    assert told.cures[0].value == 1
    assert told.cures[1].value >= 620 * MB * 1.05
    assert all(each.probability > SMALLER.probability for each in told.cures[:2])
    assert [each.example for each in told.top.mitigations[:3]] == [each.change for each in told.cures]
    assert "work-3" in told.to_text(full=True)


def test_a_program_may_try_again_with_the_measured_memory(diagnosis):
    """Then it is known to be enough."""
    policy = diagnosis.with_replay(REPLAY).decision.policy
    assert (policy.action, policy.max_tries) == ("retry-with-memory", 1)
    assert policy.memory_bytes >= 620 * MB
    asking = evolve(diagnosis, decision=evolve(diagnosis.decision, policy=RetryPolicy()))
    assert asking.with_replay(REPLAY).decision.policy == RetryPolicy()


@pytest.mark.parametrize(
    "replay",
    [
        evolve(REPLAY, verdict="does-not-kill"),
        evolve(REPLAY, verdict="cannot-replay", obstacle="incomplete"),
        evolve(REPLAY, verdict="kills-alone", needs_memory_bytes=None, needs_more_than_bytes=900 * MB),
    ],
    ids=["it does not kill", "no replay", "a lower bound"],
)
def test_a_replay_without_a_number_changes_nothing(diagnosis, replay):
    """A number is enough, or it is not given."""
    assert diagnosis.with_replay(replay) is diagnosis


def test_no_fewer_threads_are_advised_where_one_task_is_too_large(diagnosis):
    """Only the memory is."""
    table = tuple(evolve(each, memory_bytes=each.memory_bytes + 100 * MB) for each in REPLAY.table)
    told = diagnosis.with_replay(evolve(REPLAY, verdict="kills-alone", needs_memory_bytes=720 * MB, table=table))
    assert [each.kind for each in told.cures] == ["worker-memory", "piece-size"]


def test_a_diagnosis_with_a_replay_round_trips(diagnosis):
    """As JSON."""
    told = diagnosis.with_replay(REPLAY)
    assert Diagnosis.from_json(told.to_json()) == told
