"""What Slurm does to a worker is told apart from what the worker does to itself, by asking Slurm."""

from __future__ import annotations

import os
import signal

import pytest

from . import tasks
from .death import Death

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


def named(diagnosis):
    """The cause that a reader takes for the answer."""
    assert diagnosis.outcome == "explained", str(diagnosis)
    return diagnosis.top.id


def seen_in(diagnosis):
    """Where the evidence for the likeliest cause stands."""
    return {clue.where.rpartition(":")[0] or clue.where for clue in diagnosis.top.evidence}


def test_scancel(cluster, slurm, explain):
    """A cancelled job is named so, from the accounting too."""
    one = cluster()
    one.wait()
    death = Death.of_waiting(one)
    slurm.says("scancel", one.job)
    diagnosis = explain(death)
    assert named(diagnosis) == "hpc.cancelled"
    assert any(place.startswith("Slurm job") for place in seen_in(diagnosis))


def test_kill_9(cluster, explain):
    """A SIGKILL that Slurm knows nothing of is not blamed on Slurm, though it is the same signal."""
    one = cluster()
    one.wait()
    pid = one.worker_pid()
    death = Death.of_waiting(one)
    os.kill(pid, signal.SIGKILL)
    diagnosis = explain(death)
    assert named(diagnosis) == "external.sigkill"
    assert not any(cause.family == "hpc" and cause.probability > 0.05 for cause in diagnosis.causes)


def test_segfault(cluster, explain):
    """A worker that crashes within a job that lives on has crashed, whatever Slurm says."""
    one = cluster()
    one.wait()
    assert named(explain(Death.of(one, tasks.crash))) == "signal.segfault"


def test_segfault_without_nanny(cluster, explain):
    """Without a nanny the job ends with its worker, and only its exit tells of the signal."""
    one = cluster(nanny=False)
    one.wait()
    assert named(explain(Death.of(one, tasks.crash))) == "signal.segfault"


def test_memory_limit(cluster, explain):
    """A worker killed at the job's memory limit has run out of memory, told while the job still runs."""
    one = cluster(memory="4GB", job_directives_skip=["--mem"], job_extra_directives=["--mem=500M"])
    one.wait()
    diagnosis = explain(Death.of(one, tasks.burst, 2000))
    assert named(diagnosis) in ("hpc.oom", "kernel.oom-killer")
    assert diagnosis.decision.needs_memory_bytes is None
    assert diagnosis.decision.needs_memory_lower_bound_bytes >= 500 * 2**20


def test_memory_limit_that_ends_the_nanny(cluster, explain):
    """Where the kernel takes the nanny too, and its log with it, the job and its output tell."""
    one = cluster(memory="4GB", job_directives_skip=["--mem"], job_extra_directives=["--mem=500M"])
    one.wait()
    diagnosis = explain(Death.of(one, tasks.burst_with_nanny, 2000))
    assert named(diagnosis) in ("hpc.oom", "kernel.oom-killer")
    assert len(diagnosis.deaths) == 1


def test_memory_limit_without_nanny(cluster, explain):
    """Where the job ends with its worker the accounting says OUT_OF_MEMORY, and that is the answer."""
    one = cluster(nanny=False, memory="4GB", job_directives_skip=["--mem"], job_extra_directives=["--mem=500M"])
    one.wait()
    assert named(explain(Death.of(one, tasks.burst, 2000))) == "hpc.oom"


@pytest.mark.parametrize("partition", ["low", "cancel"])
def test_preempted(cluster, slurm, explain, partition):
    """A job that made room for a better one was preempted, whether it is put back into the queue or not."""
    one = cluster(queue=partition, cores=3, memory="1GB")
    one.wait()
    death = Death.of_waiting(one)
    slurm.says(
        "sbatch",
        "--partition=high",
        "--cpus-per-task=14",
        "--mem=1G",
        "--output=/dev/null",
        "--wrap",
        "sleep 2",
    )
    assert named(explain(death)) == "hpc.preempted"


def test_pending(cluster, explain):
    """A job that waits in the queue is why no worker comes, and nobody has died."""
    diagnosis = explain(Death(cluster(job_extra_directives=["--begin=now+1hour"])))
    assert named(diagnosis) == "hpc.queued"
    assert diagnosis.deaths == ()


def test_refused(cluster, explain):
    """A job that Slurm refused is why no worker comes."""
    assert named(explain(Death(cluster(queue="no-such-partition")))) == "hpc.submit-rejected"


def test_command_missing(cluster, explain):
    """A job whose script fails at once is not called waiting, and what it printed is found."""
    diagnosis = explain(Death(cluster(python="/no/such/python")))
    assert diagnosis.top.id not in ("hpc.queued", "hpc.walltime", "hpc.cancelled")
    assert any("No such file" in clue.text for cause in diagnosis.causes for clue in cause.evidence)


def test_walltime(walltime, explain):
    """A job that reached its time limit is named so, from the accounting too."""
    diagnosis = explain(walltime)
    assert named(diagnosis) == "hpc.walltime"
    assert any(place.startswith("Slurm job") for place in seen_in(diagnosis))


def test_node_failure(cluster, slurm, explain):
    """A node that Slurm gave up is what its jobs died of."""
    one = cluster()
    one.wait()
    death = Death.of_waiting(one)
    slurm.says("scontrol", "update", f"nodename={slurm.host}", "state=down", "reason=lab")
    try:
        assert named(explain(death)) == "hpc.node-fail"
    finally:
        slurm.says("scontrol", "update", f"nodename={slurm.host}", "state=resume")


def test_all_processes_killed(cluster, slurm, explain):
    """A job of which every process was killed from outside ended by that, and not by Slurm."""
    one = cluster()
    one.wait()
    death = Death.of_waiting(one)
    for pid in slurm.processes(one.job):
        os.kill(pid, signal.SIGKILL)
    diagnosis = explain(death)
    assert named(diagnosis) in ("external.sigkill", "external.nanny-lost")
    assert not any(cause.family == "hpc" and cause.probability > 0.1 for cause in diagnosis.causes)


def test_two_workers_without_output(cluster, slurm, explain):
    """With several workers in a job, and no output of it to be found, the accounting alone tells of each."""
    one = cluster(cores=2, processes=2, memory="1GB", log_directory=None, job_extra_directives=["-o /dev/null"])
    one.wait(2)
    death = Death.of_waiting(one)
    slurm.says("scancel", one.job)
    diagnosis = explain(death)
    assert named(diagnosis) == "hpc.cancelled"
    assert all(place.startswith("Slurm job") for place in seen_in(diagnosis))


def test_another_client(cluster, slurm, explain):
    """Who has only the scheduler's address still has the job looked for, known by the nanny's environment."""
    one = cluster()
    one.wait()
    pid = one.worker_pid()
    death = Death.of_waiting(one.by_address())
    os.kill(pid, signal.SIGKILL)
    diagnosis = explain(death)
    assert named(diagnosis) == "external.sigkill"
    assert any(f"job {one.job} " in gap.detail for gap in diagnosis.gaps if gap.source == "log directory")
