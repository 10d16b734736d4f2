"""Slurm's answers, recorded by ``tests/lab_slurm`` from a real one (22.05), lead to what really happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.fake_batch_system import (
    WORKER,
    FakeJob,
    RemovalSource,
    cluster,
    commands_run,
    explain_by,
    install_answer,
    on_path,
    scene,
    victim,
)
from support.thinned_evidence import keys_that_changed
from workerdiag.model.evidence import Event, Gap, Inspected, LogChunk, MemoryReading
from workerdiag.sources.batch.systems import SlurmSource

RECORDINGS = Path(__file__).parents[2] / "recordings" / "slurm"

CAUSES = {
    "walltime": "hpc.walltime",
    "scancel": "hpc.cancelled",
    "preempted-low": "hpc.preempted",
    "preempted-cancel": "hpc.preempted",
    "node-failure": "hpc.node-fail",
    "memory-limit-without-nanny": "hpc.oom",
    "segfault-without-nanny": "signal.segfault",
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder in which commands are looked for first."""
    return on_path(tmp_path, monkeypatch)


def replay(path, name):
    """Let ``sacct`` and ``scontrol`` answer as they did; the source, and who died when."""
    folder = RECORDINGS / name
    install_answer(path, "sacct", (folder / "sacct.txt").read_text())
    install_answer(path, "scontrol", (folder / "scontrol.txt").read_text())
    facts = json.loads((folder / "death.json").read_text())
    dead = victim(facts["when"]) if facts["worker"] else None
    known = cluster("SLURMCluster", FakeJob("w-0", facts["job"]))
    return SlurmSource.of(scene(*((dead,) if dead else ()), of=known)), dead


def chunks(source):
    """The text that a source hands over."""
    return [each for each in source.collect(budget_s=5) if isinstance(each, LogChunk)]


@pytest.mark.parametrize("name", CAUSES)
def test_what_slurm_did_is_told_by_its_records_alone(path, name):
    """Of each death in a job that ended, Slurm's own records name the cause."""
    diagnosis = explain_by(*replay(path, name))
    assert diagnosis.outcome == "explained"
    assert diagnosis.top.id == CAUSES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSES)
def test_less_of_the_records_keeps_the_key_while_the_cause_stays(path, name):
    """Whatever of Slurm's answers and of the death's other evidence is lost."""
    source, dead = replay(path, name)
    sources = [*([RemovalSource(dead)] if dead else ()), source]
    evidence = [piece for each in sources for piece in each.collect(budget_s=5)]
    assert keys_that_changed(evidence) == []


@pytest.mark.parametrize("name", ["kill-9", "segfault", "memory-limit", "all-processes-killed"])
def test_a_job_that_lives_on_is_not_what_its_worker_died_of(path, name):
    """Where the job still runs, no cause of the batch system is suggested."""
    diagnosis = explain_by(*replay(path, name))
    assert not any(cause.family == "hpc" and cause.probability > 0.05 for cause in diagnosis.causes)


def test_a_job_in_the_queue_is_why_no_worker_comes(path):
    """Without a death, jobs that wait are told of, with the reason."""
    source, _ = replay(path, "pending")
    assert explain_by(source, None).top.id == "hpc.queued"
    (chunk,) = chunks(source)
    assert b"Reason=BeginTime" in chunk.data


def test_a_job_whose_script_failed_is_not_called_waiting(path):
    """A job that ended at once is no job in the queue."""
    diagnosis = explain_by(*replay(path, "command-missing"))
    assert "hpc.queued" not in {cause.id for cause in diagnosis.causes if cause.probability > 0.1}


def test_memory_asked_for_and_used_belong_to_the_victim(path):
    """Requested and used memory are told in bytes, of the worker that died in the job."""
    source, _ = replay(path, "walltime")
    (reading,) = (each for each in source.collect(budget_s=5) if isinstance(each, MemoryReading))
    assert (reading.identity.worker, reading.identity.container) == (WORKER, "1")
    assert reading.limit_bytes == 573 * 2**20
    assert 50 * 2**20 < reading.rss_bytes < 573 * 2**20


def test_how_much_of_its_time_a_job_used_is_told_in_numbers(path):
    """A job that ended says what share of its time it had used."""
    source, _ = replay(path, "walltime")
    (event,) = (each for each in source.collect(budget_s=5) if isinstance(each, Event))
    assert (event.fields["state"], event.fields["percent_of_time"] >= 100) == ("ended", True)


def test_records_are_looked_at_wholly_when_they_are_there(path):
    """Absence in the records counts, for they were read."""
    source, dead = replay(path, "kill-9")
    looked = [each for each in source.collect(budget_s=5) if isinstance(each, Inspected)]
    assert [(each.place, each.identity.worker) for each in looked] == [("other", dead.identity.worker)]


def test_a_cancellation_after_the_death_did_not_cause_it(path):
    """dask-jobqueue cancels the job of a lost worker itself, 15 s later: that is no evidence."""
    source, dead = replay(path, "scancel")
    late = victim(dead.when - 15)
    known = cluster("SLURMCluster", FakeJob("w-0", "2"))
    source = SlurmSource.of(scene(late, of=known))
    assert chunks(source) == []
    assert explain_by(source, late).top is None or explain_by(source, late).top.family != "hpc"


def test_of_a_requeued_job_the_run_that_the_victim_lived_in_counts(path):
    """Of several runs under one number only the lines of the one that covers the death are handed on."""
    head = "JobID|JobName|State|Start|End"
    install_answer(
        path,
        "sacct",
        f"""{head}
8|dask-worker|PREEMPTED|2026-11-21T08:00:00|2026-11-21T08:10:00
8.batch|batch|CANCELLED|2026-11-21T08:00:00|2026-11-21T08:10:01
8|dask-worker|TIMEOUT|2026-11-21T08:12:00|2026-11-21T09:12:00
8.batch|batch|CANCELLED|2026-11-21T08:12:00|2026-11-21T09:12:01
""",
    )
    install_answer(path, "scontrol", "slurm_load_jobs error: Invalid job id specified", status=1)
    first, second = victim(1795248602.0), victim(1795252322.0, worker="tcp://10.0.0.4:40999")
    known = cluster("SLURMCluster", FakeJob("w-0", "8"))
    one, two = chunks(SlurmSource.of(scene(first, second, of=known)))
    assert one.data.decode().splitlines()[1:2] == [
        "8|dask-worker|PREEMPTED|2026-11-21T08:00:00|2026-11-21T08:10:00"
    ]
    assert (b"TIMEOUT" in one.data, b"TIMEOUT" in two.data) == (False, True)
    assert (one.identity.worker, two.identity.worker) == (WORKER, "tcp://10.0.0.4:40999")


def test_a_job_that_began_after_the_death_is_another_one(path):
    """A new job under the name of a lost one says nothing of who died before it."""
    source, dead = replay(path, "scancel")
    early = victim(dead.when - 60)
    source = SlurmSource.of(scene(early, of=cluster("SLURMCluster", FakeJob("w-0", "2"))))
    (gap,) = source.collect(budget_s=5)
    assert (gap.reason, "job 2" in gap.detail) == ("expired", True)


def test_a_job_that_is_being_ended_is_asked_about_again(path, tmp_path):
    """Slurm shows COMPLETING until all processes are gone, and only then why."""
    install_answer(path, "sacct", "JobID|JobName|State|Start|End\n")
    once = 'if [ -e {0}/again ]; then echo "JobId=5 JobState=NODE_FAIL Reason=NodeDown"; else touch {0}/again; echo "JobId=5 JobState=COMPLETING Reason=None"; fi'
    (path / "scontrol").write_text("#!/bin/sh\n" + once.format(tmp_path) + "\n")
    (path / "scontrol").chmod(0o755)
    source = SlurmSource.of(scene(victim(1795248602.0), of=cluster("SLURMCluster", FakeJob("w-0", "5"))))
    (chunk,) = chunks(source)
    assert b"NODE_FAIL" in chunk.data


def test_without_accounting_the_controller_is_enough(path):
    """A site without slurmdbd is no gap while the controller remembers the job."""
    install_answer(path, "scontrol", (RECORDINGS / "walltime" / "scontrol.txt").read_text())
    (path / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    (path / "sacct").chmod(0o755)
    when = json.loads((RECORDINGS / "walltime" / "death.json").read_text())["when"]
    source = SlurmSource.of(scene(victim(when), of=cluster("SLURMCluster", FakeJob("w-0", "1"))))
    assert b"Reason=TimeLimit" in chunks(source)[0].data
    (gap,) = (each for each in source.collect(budget_s=5) if isinstance(each, Gap))
    assert (gap.reason, "sacct -j 1" in gap.remedy) == ("never-recorded", True)


def test_a_job_of_an_array_is_known_by_either_number(path):
    """Processes know one number of theirs, and the table begins with the other."""
    install_answer(
        path,
        "sacct",
        """JobID|State|Start|End|JobIDRaw
120_3|TIMEOUT|2026-11-21T08:00:00|2026-11-21T09:01:36|124
120_3.batch|CANCELLED|2026-11-21T08:00:00|2026-11-21T09:01:37|124.batch
120_4|RUNNING|2026-11-21T08:00:00|Unknown|125
""",
    )
    install_answer(path, "scontrol", "")
    (chunk,) = chunks(SlurmSource.of(scene(victim(1795251696.0), SLURM_JOB_ID="124")))
    assert [line.split("|")[0] for line in chunk.data.decode().splitlines()] == [
        "JobID",
        "120_3",
        "120_3.batch",
    ]


def test_all_jobs_are_asked_about_at_once(path):
    """The accounting gets one request, however many jobs there are."""
    install_answer(path, "sacct", "JobID|JobName|State|Start|End\n")
    install_answer(path, "scontrol", "")
    jobs = [FakeJob(f"w-{number}", str(100 + number)) for number in range(40)]
    list(SlurmSource.of(scene(of=cluster("SLURMCluster", *jobs))).collect(budget_s=5))
    (command,) = (line for line in commands_run(path) if line.startswith("sacct"))
    assert command.split()[2].count(",") == 15
