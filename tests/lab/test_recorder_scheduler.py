"""Real deaths with the whole flight recorder. Each test makes one promise about what `explain` knows by it."""

from __future__ import annotations

import json
import os
import signal

import dask
import pytest
from distributed import KilledWorker, LocalCluster

import workerdiag
from workerdiag.model.evidence import TasksAtLoss
from workerdiag.recorder.scheduler import HANDLER
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.queries import ClusterQuestion
from workerdiag.sources.exception import exception_facts
from workerdiag.sources.recorder.source import RecorderSource
from workerdiag.wire import DEATH_TOPIC, PLUGIN_NAME

from . import tasks
from .cluster import Client, arrived, raised
from .processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]
common = pytest.mark.common


def recorded(lab, *, workers=1, allowed=0, **options):
    """The client of a cluster with the recorder everywhere."""
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=str(allowed))
    for number in range(workers):
        lab.worker(name=f"worker-{number}", **options)
    client = lab.client(workers=workers)
    workerdiag.install(client)
    return client


def explained(client, exc=None):
    """A diagnosis by what the cluster and the recorder know, right after the fact."""
    facts = [each for each in exception_facts(exc) if hasattr(each, "task")] if exc is not None else []
    about = [each.identity for each in facts if each.identity.worker]
    named = [each.task for each in facts if each.task]
    sources = [
        ClusterSource(client, ClusterQuestion(about=about)),
        RecorderSource(client, about=about, tasks=named),
    ]
    return workerdiag.explain(exc, client, sources=sources, timeout="30s")


def records(client):
    """What the scheduler's ring has."""

    async def ask():
        return await client.scheduler.workerdiag_deaths(wait_s=1.0)

    return client.sync(ask)["deaths"]


@common
@pytest.mark.parametrize(
    ("task", "arguments", "exit_"),
    [
        (tasks.segfault, (), (signal.SIGSEGV, None)),
        (tasks.abort, (), (signal.SIGABRT, None)),
        (tasks.exit_at_once, (0,), (None, 0)),
        (tasks.exit_at_once, (3,), (None, 3)),
        (tasks.exit_at_once, (137,), (None, 137)),
    ],
)
def test_exit_and_running_task_are_right(lab, task, arguments, exit_):
    """Whatever a task does to its process, and at once: how it ended, and what ran."""
    client = recorded(lab)
    exc = raised(client.submit(task, *arguments, mark=lab.mark(), key="crash"))
    diagnosis = explained(client, exc)
    (death,) = (each for each in diagnosis.deaths if each.identity.pid == lab.running())
    assert ((death.signal, death.status), death.executing) == (exit_, ("crash",))
    assert diagnosis.blame.fairly_blamed is True
    assert diagnosis.outcome == "explained"


@common
def test_a_bystander_is_not_blamed(lab):
    """Of two tasks on one thread, the one that never began is cleared with certainty."""
    lab.scheduler(
        DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="3",
        DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION="inf",
    )
    lab.worker()
    client = lab.client()
    workerdiag.install(client)
    hold = client.submit(tasks.nap, 2, key="hold")  # until the worker has both
    guilty = arrived(client, client.submit(tasks.segfault, key="guilty", priority=10))
    bystander = arrived(client, client.submit(tasks.nap, 0.01, key="bystander"))
    del hold
    assert isinstance(raised(guilty), KilledWorker)
    by_chance = raised(bystander)
    diagnosis = explained(client, by_chance)
    assert (diagnosis.blame.verdict, diagnosis.blame.fairly_blamed) == ("other-task", False)
    assert diagnosis.blame.task == "bystander"
    assert any("guilty" in reason for reason in diagnosis.blame.reasons)
    assert explained(client, raised(guilty)).blame.fairly_blamed is True


def test_all_deaths_of_a_task_are_known_by_thread_and_time(lab):
    """Also with Dask's own patience: four processes, each with what ran in it."""
    client = recorded(lab, allowed=3)
    exc = raised(client.submit(tasks.segfault, key="crash"))
    diagnosis = explained(client, exc)
    assert [(each.signal, each.executing) for each in diagnosis.deaths] == [(signal.SIGSEGV, ("crash",))] * 4
    assert "task crash was running on 4 of the 4 workers lost" in diagnosis.blame.reasons
    assert sum("the thread that crashed" in reason for reason in diagnosis.blame.reasons) == 4


def test_a_kill_from_outside_is_no_tasks_doing(lab):
    """SIGKILL to the worker: the exit is exact, the running task known."""
    client = recorded(lab)
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    pid = lab.running()
    os.kill(pid, signal.SIGKILL)
    diagnosis = explained(client, raised(future))
    assert [(each.identity.pid, each.signal, each.executing) for each in diagnosis.deaths] == [
        (pid, signal.SIGKILL, ("nap",))
    ]


def test_workers_of_one_host_that_go_together_are_told_of_together(lab):
    """Two lost within seconds name each other."""
    client = recorded(lab, workers=2, allowed=3)
    gone = sorted(client.scheduler_info(n_workers=-1)["workers"])
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(records(client)) == 2, "both records")
    evidence = list(RecorderSource(client).collect(budget_s=10))
    said = [each for each in evidence if getattr(each, "topic", "") == "recorder"]
    assert {each.identity.worker: each.fields["lost_together"] for each in said} == dict(
        zip(gone, reversed(gone), strict=True)
    )
    reasons = explained(client).blame.reasons
    assert "2 workers of 127.0.0.1 were lost within 5 s of each other" in reasons


def test_a_restart_of_the_cluster_loses_no_record(lab):
    """After `Client.restart` what was recorded is there, and the next death is recorded too."""
    client = recorded(lab)
    raised(client.submit(tasks.exit_at_once, 3, key="before"))
    wait_until(lambda: len(records(client)) == 1, "the first record")
    client.wait_for_workers(1, timeout=PATIENCE_S)
    client.restart(timeout=PATIENCE_S)
    exc = raised(client.submit(tasks.exit_at_once, 4, key="after"))
    diagnosis = explained(client, exc)
    (death,) = (each for each in diagnosis.deaths if each.status == 4)
    assert death.executing == ("after",)
    statuses = [each["report"]["exit"]["status"] for each in records(client) if "report" in each]
    assert (statuses[0], statuses[-1]) == (3, 4)
    assert not [each for each in diagnosis.deaths if not each.stop_requested and each.status not in (3, 4)]


def test_workers_that_an_adaptive_cluster_starts_are_recorded(lab):
    """Installed before there was any worker; those that are let go again are no deaths."""
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        workerdiag.install(client)
        cluster.scheduler.allowed_failures = 0
        cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)
        assert client.submit(tasks.nap, 0.1).result(timeout=PATIENCE_S) == "rested"
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "all workers to be let go")
        assert all(death.stop_requested for death in explained(client).deaths)
        exc = raised(client.submit(tasks.exit_at_once, 5, key="crash"))

        def executing():
            return [each.executing for each in explained(client, exc).deaths if each.status == 5]

        # The nannies share this process: on a busy machine their report is late.
        wait_until(lambda: executing() == [("crash",)], "the record of the task that ran")


@common
def test_uninstalling_leaves_the_scheduler_as_it_was(lab):
    """No plugin, no handler; asking afterwards is no warning in the scheduler's log."""
    client = recorded(lab)
    workerdiag.install(client)
    workerdiag.uninstall(client)

    def left(dask_scheduler):
        return PLUGIN_NAME in dask_scheduler.plugins or HANDLER in dask_scheduler.handlers

    assert client.run_on_scheduler(left) is False
    assert list(RecorderSource(client).collect(budget_s=10)) == []
    assert "No handler" not in lab.daemons["scheduler"].log.read_text()


@common
def test_the_scheduler_takes_part_on_every_release(lab):
    """Each private part that is touched on the scheduler is there, so nothing is done without."""
    client = recorded(lab)
    raised(client.submit(tasks.exit_at_once, 3, key="crash"))

    async def ask():
        return await client.scheduler.workerdiag_deaths(wait_s=1.0)

    reply = client.sync(ask)
    (death,) = reply["deaths"]
    assert reply["missing"] == {}
    assert death["record"]["allowed_failures"] == 0
    assert [each["key"] for each in death["record"]["given_up"]] == ["crash"]
    assert death["record"]["address_host"] == "127.0.0.1"
    assert (
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler._broker._topics[DEATH_TOPIC].events.maxlen)
        == 64
    )


def test_records_outlive_the_scheduler(lab):
    """What was appended says how the worker ended, after the scheduler was killed."""
    path = lab.folder / "deaths.jsonl"
    scheduler = lab.scheduler(
        DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0", DASK_WORKERDIAG__RECORDER__APPEND_TO=str(path)
    )
    lab.worker()
    client = lab.client()
    workerdiag.install(client)
    raised(client.submit(tasks.exit_at_once, 3, key="crash"))
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= 2, "two lines")
    scheduler.send(signal.SIGKILL)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"removal", "nanny-report"}
    assert [line["exit"]["status"] for line in lines if line["kind"] == "nanny-report"] == [3]


def join(inputs, number, megabytes=0):
    """Take results of others, and perhaps far too much memory."""
    held = bytearray(megabytes * tasks.MB)
    return bytes(1000 * number + 1000) + bytes(held[:0])


@common
def test_the_sizes_around_a_killed_task_outlive_the_computation(lab):
    """After ``compute`` has failed the scheduler knows nothing of it any more, and the recorder still does."""
    client = recorded(lab, memory_limit="300MB")
    loads = [dask.delayed(bytes)(100_000 * (n + 1), dask_key_name=f"load-{n}") for n in range(3)]
    joins = [dask.delayed(join)(loads, n, dask_key_name=f"join-{n}") for n in range(3)]
    deadly = dask.delayed(join)([loads, joins, bytes(200_000)], 9, 600, dask_key_name="join-9")
    try:
        deadly.compute(scheduler=client)
    except KilledWorker as killed:
        error = killed
    wait_until(
        lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)), "all forgotten"
    )
    evidence = RecorderSource(client, tasks=["join-9"]).collect(budget_s=PATIENCE_S)
    (loss,) = (each for each in evidence if isinstance(each, TasksAtLoss))
    (facts,) = (each for each in loss.facts if each.key == "join-9")
    assert facts.input_count == 6
    assert 600_000 <= facts.input_bytes < 620_000
    assert (facts.inputs[0].key, facts.inputs[0].size_bytes // 1000) == ("load-2", 300)
    assert 200_000 < facts.spec_bytes < 300_000
    assert facts.finished_siblings >= 3
    assert workerdiag.explain(error, client).top.id == "nanny.memory-terminate"
