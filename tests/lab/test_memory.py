"""Too much memory: killed by the nanny, by the kernel, or paused for ever."""

from __future__ import annotations

import pytest
from attrs import evolve

import workerdiag
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.queries import ClusterQuestion
from workerdiag.sources.exception import exception_facts

from .promises import claimed_causes, named_cause

pytestmark = pytest.mark.lab
common = pytest.mark.common

MEMORY_LIMIT_BYTES = 300 * 10**6


@common
def test_slow_growth_to_the_nannys_limit(provoke, explain):
    """A worker that the nanny killed for its memory: the cause, the process and the numbers."""
    aftermath = provoke("nanny-memory-slow")
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "nanny.memory-terminate"
    (death,) = diagnosis.deaths
    assert (death.signal, death.identity.pid) == (15, aftermath.pid)
    assert death.rss_bytes is not None
    assert death.rss_bytes > 0.9 * MEMORY_LIMIT_BYTES
    assert diagnosis.blame.verdict == "task"
    assert diagnosis.decision.retry_safe is False
    assert diagnosis.decision.needs_memory_bytes is None
    assert diagnosis.decision.needs_memory_lower_bound_bytes >= MEMORY_LIMIT_BYTES
    policy = diagnosis.decision.policy
    assert (policy.action, policy.max_tries) == ("retry-with-memory", 1)
    assert policy.memory_bytes >= 1.5 * MEMORY_LIMIT_BYTES


def test_fast_growth_to_the_nannys_limit(provoke, explain):
    """Four workers one after another, each above the limit at a blow: one cause, four deaths."""
    diagnosis = explain(provoke("nanny-memory-fast"))
    assert named_cause(diagnosis) == "nanny.memory-terminate"
    assert len(diagnosis.deaths) == 4
    assert diagnosis.blame.task == "burst"


@common
def test_the_kernel_kills_in_a_cgroup(provoke, explain):
    """With the kernel's log at hand its OOM killer is the answer, and for the same process."""
    aftermath = provoke("kernel-oom")
    # Until the memory of the first is free the kernel may kill a second: a helper of the nanny's, in the same group.
    assert aftermath.facts["group"].oom_kills() >= 1
    if "Killed process" not in aftermath.facts["kernel"].text:
        pytest.skip("the kernel's log cannot be read here")
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "kernel.oom-killer"
    (death,) = diagnosis.deaths
    assert (death.signal, death.identity.pid) == (9, aftermath.pid)


def test_the_kernel_is_asked_where_its_log_is_not_given(provoke, explain):
    """A SIGKILL has many authors; this one wrote it down, and the victim's control group counted it."""
    assert named_cause(explain(evolve(provoke("kernel-oom"), logs=()))) == "kernel.oom-killer"


def test_without_the_kernels_word_sigkill_is_not_called_oom(provoke):
    """Where nobody may ask the kernel a SIGKILL stays one: "137 means OOM" is a guess, and we name the look that settles it."""
    aftermath = provoke("kernel-oom")
    about = tuple(each.identity for each in exception_facts(aftermath.exc) if each.identity.worker)
    only_dask = ClusterSource(aftermath.client, ClusterQuestion(about=about))
    diagnosis = workerdiag.explain(aftermath.exc, aftermath.client, sources=[only_dask])
    assert claimed_causes(diagnosis) <= {"external.sigkill", "kernel.oom-killer"}
    assert "kernel.oom-killer" in {cause.id for cause in diagnosis.causes}
    assert any("kernel.oom-killer" in step.distinguishes for step in diagnosis.next_steps)


def test_a_child_of_a_task_that_the_kernel_kills_is_no_worker(provoke, explain):
    """The group counts a kill for want of memory, and all workers live: asked with the task's error or without."""
    aftermath = provoke("child-out-of-memory")
    for exc in (aftermath.exc, None):
        diagnosis = explain(evolve(aftermath, exc=exc))
        assert (diagnosis.outcome, diagnosis.deaths) == ("no-death", ())


def test_a_paused_worker_is_a_standstill(provoke, explain):
    """Nothing died and nothing moves: the pause is named_cause, without an exception to start from."""
    diagnosis = explain(provoke("paused-for-ever"))
    assert named_cause(diagnosis) == "memory.paused"
    assert diagnosis.deaths == ()


def test_a_full_disk_is_named_from_the_workers_log(provoke, explain):
    """The spill error stands in the worker's own log alone; with it the full disk is the answer."""
    aftermath = provoke("full-disk")
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "exception.disk-full"
    assert diagnosis.deaths == ()


def test_a_full_disk_without_the_log_is_at_least_a_pause(provoke, explain):
    """The cluster itself knows only that the worker is paused, and that is what we say."""
    diagnosis = explain(evolve(provoke("full-disk"), logs=()))
    assert named_cause(diagnosis) in ("memory.paused", "exception.disk-full")
