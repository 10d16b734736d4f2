"""What holds of all batch systems: whose a job is, what is asked, and what happens when nobody answers."""

from __future__ import annotations

import time

import pytest

from support.fake_batch_system import (
    HOST,
    WORKER,
    FakeClient,
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
from support.hanging_peers import gives_up, hanging_script, still_running
from workerdiag.model.evidence import Event, Gap, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene
from workerdiag.sources.batch import source as batch_source
from workerdiag.sources.batch.jobs import (
    GRID_ENGINE,
    HTCONDOR,
    PBS,
    SLURM,
    SYSTEMS,
    JobRecord,
    find_jobs,
    parse_batch_duration,
    parse_batch_time,
    parse_size,
    run_of_death,
)
from workerdiag.sources.batch.systems import (
    GridEngineSource,
    HTCondorSource,
    LSFSource,
    OARSource,
    PBSSource,
    SlurmSource,
)
from workerdiag.sources.host.probes import location
from workerdiag.testing import check_source

DIED = 1795251696.0
#: Each source with the variable that names its job, a number, and the commands it may run.
SOURCES = {
    SlurmSource: ({"SLURM_JOB_ID": "17"}, ("scontrol", "sacct")),
    PBSSource: ({"PBS_JOBID": "17.pbs01"}, ("qstat", "tracejob")),
    LSFSource: ({"LSB_JOBID": "17"}, ("bjobs", "bhist")),
    GridEngineSource: ({"JOB_ID": "17", "SGE_ROOT": "/opt/sge"}, ("qacct", "qstat")),
    HTCondorSource: ({"CONDOR_ID": "17.0"}, ("condor_q", "condor_history")),
    OARSource: ({"OAR_JOB_ID": "17"}, ("oarstat",)),
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder in which commands are looked for first."""
    return on_path(tmp_path, monkeypatch)


def gaps(source, *, budget_s=2.0):
    """The gaps that a source yields."""
    return [each for each in source.collect(budget_s=budget_s) if isinstance(each, Gap)]


def test_without_a_batch_system_there_is_nothing_to_ask():
    """A cluster that no batch system runs has no such sources."""
    for given in (scene(victim(DIED)), scene(victim(DIED), HOSTNAME="x"), scene(of=cluster("KubeCluster"))):
        assert [source.of(given) for source in SOURCES] == [None] * len(SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_a_job_is_known_from_the_environment_that_its_nanny_lives_in(source):
    """Each system's own variable, of the victim's own nanny, names the job."""
    environment, _ = SOURCES[source]
    (job,) = find_jobs(scene(victim(DIED), **environment), source.system).known
    assert job.id.startswith("17")
    assert [each.identity.worker for each in job.victims] == [WORKER]
    others = [system for system in SYSTEMS if system != source.system]
    assert [find_jobs(scene(victim(DIED), **environment), system) for system in others] == [None] * len(others)


@pytest.mark.parametrize("role", ["neighbour", "scheduler"])
def test_the_job_of_somebody_else_is_not_the_victims(role):
    """Another worker of the same host may be in another job: its job is asked about, the victim's name is not given to it."""
    place = Location(
        role=role, identity=Identity(nanny="tcp://10.0.0.4:1", host=HOST), environment={"SLURM_JOB_ID": "17"}
    )
    jobs = find_jobs(Scene(victims=(victim(DIED),), locations=(place,)), SLURM)
    assert [(job.id, job.victims, job.has_live_processes) for job in jobs.known] == [("17", (), True)]
    assert len(jobs.unmatched) == 1


def test_the_job_of_the_client_is_not_the_clusters():
    """Who asks from within a job of their own does not ask about that."""
    place = Location(role="client", identity=Identity(host=HOST), environment={"SLURM_JOB_ID": "17"})
    assert find_jobs(Scene(victims=(victim(DIED),), locations=(place,), client=FakeClient()), SLURM) is None


def test_job_id_is_grid_engines_only_where_grid_engine_is():
    """``JOB_ID`` is a name that anybody may use."""
    assert find_jobs(scene(victim(DIED), JOB_ID="17"), GRID_ENGINE) is None


@pytest.mark.parametrize(
    ("worker", "job"),
    [
        ("SLURMCluster-1", "102"),
        ("SLURMCluster-1-0", "102"),
        ("SLURMCluster-10", "110"),
        ("SLURMCluster-2", None),
        ("alice-1", None),
    ],
)
def test_a_job_is_known_from_the_cluster_object_by_the_workers_name(worker, job):
    """A worker, also one of several in a job, belongs to the job of exactly its name."""
    known = cluster("SLURMCluster", FakeJob("SLURMCluster-1", "102"), FakeJob("SLURMCluster-10", "110"))
    jobs = find_jobs(scene(victim(DIED, name=worker), of=known), SLURM)
    assert [each.id for each in jobs.known if each.victims] == ([job] if job else [])


def test_a_job_is_known_from_a_workers_name_that_holds_its_number():
    """HTCondor's workers, and those of older releases of dask-jobqueue, are named after their job."""
    jobs = find_jobs(scene(victim(DIED, name="htcondor--881.0--"), of=cluster("HTCondorCluster")), HTCONDOR)
    assert [each.id for each in jobs.known] == ["881.0"]


def test_jobs_without_workers_are_asked_about_before_those_that_have_some():
    """While nobody is known to be dead, jobs in which no worker lives come first."""
    known = cluster(
        "SLURMCluster",
        FakeJob("w-0", "100"),
        FakeJob("w-1", "101"),
        living={"tcp://10.0.0.5:1": {"name": "w-0"}},
    )
    jobs = find_jobs(scene(of=known), SLURM)
    assert [(each.id, each.has_live_processes) for each in jobs.known] == [("101", False), ("100", True)]


@pytest.mark.parametrize("number", ["17; rm -rf /", "-M=evil", "$(id)", "17\n18", "", "9" * 200, "../17", None])
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.clusters[0])
def test_what_is_no_job_number_never_reaches_a_command(system, number):
    """Only digits, dots and brackets, as each system writes its numbers, go into a command line."""
    assert system.valid_job_number(number) is None


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.clusters[0])
def test_the_variables_of_a_job_are_read_from_machines(system):
    """Others are not, as they may hold secrets."""
    assert set(system.variables) <= location.NAMES


def test_numbers_of_jobs_are_accepted_as_systems_write_them():
    """Arrays and names of servers are parts of a number."""
    assert SLURM.valid_job_number("17_3") == "17_3"
    assert PBS.valid_job_number("331042[7].pbs01") == "331042[7].pbs01"
    assert HTCONDOR.valid_job_number("881.0") == "881.0"


def test_the_dead_of_two_jobs_are_not_mixed_up(path):
    """Each victim gets the record of its own job."""
    head = "JobID|JobName|State|Start|End"
    rows = "\n".join(
        f"{number}|dask-worker|{state}|2026-11-21T08:00:00|2026-11-21T09:01:36"
        for number, state in (("100", "TIMEOUT"), ("101", "PREEMPTED"))
    )
    install_answer(path, "sacct", f"{head}\n{rows}\n")
    install_answer(path, "scontrol", "")
    dead = (victim(DIED), victim(DIED, name="w-1", worker="tcp://10.0.0.5:40000", nanny="tcp://10.0.0.5:1"))
    source = SlurmSource.of(scene(*dead, of=cluster("SLURMCluster", FakeJob("w-0", "100"), FakeJob("w-1", "101"))))
    told = {
        each.identity.worker: (each.identity.container, b"TIMEOUT" in each.data)
        for each in source.collect(budget_s=5)
        if isinstance(each, LogChunk)
    }
    assert told == {WORKER: ("100", True), "tcp://10.0.0.5:40000": ("101", False)}


def test_a_name_that_a_new_job_took_over_is_settled_by_time(path):
    """A cluster object gives the job that replaces a lost one the same name: the victim's is the one that ran then."""
    install_answer(
        path,
        "sacct",
        """JobID|JobName|State|Start|End
100|dask-worker|NODE_FAIL|2026-11-21T08:00:00|2026-11-21T09:01:36
105|dask-worker|RUNNING|2026-11-21T09:02:30|Unknown
""",
    )
    install_answer(path, "scontrol", "")
    known = cluster("SLURMCluster", FakeJob("w-0", "105"))
    known._created.append(FakeJob("w-0", "100"))
    source = SlurmSource.of(scene(victim(DIED), of=known))
    (chunk,) = (each for each in source.collect(budget_s=5) if isinstance(each, LogChunk))
    assert (chunk.identity.container, b"NODE_FAIL" in chunk.data) == ("100", True)


def test_a_forgotten_job_is_found_by_the_output_that_names_the_victim(path):
    """Where the cluster object has let go of a job, the file in which its worker gave its address tells the number."""
    logs = path / "logs"
    logs.mkdir()
    (logs / "dask-worker-100.err").write_text("... Start worker at:      tcp://10.0.0.4:4033\n")
    (logs / "dask-worker-104.err").write_text(f"... Start worker at:      {WORKER}\n")
    install_answer(path, "sacct", "JobID|State|Start|End\n104|NODE_FAIL|2026-11-21T08:00:00|2026-11-21T09:01:36\n")
    install_answer(path, "scontrol", "")
    known = cluster("SLURMCluster", FakeJob("w-7", "200", log_directory=str(logs)))
    source = SlurmSource.of(scene(victim(DIED, name=None), of=known))
    pieces = list(source.collect(budget_s=5))
    told = [(each.identity.worker, each.identity.container) for each in pieces if isinstance(each, LogChunk)]
    assert told == [(WORKER, "104")]


def test_refused_jobs_are_told_of(path):
    """Jobs that the cluster object wanted and that have no number were refused, and where the answer stands is said."""
    install_answer(path, "sacct", "")
    install_answer(path, "scontrol", "")
    source = SlurmSource.of(scene(of=cluster("SLURMCluster", FakeJob("w-0", None), FakeJob("w-1", None))))
    event, gap = source.collect(budget_s=5)
    assert isinstance(event, Event)
    assert (event.fields["state"], event.fields["jobs"]) == ("never-submitted", 2)
    assert (gap.reason, "job_script" in gap.remedy) == ("never-recorded", True)
    assert commands_run(path) == []
    assert explain_by(source, None).top.id == "hpc.submit-rejected"


@pytest.mark.parametrize("source", SOURCES)
def test_a_command_that_is_not_here_leaves_what_to_type_where_it_is(source, monkeypatch, tmp_path):
    """On a machine without the batch system the gap holds the command, with the number of the job."""
    monkeypatch.setenv("PATH", str(tmp_path))
    found = gaps(source.of(scene(victim(DIED), **SOURCES[source][0])))
    assert found
    assert {each.reason for each in found} == {"not-installed"}
    assert all("17" in each.remedy for each in found)


@pytest.mark.parametrize("source", SOURCES)
def test_a_job_of_which_nothing_is_kept_is_expired(source, path):
    """A system that knows nothing of a job any more leaves a gap that says so."""
    for name in SOURCES[source][1]:
        install_answer(path, name, "")
    (gap,) = gaps(source.of(scene(victim(DIED), **SOURCES[source][0])))
    assert (gap.reason, "17" in gap.remedy) == ("expired", True)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("error: Access denied: permission denied for user", "forbidden"),
        ("error: Unable to contact the controller (connect failure)", "unreachable"),
        ("error: Invalid job id specified", "expired"),
    ],
)
def test_why_a_command_failed_is_told(source, path, words, reason):
    """Forbidden, unreachable and forgotten are different gaps."""
    for name in SOURCES[source][1]:
        install_command(path, name, f"echo '{words}' >&2; exit 1")
    assert reason in {each.reason for each in gaps(source.of(scene(victim(DIED), **SOURCES[source][0])))}


BAD = {
    "hangs": "exec sleep 60",
    "floods": "exec yes 'JobId=17 JobState=RUNNING ====================== Job <17> Job Id: 17 Job_Id: 17'",
    "garbage": "head -c 200000 /dev/urandom",
    "half": "printf 'JobID|State\\n17|'; printf 'JobId=17 Job Id: 17\\n    mem = \\nJob <17\\nJob_Id: 17\\njobnumber'",
    "fails": "exit 3",
    "complains": "echo 'permission denied' >&2; exit 1",
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("how", BAD)
def test_a_batch_system_out_of_order_is_survived(source, how, path):
    """Whatever its commands do, a source keeps its budget, raises nothing and gives whose each fact is."""
    for name in SOURCES[source][1]:
        install_command(path, name, BAD[how])
    given = scene(victim(DIED), **SOURCES[source][0])
    check_source(lambda: source.of(given), budget_s=1.0, must_gap=how in ("hangs", "fails", "complains"))


@gives_up
def test_a_silent_command_is_not_asked_again_and_again(path):
    """One that does not answer is ended, however many jobs there are, and another one is heard."""
    install_command(path, "scontrol", hanging_script(path / "pids"))
    install_answer(path, "sacct", "JobID|State|Start|End\n101|TIMEOUT|2026-11-21T08:00:00|2026-11-21T09:01:36\n")
    known = cluster("SLURMCluster", *(FakeJob(f"w-{number}", f"10{number}") for number in range(9)))
    pieces = list(SlurmSource.of(scene(of=known)).collect(budget_s=2.0))
    assert any(isinstance(each, LogChunk) for each in pieces)
    assert len((path / "pids").read_text().split()) == 1
    assert still_running(path / "pids") == []


def test_a_source_is_made_without_asking_anybody(path):
    """Working out what applies runs no command."""
    for _, names in SOURCES.values():
        for name in names:
            install_answer(path, name, "")
    for source, (environment, _) in SOURCES.items():
        assert source.of(scene(victim(DIED), **environment)) is not None
    assert commands_run(path) == []


def test_only_commands_that_read_are_run(path):
    """Nothing that is run can change a job."""
    for source, (environment, names) in SOURCES.items():
        for name in names:
            install_answer(path, name, "")
        list(source.of(scene(victim(DIED), **environment)).collect(budget_s=2))
    allowed = ("scontrol show job", "sacct ", "qstat ", "tracejob ", "bjobs ", "bhist ", "qacct ", "oarstat ")
    assert commands_run(path)
    assert all(line.startswith((*allowed, "condor_q ", "condor_history ")) for line in commands_run(path))


def test_times_are_read_as_batch_systems_write_them():
    """ISO, ctime, American, and LSF's without a year."""
    assert parse_batch_time("2026-11-21T09:01:36") == DIED
    assert parse_batch_time("Sat Nov 21 09:01:36 2026") == DIED
    assert parse_batch_time("11/21/2026 09:01:36.123") == DIED
    this = time.gmtime(DIED)
    assert time.gmtime(parse_batch_time("Sat Nov 21 09:01:36"))[1:5] == this[1:5]
    assert parse_batch_time("Sat Nov 21 09:01:36") <= time.time() + 86400
    assert [parse_batch_time(text) for text in ("Unknown", "N/A", "", "None")] == [None] * 4


@pytest.mark.parametrize(
    "text", ["21/11/2026 09:01:36", "2026-13-21T09:01:36", "0000-01-01T00:00:00", "Thu Jan  1 00:00:00 0000"]
)
def test_a_time_of_no_such_day_is_not_known(text):
    """A site that writes the day before the month loses the time of a job, and not all that is known of it."""
    assert parse_batch_time(text) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("364528K", 364528 * 2**10),
        ("954M", 954 * 2**20),
        ("4000Mn", 4000 * 2**20),
        ("2412340kb", 2412340 * 2**10),
        ("151.734MB", int(151.734 * 2**20)),
        ("4G", 4 * 2**30),
        ("1024", 1024),
        ("4Gc", None),
        ("16?", None),
        ("", None),
        ("0", None),
    ],
)
def test_sizes_are_read_as_batch_systems_write_them(text, size):
    """Per-node sizes are the job's; of those per core the whole is not known."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "length"),
    [("01:00:05", 3605), ("1-02:03:04", 93784), ("03:04", 184), ("21s", 21), ("20", 20), ("UNLIMITED", None)],
)
def test_durations_are_read_as_batch_systems_write_them(text, length):
    """Days, hours, minutes and plain seconds."""
    assert parse_batch_duration(text) == length


def test_a_run_that_ended_hours_before_is_of_another_death():
    """Records that do not cover the time of death are not the victim's."""
    old = JobRecord(job="1", text="", started=DIED - 9000, ended=DIED - 7200)
    assert run_of_death([old], DIED) is None
    assert run_of_death([old], DIED - 8000) is old


def test_what_is_handed_on_of_one_record_is_bounded(path):
    """A record of a hundred megabytes does not get through."""
    rows = "\n".join(f"17.{step}|FAILED|{'x' * 500}" for step in range(5000))
    install_answer(path, "sacct", f"JobID|State|Comment\n17|FAILED|x\n{rows}\n")
    install_answer(path, "scontrol", "")
    source = SlurmSource.of(scene(victim(DIED), SLURM_JOB_ID="17"))
    (chunk,) = (each for each in source.collect(budget_s=5) if isinstance(each, LogChunk))
    assert len(chunk.data) <= batch_source._MAX_CHARS


def test_nothing_of_the_environment_is_told(path):
    """What batch systems keep of a user's environment and command lines does not come back as evidence."""
    install_answer(
        path,
        "qstat",
        """Job Id: 17.pbs01
    job_state = F
    Variable_List = PBS_O_HOME=/home/alice,TOKEN=secret-1,
	LONG=secret-2
    Submit_arguments = -v KEY=secret-3 job.sh
    Exit_status = 271
""",
    )
    (path / "qstat").rename(path / "pbs")
    install_answer(
        path, "sge", "job_number:                 17\nenv_list:                   TERM=NONE,KEY=secret-4\n"
    )
    install_command(path, "qstat", '[ "$1" = -j ] && exec sge; exec pbs')
    install_answer(path, "qacct", "")
    script = "Command <#!/bin/sh;export KEY=secret-5;dask worker>"
    install_answer(
        path, "bjobs", f"Job <17>, Status <EXIT>, Queue <normal>, {script}\nSat Nov 21 08:01:20: Submitted\n"
    )
    install_answer(path, "bhist", "")
    install_answer(path, "oarstat", "Job_Id: 17\n    state = Error\n    command = env KEY=secret-6 dask worker\n")
    for source, (environment, _) in SOURCES.items():
        if source in (PBSSource, LSFSource, GridEngineSource, OARSource):
            pieces = list(source.of(scene(victim(None), **environment)).collect(budget_s=2))
            assert any(isinstance(each, LogChunk) for each in pieces), source
            assert b"secret" not in b"".join(each.data for each in pieces if isinstance(each, LogChunk)), source
