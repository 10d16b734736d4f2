"""The output of batch jobs is found by their number, and read from where the victim's life began."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.fake_batch_system import HOST, WORKER, FakeJob, cluster, explain_by, scene, victim
from workerdiag.model.evidence import Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.sources.batch import log_directory
from workerdiag.sources.batch.log_directory import LogDirectorySource
from workerdiag.testing import check_source

DIED = 1795292626.0
RECORDED = Path(__file__).parents[2] / "recordings" / "slurm"
BORN = f"2026-11-21 08:09:09,251 - distributed.worker - INFO -       Start worker at:      {WORKER}\n"


def asking(logs, *, number="17", kind="SLURMCluster", dead=None, **options):
    """The source of a cluster with one job, whose output goes to *logs*."""
    dead = dead or victim(DIED)
    known = cluster(kind, FakeJob("w-0", number, log_directory=str(logs) if logs else None, **options))
    return LogDirectorySource.of(scene(dead, of=known))


def texts(source, *, budget_s=5.0):
    """What is handed over, by the name of the file."""
    return {
        Path(each.origin).name: each.data.decode()
        for each in source.collect(budget_s=budget_s)
        if isinstance(each, LogChunk)
    }


@pytest.mark.parametrize(
    ("kind", "number", "name"),
    [
        ("SLURMCluster", "17", "dask-worker-17.err"),
        ("SLURMCluster", "17", "slurm-17.out"),
        ("PBSCluster", "17", "dask-worker.e17"),
        ("PBSCluster", "17.pbs01", "17.pbs01.ER"),
        ("LSFCluster", "17", "w-0-17.err"),
        ("SGECluster", "17", "dask-worker.o17"),
        ("HTCondorCluster", "17.0", "worker-17.0.err"),
        ("HTCondorCluster", "17.0", "worker-17.log"),
        ("OARCluster", "17", "OAR.dask-worker.17.stderr"),
        ("MoabCluster", "17", "dask-worker.o17"),
    ],
)
def test_output_is_found_as_each_system_names_it(tmp_path, kind, number, name):
    """Whatever the name's form, the number of the job stands in it as a whole."""
    (tmp_path / name).write_text(BORN)
    for other in ("dask-worker-117.err", "dask-17.o170", "notes-17.txt", "worker-171.0.err", "w-17-9.err"):
        (tmp_path / other).write_text("not this one\n")
    assert list(texts(asking(tmp_path, kind=kind, number=number))) == [name]


def test_what_happened_before_the_victim_lived_is_left_out(tmp_path):
    """A job's nanny starts one worker after another; the deaths of earlier ones are other stories."""
    earlier = "2026-11-21 08:00:00,000 - distributed.nanny - INFO - Worker process 1 was killed by signal 11\n"
    later = "slurmstepd-cn1: error: *** JOB 17 ON cn1 CANCELLED AT 2026-11-21T08:09:44 ***\n"
    (tmp_path / "dask-worker-17.err").write_text(earlier + BORN + later)
    assert texts(asking(tmp_path)) == {"dask-worker-17.err": BORN + later}


def test_an_address_that_only_begins_like_the_victims_is_not_its(tmp_path):
    """Port 4033 is not port 40331."""
    other = BORN.replace(WORKER, WORKER[:-1])
    (tmp_path / "dask-worker-17.err").write_text(other + BORN)
    assert texts(asking(tmp_path)) == {"dask-worker-17.err": BORN}


def test_text_of_a_job_is_not_given_the_workers_name(tmp_path):
    """Many processes write into one file: a line is the job's and its host's, the worker it names by itself."""
    (tmp_path / "dask-worker-17.err").write_text(BORN)
    chunk, looked = asking(tmp_path).collect(budget_s=5)
    assert chunk.identity == Identity(container="17", host=HOST)
    assert isinstance(looked, Inspected)
    assert looked.place == "other"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("walltime", "hpc.walltime"),
        ("scancel", "hpc.cancelled"),
        ("preempted-low", "hpc.preempted"),
        ("node-failure", "hpc.node-fail"),
        ("memory-limit-without-nanny", "hpc.oom"),
    ],
)
def test_the_words_of_slurmstepd_are_enough(tmp_path, name, cause):
    """Where neither sacct nor scontrol can be asked, the job's own output tells what Slurm did."""
    text = (RECORDED / name / "job.err").read_text()
    (tmp_path / "dask-worker-17.err").write_text(text)
    address = text.partition("Start worker at:")[2].split()[0]
    dead = victim(None, worker=address)
    diagnosis = explain_by(asking(tmp_path, dead=dead), dead)
    assert diagnosis.outcome == "explained"
    assert diagnosis.top.id == cause


def test_a_job_that_never_gave_a_worker_is_read_too(tmp_path):
    """Without a known death the output of jobs in which nobody lives is handed on."""
    (tmp_path / "dask-worker-17.err").write_text("slurm_script: line 8: dask-worker: command not found\n")
    known = cluster("SLURMCluster", FakeJob("w-0", "17", log_directory=str(tmp_path)))
    found = texts(LogDirectorySource.of(scene(of=known)))
    assert "command not found" in found["dask-worker-17.err"]


def test_of_long_output_the_end_is_read(tmp_path):
    """However long a file is, a bounded part is handed on, and it is the end."""
    with (tmp_path / "dask-worker-17.err").open("w") as file:
        file.write(BORN)
        for _ in range(20_000):
            file.write("x" * 100 + "\n")
        file.write("the end\n")
    (text,) = texts(asking(tmp_path)).values()
    assert len(text) <= log_directory._MAX_FILE_BYTES
    assert text.endswith("the end\n")


def test_without_a_directory_given_the_gap_says_how_to_have_one(tmp_path, monkeypatch):
    """Output that went nowhere was never recorded, and the option that changes that is named."""
    monkeypatch.chdir(tmp_path)
    (gap,) = asking(None, kind="PBSCluster").collect(budget_s=5)
    assert (gap.reason, gap.remedy.startswith("PBSCluster(..., log_directory=")) == ("never-recorded", True)


def test_default_output_is_found_where_jobs_are_submitted_from(tmp_path, monkeypatch):
    """Without a directory given, Slurm writes to where the client was started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm-17.out").write_text(BORN)
    assert list(texts(asking(None))) == ["slurm-17.out"]


def test_a_directory_that_is_not_here_is_unreachable(tmp_path):
    """A file system that only the compute nodes have is a gap with where to look."""
    (gap,) = asking(tmp_path / "gone").collect(budget_s=5)
    assert isinstance(gap, Gap)
    assert (gap.reason, str(tmp_path / "gone") in gap.remedy) == ("unreachable", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_somebody_else_is_forbidden(tmp_path):
    """What may not be read is a gap, not silence."""
    path = tmp_path / "dask-worker-17.err"
    path.write_text(BORN)
    path.chmod(0)
    (gap,) = asking(tmp_path).collect(budget_s=5)
    assert gap.reason == "forbidden"


def test_without_batch_jobs_there_is_nothing_to_read():
    """Other clusters have no such output."""
    assert LogDirectorySource.of(scene(victim(DIED), of=cluster("LocalCluster"))) is None


@pytest.mark.slow
def test_among_ten_thousand_files_the_one_is_found(tmp_path):
    """Of a directory that all jobs of a year went to only the file that is wanted is opened."""
    for number in range(10_000):
        (tmp_path / f"dask-worker-{number + 100}.err").touch()
    (tmp_path / "dask-worker-17.err").write_text(BORN)
    assert texts(asking(tmp_path), budget_s=30.0) == {"dask-worker-17.err": BORN}


def test_it_is_a_good_source(tmp_path):
    """It keeps what sources promise."""
    (tmp_path / "dask-worker-17.err").write_bytes(BORN.encode() + bytes(range(256)) * 4096)
    (tmp_path / "dask-worker-17.out").mkdir()
    check_source(lambda: asking(tmp_path), state=lambda: sorted(tmp_path.iterdir()))


def test_a_pipe_is_not_waited_for(tmp_path):
    """What is named like output and is none is left alone."""
    os.mkfifo(tmp_path / "dask-worker-17.err")
    check_source(lambda: asking(tmp_path), budget_s=1.0, must_gap=True)
