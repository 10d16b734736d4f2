"""Advice in the terms of the cluster at hand, and the advice that Dask's and Coiled's own pages give."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import workerdiag
from workerdiag import LogText
from workerdiag.correlation.assemble import assemble
from workerdiag.errors import RuleFileError
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Event, ExceptionFacts
from workerdiag.model.identity import Identity
from workerdiag.model.rules import Cause, Mitigation, Rulebook
from workerdiag.model.scene import Location, Scene
from workerdiag.model.vocabulary import DEPLOYMENTS
from workerdiag.pipeline import diagnose
from workerdiag.rendering.cause import render_cause
from workerdiag.rulebook.load import load_rulebook, shipped_folder
from workerdiag.rulebook.toml_folder import read_folder
from workerdiag.scoring.advice import (
    ClusterSetup,
    MemoryNumbers,
    applicable_advice,
    cluster_setup,
    fill_example,
    mitigations,
)
from workerdiag.sources.scene import deployment_of, setup_events

DASHBOARD = "http://10.0.0.2:8787/status"
GAVE_UP = (
    "distributed.scheduler.KilledWorker: Attempted to run task 'inc-1' on 7 different workers, but all those "
    "workers died while running it. The last worker that attempt to run the task was tcp://10.0.0.4:4002."
)
PAGE = Path(__file__).parents[2] / "docs" / "advice.md"
#: What only a person at a command line types; Coiled starts workers itself.
WORKER_COMMAND = re.compile(r"\bdask[ -]worker\b")


@pytest.fixture(scope="module")
def book() -> Rulebook:
    """The rules that ship."""
    return load_rulebook(packs=False)


class FakeClient:
    """A client with nothing but what is read of one."""

    def __init__(self, cluster: object = None) -> None:
        self.cluster = cluster

    @property
    def dashboard_link(self) -> str:
        raise AssertionError("asks the scheduler, which may be stopped, and waits for it")


def cluster_of(package: str, name: str) -> Any:
    """An object of a class of that name from that package."""
    return type(name, (), {"__module__": f"{package}.core", "name": "blue"})()


@pytest.mark.parametrize(
    ("package", "name", "deployment"),
    [
        ("coiled", "Cluster", "coiled"),
        ("dask_jobqueue", "SLURMCluster", "batch"),
        ("dask_kubernetes", "KubeCluster", "kubernetes"),
        ("dask_gateway", "GatewayCluster", "gateway"),
        ("dask_cloudprovider", "FargateCluster", "cloud"),
        ("distributed", "LocalCluster", "local"),
        ("my_company", "Cluster", "command-line"),
    ],
)
def test_a_cluster_object_tells_how_the_cluster_was_brought_up(package, name, deployment):
    """By its class or the package of it; another's class says nothing, as if there was none."""
    assert deployment_of(Scene(client=FakeClient(cluster_of(package, name)))) == deployment


def test_without_a_cluster_object_the_place_of_the_dead_tells_it():
    """A client that was given an address has none; the variables of a batch job or pod are left."""
    place = Location(role="nanny", identity=Identity(), environment={"SLURM_JOB_ID": "4711"})

    assert deployment_of(Scene(client=FakeClient(), locations=(place,))) == "batch"
    assert deployment_of(Scene(client=FakeClient())) == "command-line"


def test_a_link_to_a_dashboard_loses_its_token():
    """Managers put tokens into the query, and reports are passed on."""
    cluster = SimpleNamespace(dashboard_link=f"{DASHBOARD}?token=hunter2")
    setup = next(setup_events(Scene(client=FakeClient(cluster))), None)

    assert setup is not None
    assert setup.fields["dashboard"] == DASHBOARD


def test_a_client_without_a_cluster_object_knows_the_dashboard_from_when_it_connected():
    """Nobody is asked: a scheduler that is stopped would hold the question for ever."""
    client = FakeClient()
    client.scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786")
    client._scheduler_identity = {"services": {"dashboard": 8787}}
    setup = next(setup_events(Scene(client=client)), None)

    assert setup is not None
    assert setup.fields["dashboard"] == "http://10.0.0.1:8787/status"
    assert next(setup_events(Scene(client=FakeClient())), None).fields["dashboard"] is None


def test_a_client_that_raises_tells_nothing():
    """Reading attributes of others may run any code, and costs no more than their answer."""

    class Broken(FakeClient):
        @property
        def cluster(self):
            raise RuntimeError("no")

        @cluster.setter
        def cluster(self, value):
            pass

    assert next(setup_events(Scene(client=Broken())), None) is None


@pytest.mark.parametrize(
    ("line", "deployment"),
    [
        ("distributed.worker - INFO - Starting Worker plugin coiled-aws-env", "coiled"),
        ("Register worker addr: tcp://10.0.0.4:4002 name: SLURMCluster-4", "batch"),
        ("[I 2026-05-04 11:22:33.444 dask-gateway-worker] Starting worker 2", "gateway"),
        ("21/11/28 10:47:18 INFO skein.ApplicationMaster: REQUESTED: dask.worker_0", "yarn"),
    ],
)
def test_logs_tell_how_the_cluster_was_brought_up(line, deployment):
    """Where nothing else is left, a manager's own words name it."""
    findings = workerdiag.explain(logs=[LogText(f"{line}\n{GAVE_UP}\n")])
    wanted = next(iter(mitigation_examples("allowed-failures", deployment)))

    assert wanted in [each.command for each in findings.next_steps]


def mitigation_examples(advice: str, deployment: str) -> set[str]:
    """What that advice says to type on that deployment."""
    shared = [each for each in load_rulebook(packs=False).advice if each.advice == advice]
    return {
        each.example
        for each in applicable_advice(shared, {"gave_up": "a task"}, ClusterSetup(deployment=deployment))
    }


@pytest.mark.parametrize(
    ("name", "example", "expected"),
    [
        ("SGECluster", 'SLURMCluster(interface="ib0")', 'SGECluster(interface="ib0")'),
        ("PBSCluster", "SLURMCluster(walltime='12:00:00')", "PBSCluster(walltime='12:00:00')"),
        ("HTCondorCluster", "SLURMCluster(walltime='12:00:00')", "SLURMCluster(walltime='12:00:00')"),
        ("SGECluster", "SLURMCluster(job_extra_directives=['--exclusive'])", None),
        (None, "SLURMCluster(death_timeout=300)", None),
    ],
)
def test_an_example_is_written_for_the_batch_system_at_hand(name, example, expected):
    """All clusters of dask-jobqueue share most options; what is Slurm's own stays as an example."""
    advice = Mitigation(when="", do="Do this.", example=example)

    [told] = applicable_advice([advice], {}, ClusterSetup(deployment="batch", jobqueue_class=name))

    assert told.example == (expected or example)


def test_on_coiled_nobody_is_told_to_type_the_worker_command(book):
    """Whatever the cause: Coiled starts workers itself, so such an example is another one or none."""
    for cause in book.causes:
        told = mitigations(cause, MemoryNumbers(), [], ClusterSetup(deployment="coiled"))
        typed = [each.example for each in told if re.search(r"\bdask[ -]worker tcp", each.example)]
        assert typed == [], cause.id


#: Options and variables of `dask worker` that `coiled.Cluster` has as well.
COILED_CAN = re.compile(r"dask worker .*--(?:memory-limit|nthreads|lifetime)\b|^[A-Z_]{8,}=\S+ dask worker")


def test_what_coiled_can_do_is_said_in_its_words(book):
    """Memory, threads, lifetime and environment of workers have a form for Coiled where a command has them.

    Causes that only Kubernetes or a service manager has never meet Coiled.
    """
    lacking = [
        f"{cause.id}: {each.example}"
        for cause in book.causes
        for each in cause.mitigations
        if COILED_CAN.search(each.example) and "coiled" not in each.examples and not each.deployments
    ]
    elsewhere = ("kubernetes.", "memory.throttled", "nanny.start-timeout", "exit.death-timeout")

    assert [each for each in lacking if not each.startswith(elsewhere)] == []


def killed_worker(allowed: int | None) -> list[ExceptionFacts]:
    """A caught KilledWorker that allows so many failures."""
    identity = Identity(worker="tcp://10.0.0.4:4002")
    return [
        ExceptionFacts(
            type="distributed.scheduler.KilledWorker",
            text="gave up",
            task="inc-1",
            allowed_failures=allowed,
            identity=identity,
        )
    ]


def test_every_killed_worker_is_told_of_allowed_failures(book):
    """Every cause that ends workers, and no cause at all, say what it is, and what it was set to here."""
    setting = cluster_setup(assemble([], killed_worker(6)))
    for cause in ended(book):
        said = [
            each.do for each in mitigations(cause, MemoryNumbers(), [], setting) if "`allowed-failures`" in each.do
        ]
        assert said, cause.id
        assert "deaths is 7" in said[0], cause.id
        assert "is 6 here" in said[0], cause.id
    findings = diagnose(killed_worker(6), book)
    assert findings.outcome == "unknown"
    assert any("`allowed-failures` is 6 here" in each.inspect for each in findings.next_steps)


def ended(book: Rulebook) -> list[Cause]:
    """The causes with which a worker that ran came to its end."""
    return [each for each in book.causes if each.ends not in ("never-started", "standstill")]


def test_without_its_number_the_advice_on_allowed_failures_is_worded_without(book):
    """Old releases do not say how many they allow; then no sentence claims a number."""
    setting = cluster_setup(assemble([], killed_worker(None)))
    told = mitigations(book.cause("signal.segfault"), MemoryNumbers(), [], setting)
    said = next(each.do for each in told if "`allowed-failures`" in each.do)

    assert "Dask gave up on task inc-1." in said
    assert "The count" not in said
    assert " here" not in said


def test_who_gave_up_nothing_is_not_told_of_allowed_failures(book):
    """A worker died and its tasks ran elsewhere: the number had no part in it."""
    told = mitigations(book.cause("signal.segfault"), MemoryNumbers(), [])
    assert not any("allowed-failures" in each.do for each in told)


def test_a_killed_worker_in_a_log_says_what_was_allowed():
    """Its message counts the losses: one more than is allowed."""
    findings = workerdiag.explain(logs=[LogText(GAVE_UP)])
    assert any("deaths is 7" in each.inspect and "is 6 here" in each.inspect for each in findings.next_steps)


def test_the_memory_plot_is_linked_where_there_is_a_dashboard(book):
    """The link is of this scheduler's own dashboard; from logs alone there is none to open."""
    setup = Event(topic="cluster-setup", fields={"deployment": "local", "dashboard": DASHBOARD})
    live = cluster_setup(assemble(diagnose_marks([setup], book), [setup]))
    oom = book.cause("nanny.memory-terminate")

    assert any(DASHBOARD in each.do for each in mitigations(oom, MemoryNumbers(), [], live))
    assert not any("curve" in each.do for each in mitigations(oom, MemoryNumbers(), []))


def diagnose_marks(evidence: list[Any], book: Rulebook) -> list[Any]:
    """What matching makes of *evidence*."""
    from workerdiag.matching.match import search

    return search(evidence, book).matches


def test_a_failed_task_is_said_to_be_run_again_at_home():
    """Nothing died, and the error can be had in one's own process, with the limits of that."""
    text = "2026-05-04 11:22:33,444 - distributed.worker - WARNING - Compute Failed\nKey:       f-1\nFunction:  f\n"
    findings = workerdiag.explain(logs=[LogText(text)])

    assert findings.outcome == "no-death"
    assert "func(*client.gather(inputs))" in findings.next_steps[0].command
    assert "It cannot work" in findings.next_steps[0].inspect


def test_end_worker_is_an_orderly_goodbye():
    """The last line that Dask's page quotes: the worker was asked to stop, and nothing is to be done."""
    findings = workerdiag.explain(
        logs=[LogText("2026-05-04 11:22:33,444 - distributed.dask_worker - INFO - End worker\n")]
    )

    assert findings.outcome == "no-death"
    assert "asked to stop" in findings.summary


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("pynvml.nvml.NVMLError_Uninitialized: Uninitialized", "Switch GPU monitoring off"),
        ("Failed to initialize NVML: Driver/library version mismatch", "Restart the machine"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "Find the kernel"),
        (
            "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
            "See who holds the card",
        ),
        ("RuntimeError: CUDA error: no CUDA-capable device is detected", "See that the machine has a card"),
    ],
)
def test_advice_that_needs_a_sign_does_not_let_shared_advice_before_it(line, first):
    """Shared advice comes after the first two of a cause's own that show, whichever signs these need."""
    findings = workerdiag.explain(
        logs=[LogText(f"2026-05-04 11:22:33,444 - distributed.worker - ERROR - {line}\n")]
    )

    assert findings.causes[0].id == "gpu.driver-fault"
    assert findings.causes[0].mitigations[0].do.startswith(first)


def test_shared_advice_that_names_no_cause_is_refused(tmp_path):
    """It would be given to nobody; unknown deployments and keys are named with their file, too."""
    (tmp_path / "shared").mkdir()
    text = 'id = "a"\ncauses = ["house.roof"]\n[[mitigation]]\ndo = "Leave."\ndeployments = ["moon"]\n'
    (tmp_path / "shared" / "a.toml").write_text(text)
    (tmp_path / "shared" / "b.toml").write_text('id = "b"\ncauses = ["house.roof"]\n[[mitigation]]\ndo = "Go."\n')
    with pytest.raises(RuleFileError) as caught:
        read_folder(tmp_path)

    assert any("a.toml: .mitigation[0].deployments" in each for each in caught.value.problems)
    assert "shared/b.toml: names a cause that is not there: house.roof" in caught.value.problems


def rows() -> list[tuple[str, ...]]:
    """The rows of the table of advice, each cell without blanks around it."""
    lines = [each for each in PAGE.read_text(encoding="utf-8").splitlines() if each.startswith("|")]
    cells = [tuple(cell.strip() for cell in each.strip("|").split(" | ")) for each in lines]
    return [each for each in cells[1:] if len(each) == 4]


def in_code(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_the_table_of_advice_is_true(row, book):
    """Each cause that a row names really gives the words that the row names."""
    _, _, words, where = row
    causes = [each for name in in_code(where) for each in named(name, book)]
    for cause in causes:
        said = "\n".join(
            "\n".join((each.do, each.when, each.example, *each.examples.values())) for each in cause.mitigations
        )
        for word in in_code(words):
            assert word in said, f"{cause.id} does not say {word}"
    assert causes or "no cause" in where


def named(name: str, book: Rulebook) -> list[Cause]:
    """The causes of an id, or of a family as ``signal.*``."""
    found = [each for each in book.causes if name in (each.id, f"{each.family}.*")]
    assert found, f"docs/advice.md names {name}, which is no cause"
    return found


def test_the_table_of_advice_tells_of_all_shared_advice():
    """Whoever adds mitigations under knowledge/shared says on the page what they are for."""
    paths = (shipped_folder() / "shared").glob("*.toml")
    files = {path.stem for path in paths if "[[mitigation]]" in path.read_text(encoding="utf-8")}
    text = PAGE.read_text(encoding="utf-8")

    assert [each for each in sorted(files) if f"`{each}`" not in text] == []


def test_every_deployment_is_a_landmark_or_is_what_is_left(book):
    """A deployment that logs could name has a landmark of its name; the command line has no words of its own."""
    marks = {each.id.partition(".")[2] for each in book.landmarks if each.id.startswith("deployment.")}
    assert marks == set(DEPLOYMENTS) - {"command-line"}


def test_how_a_cluster_was_brought_up_earns_no_all_clear():
    """A word that names a manager is no sign that its workers are well."""
    assert workerdiag.explain(logs=[LogText("we use a LocalCluster\n")]).outcome == "no-evidence"


def test_a_suggested_command_cannot_be_ended_by_a_name():
    """Names come from clusters and logs; what is typed treats them as one word."""
    typed = fill_example("coiled cluster logs --cluster {cluster}", {"cluster": "a'; rm -rf ~ #"})
    assert shlex.split(typed) == ["coiled", "cluster", "logs", "--cluster", "a';rm-rf~#"]


def test_a_shown_cause_tells_what_is_typed_where(book):
    """`workerdiag knowledge show` and the pages of the site list the forms for each deployment."""
    shown = render_cause(book.cause("nanny.memory-terminate"))

    assert "# on coiled:" in shown
    assert "Only on: kubernetes" in shown


def test_a_fault_inside_libc_is_not_blamed_on_its_package(book):
    """Whoever called into libc did it: there is no package to pin."""
    cause = book.cause("signal.segfault")
    none = MemoryNumbers()

    def advised(module):
        seen = Match(owner=cause.id, sign=cause.signs[0].name, role="sign", captures={"module": module})
        return " ".join(each.do for each in mitigations(cause, none, [seen]))

    assert "The fault was in libhdf5.so.200" in advised("libhdf5.so.200")
    assert "The fault was in" not in advised("libc.so.6")


def test_on_a_cluster_of_this_process_nobody_is_told_to_type_dask_worker(book):
    """A LocalCluster starts its workers itself: advice is in its terms, or without an example."""
    local = ClusterSetup(deployment="local")
    for cause in book.causes:
        for each in applicable_advice(cause.mitigations, {}, local):
            assert not re.search(r"\bdask[ -]worker (?:tcp|\.\.\.|--)", each.example), cause.id


def test_first_advice_types_nothing_of_one_platform_where_none_is_known():
    """Outside of what one platform does, the first example is none of Slurm, Kubernetes or Docker."""
    of_one_platform = re.compile(
        r"\b(?:SLURM|PBS|Kube)Cluster\b|\b(?:kubectl|sbatch|sacct)\b|^ *resources:|^FROM ", re.MULTILINE
    )
    platforms = {"hpc", "kubernetes", "cloud", "coiled", "yarn"}
    book = load_rulebook(packs=False)
    others = [each for each in book.causes if each.mitigations and each.family not in platforms]
    typed = {each.id for each in others if of_one_platform.search(each.mitigations[0].example)}
    assert typed == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=>> PBS: job killed: walltime 3622 exceeded limit 3600\n", "PBSCluster("),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n", "LSFCluster("),
        ("failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit\nru_wallclock 3601s\n", "SGECluster("),
        ("slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-05-04T11:22:33 DUE TO TIME LIMIT ***\n", "SLURMCluster("),
    ],
)  # fmt: skip
def test_the_words_of_a_batch_system_tell_which_it_is(text, expected):
    """From a log alone, examples are for the system that wrote it."""
    top = workerdiag.explain(logs=LogText(text), timeout="60s").top
    assert top is not None
    assert any(expected in each.example for each in top.mitigations)


def advice_for_silent_and_paused(**fields: str | int) -> str:
    """Everything that is advised for a worker that is silent, and for one that is paused."""
    texts = []
    for state in ({"silent": True, "status": "running"}, {"status": "paused"}):
        known = {"pid": 4711, "address": "tcp://10.0.0.4:1", **state, **fields}
        event = Event(topic="worker-state", fields=known, identity=Identity(worker="tcp://10.0.0.4:1"))
        waits = Event(topic="scheduler-state", fields={"workers": 1, "waiting_tasks": 2})
        found = diagnose([event, waits], load_rulebook())
        texts += [f"{each.do} {each.example}" for each in found.top.mitigations]
    return " ".join(texts)


def test_workers_without_a_nanny_are_not_to_be_restarted_by_dask():
    """`client.restart_workers` raises there: the process itself has to be ended, and is named."""
    assert "client.restart_workers([" in advice_for_silent_and_paused(nanny="tcp://10.0.0.4:2")
    without = advice_for_silent_and_paused()
    assert "client.restart_workers([" not in without
    assert "kill 4711" in without


def test_a_process_that_is_known_is_named_in_commands():
    """Nobody has to look up what the report knows."""
    text = advice_for_silent_and_paused(nanny="tcp://10.0.0.4:2")
    assert "py-spy dump --native --pid 4711" in text
    assert "client.restart_workers(['tcp://10.0.0.4:1'])" in text
    assert "PID" not in text


def test_an_actor_whose_worker_died_is_to_be_created_again(book):
    """Dask restores no actor, whatever ended its worker; without an actor nothing is said of one."""
    lost = ExceptionFacts(
        type="builtins.OSError",
        text="Unable to contact Actor's worker",
        task="counter",
        identity=Identity(worker="tcp://10.0.0.4:4002"),
    )
    for facts, is_said in (([lost], True), (killed_worker(6), False)):
        setting = cluster_setup(assemble([], facts))
        told = mitigations(book.cause("signal.segfault"), MemoryNumbers(), [], setting)
        assert any("Create the actor counter again" in each.do for each in told) == is_said
