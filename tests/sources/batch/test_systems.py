"""Answers of PBS, LSF, Grid Engine, HTCondor and OAR lead to what happened.

Grid Engine's are of a real one (8.1.9); the others are written after the manuals of each system.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.fake_batch_system import (
    FakeJob,
    cluster,
    commands_run,
    explain_by,
    install_answer,
    install_command,
    on_path,
    scene,
    victim,
)
from workerdiag.model.evidence import Event, LogChunk, MemoryReading
from workerdiag.sources.batch.systems import GridEngineSource, HTCondorSource, LSFSource, OARSource, PBSSource

#: 2026-11-21 09:01:36 UTC, the end of all jobs here but Grid Engine's.
DIED = 1795251696.0
_GRID_ENGINE = Path(__file__).parents[2] / "recordings" / "grid-engine"
_ENDED = {"sge-h-rt": 1795293736.0, "sge-qdel": 1795293720.0}


def recorded(name):
    """What a real Grid Engine said."""
    return (_GRID_ENGINE / f"{name}.txt").read_text()


PBS = """\
Job Id: 331042.pbs01
    Job_Name = dask-worker
    Job_Owner = alice@login3.example.org
    resources_used.cput = 00:58:31
    resources_used.mem = {used}
    resources_used.walltime = {spent}
    job_state = {state}
    queue = workq
    Resource_List.mem = 8gb
    Resource_List.ncpus = 4
    Resource_List.select = 1:ncpus=4:mem=8gb
    Resource_List.walltime = 01:00:00
    stime = Sat Nov 21 08:01:30 2026
    obittime = Sat Nov 21 09:01:36 2026
    comment = {comment}
    Exit_status = {status}
"""
PBS_WAITING = """\
Job Id: 331042.pbs01
    Job_Name = dask-worker
    job_state = Q
    queue = workq
    Resource_List.walltime = 01:00:00
    comment = Not Running: Insufficient amount of resource: ncpus
"""
LSF = """
Job <331042>, Job Name <dask-worker>, User <alice>, Project <default>, Status <EX
                     IT>, Queue <normal>, Command <#!/usr/bin/env bash;...>
Sat Nov 21 08:01:20: Submitted from host <login3>, CWD <$HOME>;
 MEMLIMIT
      4 G
Sat Nov 21 08:01:30: Started 1 Task(s) on Host(s) <n12>, Allocated 1 Slot(s) on H
                     ost(s) <n12>, Execution Home </home/alice>;
Sat Nov 21 09:01:36: {ended}
Sat Nov 21 09:01:36: Completed <exit>; {reason}.

 MAX MEM: 3.9 Gbytes;  AVG MEM: 2 Gbytes
"""
CONDOR = """\
ClusterId = 881
ProcId = 0
JobStatus = {status}
JobCurrentStartDate = 1795248090
JobStartDate = 1795248090
EnteredCurrentStatus = 1795251696
RequestMemory = 4096
MemoryUsage = 4100
RemoteWallClockTime = 3606.0
{more}
"""
CONDOR_IDLE = """\
ClusterId = 881
ProcId = 0
JobStatus = 1
EnteredCurrentStatus = 1795248090
NumJobStarts = 0
RequestMemory = 4096
"""
OAR = """\
Job_Id: 1201
    job_array_id = 1201
    name = dask-worker
    owner = alice
    state = {state}
    assigned_hostnames = n12
    queue = default
    exit_code = 36608 (143,0,0)
    walltime = 1:0:0
    submissionTime = 2026-11-21 08:01:00
    startTime = 2026-11-21 08:01:30
    message = R=4,W=1:0:0,J=B,N=dask-worker (Karma=0.001)
"""


def pbs(comment, status, *, used="4123412kb", spent="00:20:06", state="F"):
    """A job that ran and ended, as ``qstat -x -f`` shows it."""
    ran = "Job run at Sat Nov 21 at 08:01 on (n12:ncpus=4) and"
    return PBS.format(used=used, spent=spent, state=state, comment=f"{ran} {comment}", status=status)


def lsf(reason, *, ended="Exited by signal 9"):
    """A job that ended, as ``bjobs -l`` and ``bhist -l`` show it."""
    return LSF.format(ended=f"{ended}. The CPU time used is 3500.1 seconds;", reason=reason)


SAID = {
    "pbs-walltime": (
        PBSSource,
        {"qstat": pbs("exceeded resource walltime", -29, spent="01:00:06")},
        "hpc.walltime",
    ),
    "pbs-walltime-without-words": (
        PBSSource,
        {"qstat": pbs("failed", 271, spent="01:00:06")},
        "hpc.walltime",
    ),
    "pbs-qdel": (PBSSource, {"qstat": pbs("failed", 271)}, "hpc.cancelled"),
    "pbs-memory": (PBSSource, {"qstat": pbs("exceeded resource mem", -27, used="8423412kb")}, "hpc.oom"),
    "torque-traced": (
        PBSSource,
        {
            "qstat": "",
            "tracejob": """\
Job: 331042.pbs01

11/21/2026 08:01:20  S    enqueuing into batch, state 1 hop 1
11/21/2026 08:01:30  S    Job Run at request of root@pbs01
11/21/2026 09:01:36  S    Job deleted at request of root@pbs01
11/21/2026 09:01:36  S    Exit_status=271 resources_used.cput=00:58:31 resources_used.mem=4123412kb
""",
        },
        "hpc.cancelled",
    ),
    "lsf-run-limit": (
        LSFSource,
        {
            "bjobs": lsf(
                "TERM_RUNLIMIT: job killed after reaching LSF run time li\n                     mit",
                ended="Exited with exit code 140",
            )
        },
        "hpc.walltime",
    ),
    "lsf-memory": (
        LSFSource,
        {"bjobs": "", "bhist": lsf("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit")},
        "hpc.oom",
    ),
    "lsf-bkill": (LSFSource, {"bjobs": lsf("TERM_OWNER: job killed by owner")}, "hpc.cancelled"),
    "lsf-preempted": (
        LSFSource,
        {"bjobs": lsf("TERM_PREEMPT: job killed after preemption")},
        "hpc.preempted",
    ),
    "sge-h-rt": (GridEngineSource, {"qacct": recorded("h-rt")}, "hpc.walltime"),
    "sge-qdel": (GridEngineSource, {"qacct": recorded("qdel")}, "hpc.cancelled"),
    "condor-memory": (
        HTCondorSource,
        {
            "condor_q": CONDOR.format(
                status=5,
                more='HoldReasonCode = 34\nHoldReason = "Error from slot1_3@node7: Job has gone over cgroup memory limit of 4096 megabytes. Peak usage: 4100 megabytes."',
            )
        },
        "hpc.oom",
    ),
    "condor-removed": (
        HTCondorSource,
        {
            "condor_q": "",
            "condor_history": CONDOR.format(status=3, more='RemoveReason = "via condor_rm (by user alice)"'),
        },
        "hpc.cancelled",
    ),
    "condor-time": (
        HTCondorSource,
        {
            "condor_q": CONDOR.format(
                status=5,
                more='HoldReasonCode = 46\nHoldReason = "The job exceeded allowed execute duration of 0+01:00:00"\nAllowedExecuteDuration = 3600',
            )
        },
        "hpc.walltime",
    ),
    "oar-walltime": (
        OARSource,
        {
            "oarstat": OAR.format(state="Error")
            + "2026-11-21 09:01:33> WALLTIME:[sarko] Job [1201] from 1795248090 with 3600; current time=1795251693 (Elapsed)\n"
            + "2026-11-21 09:01:36> SWITCH_INTO_ERROR_STATE:[bipbip 1201] Ask to change the job state\n"
        },
        "hpc.walltime",
    ),
    "oar-best-effort": (
        OARSource,
        {
            "oarstat": OAR.format(state="Error")
            + "2026-11-21 09:01:30> BESTEFFORT_KILL:[MetaSched] kill the besteffort job 1201\n"
            + "2026-11-21 09:01:33> FRAG_JOB_REQUEST:User oar requested to frag the job 1201\n"
        },
        "hpc.preempted",
    ),
}
WAITING = {
    "pbs": (PBSSource, {"qstat": PBS_WAITING}),
    "lsf": (
        LSFSource,
        {
            "bjobs": "\nJob <331042>, Job Name <dask-worker>, User <alice>, Project <default>, Status <PEND>, Queue <normal>\n"
            "Sat Nov 21 08:01:20: Submitted from host <login3>, CWD <$HOME>;\n PENDING REASONS:\n Job slot limit reached: 4 hosts;\n"
        },
    ),
    "sge": (GridEngineSource, {"qacct": "", "qstat": recorded("waits")}),
    "condor": (HTCondorSource, {"condor_q": CONDOR_IDLE}),
    "oar": (OARSource, {"oarstat": OAR.format(state="Waiting")}),
}
_KINDS = {
    PBSSource: ("PBSCluster", "331042"),
    LSFSource: ("LSFCluster", "331042"),
    GridEngineSource: ("SGECluster", "1"),
    HTCondorSource: ("HTCondorCluster", "881.0"),
    OARSource: ("OARCluster", "1201"),
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder in which commands are looked for first."""
    return on_path(tmp_path, monkeypatch)


def died(case):
    """The victim of a case."""
    return victim(_ENDED.get(case, DIED))


def number_of(source, answers):
    """The job that a case is about."""
    said = re.search(r"job_?number:? +(\d+)", " ".join(answers.values()))
    return said[1] if said else _KINDS[source][1]


def asking(path, source, answers, *dead):
    """The source of a cluster with one job, whose batch system answers so."""
    for name, text in answers.items():
        install_answer(path, name, text)
    job = FakeJob("w-0", number_of(source, answers))
    return source.of(scene(*dead, of=cluster(_KINDS[source][0], job)))


def test_the_status_of_pbs_names_the_signal_and_nobody_who_sent_it(path):
    """256 + 15 is SIGTERM; that somebody deleted the job is one way to get it, and stays a candidate."""
    source, answers, cause = SAID["pbs-qdel"]
    dead = died("pbs-qdel")
    diagnosis = explain_by(asking(path, source, answers, dead), dead)

    assert diagnosis.outcome == "unknown"
    assert cause in [each.id for each in diagnosis.causes]


@pytest.mark.parametrize("case", sorted(SAID.keys() - {"pbs-qdel"}))
def test_what_the_batch_system_did_is_told_by_its_records_alone(path, case):
    """Of each death, the records of the batch system name the cause."""
    source, answers, cause = SAID[case]
    dead = died(case)
    diagnosis = explain_by(asking(path, source, answers, dead), dead)
    assert diagnosis.outcome == "explained"
    assert diagnosis.top.id == cause, str(diagnosis)


@pytest.mark.parametrize("case", WAITING)
def test_a_job_in_the_queue_is_why_no_worker_comes(path, case):
    """Without a death, jobs that wait are told of."""
    diagnosis = explain_by(asking(path, *WAITING[case]), None)
    assert diagnosis.top is not None
    assert diagnosis.top.id == "hpc.queued"


@pytest.mark.parametrize("case", SAID)
def test_every_fact_names_the_victim_and_its_job(path, case):
    """What is told of a death is told of the worker that died, in the job that it ran in."""
    source, answers, _ = SAID[case]
    number = number_of(source, answers)
    for piece in asking(path, source, answers, died(case)).collect(budget_s=5):
        if isinstance(piece, LogChunk | MemoryReading | Event):
            assert (piece.identity.worker, piece.identity.container) == ("tcp://10.0.0.4:40331", number)


@pytest.mark.parametrize("case", ["pbs-qdel", "lsf-bkill", "sge-qdel", "condor-removed"])
def test_a_cancellation_after_the_death_did_not_cause_it(path, case):
    """That the job was cancelled 15 s after its worker died is no evidence, whatever the batch system."""
    source, answers, _ = SAID[case]
    pieces = asking(path, source, answers, victim(died(case).when - 15)).collect(budget_s=5)
    assert not any(isinstance(piece, LogChunk) for piece in pieces)


def test_limit_and_use_of_memory_are_read_in_bytes(path):
    """Each system's own units become bytes."""
    expected = {
        "pbs-memory": (8 * 2**30, 8423412 * 2**10),
        "lsf-run-limit": (4 * 2**30, int(3.9 * 2**30)),
        "condor-memory": (4096 * 2**20, 4100 * 2**20),
    }
    for case, numbers in expected.items():
        source, answers, _ = SAID[case]
        pieces = asking(path, source, answers, died(case)).collect(budget_s=5)
        (reading,) = (each for each in pieces if isinstance(each, MemoryReading))
        assert (reading.limit_bytes, reading.rss_bytes) == numbers, case


def test_to_torque_x_means_xml_and_it_is_asked_again(path):
    """Torque's qstat answers ``-x`` in XML; the plain form is then asked for."""
    plain = pbs("failed", 271, used="1kb", spent="00:00:01", state="C")
    (path / "plain").write_text(plain)
    install_command(
        path,
        "qstat",
        f'echo "qstat $*" >> {path}/asked; [ "$1" = -x ] && echo "<Data><Job/></Data>" || cat {path}/plain',
    )
    pieces = asking(path, PBSSource, {}, victim(DIED)).collect(budget_s=5)
    assert any(isinstance(piece, LogChunk) for piece in pieces)
    assert commands_run(path) == ["qstat -x -f 331042", "qstat -f 331042"]


def test_of_a_reused_number_the_run_of_that_time_counts(path):
    """Grid Engine's numbers begin again from 1: of two jobs with one number the one that ran then is told of."""
    old = recorded("qdel").replace(" 2026", " 2025").replace("jobnumber    2", "jobnumber    1")
    pieces = asking(path, GridEngineSource, {"qacct": old + recorded("h-rt")}, died("sge-h-rt"))
    (chunk,) = (each for each in pieces.collect(budget_s=5) if isinstance(each, LogChunk))
    assert (b"failed       37" in chunk.data, b"failed       100" in chunk.data) == (True, False)


@pytest.mark.parametrize("case", ["pbs-qdel", "lsf-bkill", "sge-qdel", "condor-removed", "oar-walltime"])
def test_what_is_said_of_another_job_is_not_the_victims(path, case):
    """An answer about a job that was not asked about is not taken for the victim's."""
    source, answers, _ = SAID[case]
    other = {name: re.sub(r"331042|881|1201|(?<=jobnumber {4})2", "999", text) for name, text in answers.items()}
    for name, text in other.items():
        install_answer(path, name, text)
    kind, number = _KINDS[source]
    pieces = source.of(scene(died(case), of=cluster(kind, FakeJob("w-0", number)))).collect(budget_s=5)
    assert not any(isinstance(piece, LogChunk | MemoryReading | Event) for piece in pieces)
