"""What a program may do by itself: only on a sure cause, and never what harms somebody."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from workerdiag.model.diagnosis import Blame, Death
from workerdiag.model.identity import Identity
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.advice import MemoryNumbers
from workerdiag.scoring.blame_and_retry import retry_policy

BOOK = load_rulebook()
CAUSES = [each.id for each in BOOK.causes]


def policy_of(cause_id, *, probability=0.9, lost=(), worth_a_try=None, **blamed):
    """The policy where this cause is the likeliest, and blamed as its rule says."""
    ranked = [SimpleNamespace(id=cause_id, probability=probability)]
    verdict = Blame(**({"verdict": BOOK.cause(cause_id).blame} | blamed))
    numbers = MemoryNumbers(wanted_more_than_bytes=2**32, worth_a_try_bytes=worth_a_try)
    return retry_policy(ranked, BOOK, verdict, lost, numbers)


def dead(cause, *, host=None):
    """A death of which this cause is known, or none."""
    return Death(identity=Identity(host=host), cause=cause, probability=0.95 if cause else 0.0)


#: What a program may do where a rule says whether the same work may be expected to succeed.
ALLOWED = {
    "safe": {"retry", "retry-elsewhere", "ask"},
    "unknown": {"ask"},
    "unsafe": {"do-not-retry"},
}


@pytest.mark.parametrize("cause_id", CAUSES)
def test_each_cause_has_a_policy_that_harms_nobody(cause_id):
    """It follows from the rule alone: whether a retry is safe, who must act, and how workers end."""
    cause = BOOK.cause(cause_id)
    policy = policy_of(cause_id)
    assert policy.action in ALLOWED[cause.retry]
    if policy.action in ("retry", "retry-elsewhere"):
        assert cause.blame not in ("task", "operator", "unknown")
    if policy.action == "retry-elsewhere":
        assert cause.ends in ("killed", "stopped")
    assert policy.reason.startswith(BOOK.cause(cause_id).title)
    assert policy.conditions


@pytest.mark.parametrize("cause_id", CAUSES)
@pytest.mark.parametrize("probability", [0.7, 0.799])
def test_below_80_percent_a_program_asks(cause_id, probability):
    """A likely cause is no licence to act."""
    assert policy_of(cause_id, probability=probability).action == "ask"


def test_80_percent_is_enough():
    """The limit itself is on the sure side."""
    assert policy_of("cloud.spot-interruption", probability=0.8).action == "retry-elsewhere"


def test_without_a_cause_a_program_asks():
    """Where nothing is known, nothing is recommended."""
    assert retry_policy([], BOOK, Blame(), [], MemoryNumbers()).action == "ask"


#: Causes that end a worker at a limit of its own, which can be raised.
AT_A_LIMIT = ("nanny.memory-terminate", "kubernetes.oom-killed", "hpc.oom", "yarn.memory-limit")


@pytest.mark.parametrize("cause_id", AT_A_LIMIT)
def test_a_worker_ended_at_a_known_limit_is_worth_one_try_with_more(cause_id):
    """The size to try is named, and that nobody knows whether it is enough."""
    policy = policy_of(cause_id, worth_a_try=6 * 2**30)
    assert (policy.action, policy.memory_bytes, policy.max_tries) == ("retry-with-memory", 6 * 2**30, 1)
    assert policy.conditions[:2] == (
        "Each worker that may run it needs at least 6 GiB.",
        "Try it once: more than 4 GiB was wanted; how much more is unknown.",
    )


def test_where_no_limit_is_known_the_work_is_not_retried():
    """Without a size to begin with there is none to try."""
    policy = policy_of("nanny.memory-terminate")
    assert (policy.action, policy.memory_bytes, policy.max_tries) == ("do-not-retry", None, None)
    assert any("at most 4 GiB" in each for each in policy.conditions)


@pytest.mark.parametrize("cause_id", ["kernel.oom-killer", "signal.segfault", "memory.paused", "gpu.out-of-memory"])
def test_other_ends_are_no_reason_to_try_more_memory(cause_id):
    """A machine without memory, a crash, a standstill, a full graphics card: a higher limit is not known to help."""
    assert policy_of(cause_id, worth_a_try=6 * 2**30).action == "do-not-retry"


@pytest.mark.parametrize(
    ("other", "action"),
    [("signal.segfault", "do-not-retry"), (None, "do-not-retry"), ("kernel.oom-killer", "retry-with-memory")],
)
def test_more_memory_is_tried_only_where_it_helps_against_every_death(other, action):
    """Beside a crash, or where most died of nothing known, the work is not retried."""
    lost = [dead("nanny.memory-terminate"), dead(other), dead(other)]
    assert policy_of("nanny.memory-terminate", lost=lost, worth_a_try=6 * 2**30).action == action


@pytest.mark.parametrize("other", ["signal.segfault", "external.sigkill", "nanny.memory-terminate"])
def test_one_death_that_may_come_again_forbids_a_retry(other):
    """Among innocent deaths a poisoned task may hide: a retry would kill workers again."""
    lost = [dead("cloud.spot-interruption"), dead("cloud.spot-interruption"), dead(other)]
    policy = policy_of("cloud.spot-interruption", lost=lost)
    assert policy.action == "ask"
    assert BOOK.cause(other).title in policy.reason


def test_deaths_of_other_harmless_causes_do_not_forbid_a_retry():
    """Two reasons why the work is innocent are as good as one."""
    lost = [dead("cloud.spot-interruption"), dead("network.comm-closed")]
    assert policy_of("cloud.spot-interruption", lost=lost).action == "retry-elsewhere"


@pytest.mark.parametrize(("unexplained", "action"), [(1, "retry-elsewhere"), (2, "ask")])
def test_mostly_unexplained_deaths_forbid_a_retry(unexplained, action):
    """One interrupted machine does not explain why the other workers died."""
    lost = [dead("cloud.spot-interruption"), *[dead(None)] * unexplained]
    assert policy_of("cloud.spot-interruption", lost=lost).action == action


def test_machines_to_avoid_are_named():
    """The advice "elsewhere" says where not: each machine once, and the rest as a count."""
    lost = [dead("hpc.node-fail", host=f"node{each}") for each in (4, 1, 1, 2, 3)]
    assert policy_of("hpc.node-fail", lost=lost).conditions[-1] == (
        "Do not use these machines again: node1, node2, node3 and 1 more."
    )


def test_a_machine_without_a_name_is_known_by_its_address():
    """And one whose worker alone was stopped may be used again."""
    lost = [Death(identity=Identity(worker="tcp://10.0.0.4:34937"), cause="hpc.node-fail", probability=0.9)]
    assert policy_of("hpc.node-fail", lost=lost).conditions[-1].endswith(": 10.0.0.4.")
    assert not any("10.0.0.4" in each for each in policy_of("exit.lifetime", lost=lost).conditions)


def test_an_address_that_is_none_names_no_machine():
    """Logs hold all kinds of text."""
    lost = [Death(identity=Identity(worker="tcp://[1"), cause="hpc.node-fail", probability=0.9)]
    assert policy_of("hpc.node-fail", lost=lost).action == "retry-elsewhere"


def test_a_task_that_is_rightly_blamed_is_named():
    """Work without that task may be run."""
    policy = policy_of("signal.segfault", task="load-1", fairly_blamed=True)
    assert policy.conditions[-1] == "It holds for all work that contains the task load-1."


def test_a_bystander_does_not_make_the_work_safe():
    """Where another task ends the workers, the work as a whole is not retried."""
    policy = policy_of("signal.segfault", verdict="other-task", task="load-1", fairly_blamed=False)
    assert policy.action == "do-not-retry"
    assert policy.conditions[-1].startswith("It holds for the work as a whole")
