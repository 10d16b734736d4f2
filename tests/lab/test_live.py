"""A live cluster that cannot be asked, or not at once: never an all-clear, and the same answer twice."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from distributed import Client

import workerdiag
from workerdiag.model.evidence import Gap, Inspected
from workerdiag.sources.cluster import ClusterSource

from . import tasks
from .catalogue import Aftermath
from .cluster import IMPATIENT, raised
from .processes import Daemon, wait_until

pytestmark = pytest.mark.lab

#: A Python of another environment with an old distributed, for the test of versions.
OLD_PYTHON = "WORKERDIAG_LAB_OLD_PYTHON"


def running(lab):
    """A client of a scheduler and a worker that are well."""
    lab.scheduler()
    lab.worker()
    return lab.client()


def places(client):
    """Where one round of questions looked, and what it could not look at."""
    evidence = list(ClusterSource(client).collect(budget_s=2.0))
    return {each.place for each in evidence if isinstance(each, Inspected)}, [
        each for each in evidence if isinstance(each, Gap)
    ]


def with_a_death(lab):
    """A client of the same, whose worker crashed and is back."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    raised(client.submit(tasks.segfault, key="crash"))
    client.wait_for_workers(1)
    wait_until(
        lambda: (
            len(client.scheduler_info(n_workers=-1)["workers"]) == 1
            and set(client.run(tasks.status, nanny=True).values()) == {"running"}
        ),
        "the nanny to see its new worker",
    )
    return client


def answer_of(diagnosis):
    """What a reader takes away."""
    return diagnosis.top.id, diagnosis.outcome


def test_a_closed_client_is_no_all_clear(lab, explain):
    """Nobody was asked, so nobody can be said to be well."""
    running(lab)
    with Client(lab.address, set_as_default=False) as client:
        pass
    looked, gaps = places(client)
    assert (looked, [gap.reason for gap in gaps]) == (set(), ["unreachable"])
    assert explain(Aftermath(client=client)).outcome != "no-death"


def test_a_stopped_scheduler_is_no_all_clear(lab, explain):
    """It says nothing, so no place was looked at."""
    client = running(lab)
    os.kill(lab.daemons["scheduler"].pid, signal.SIGSTOP)
    looked, gaps = places(client)
    diagnosis = explain(Aftermath(client=client), timeout="4s")
    os.kill(lab.daemons["scheduler"].pid, signal.SIGCONT)
    assert (looked, {gap.reason for gap in gaps}) == (set(), {"timed-out"})
    assert diagnosis.outcome != "no-death"


def test_a_scheduler_that_is_back_in_time_is_asked_again(lab, explain):
    """What was cut is asked for once more before a user is told to do that by hand: the same answer twice."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    problem = raised(client.submit(tasks.segfault, key="crash"))
    scheduler = lab.daemons["scheduler"].pid
    os.kill(scheduler, signal.SIGSTOP)
    back = threading.Timer(6, os.kill, (scheduler, signal.SIGCONT))
    back.start()
    first = explain(Aftermath(exc=problem, client=client), timeout="20s")
    back.join()
    second = explain(Aftermath(exc=problem, client=client), timeout="20s")
    assert [each.top.id for each in (first, second)] == ["signal.segfault"] * 2


def test_asking_changes_nothing(lab, explain):
    """The scheduler keeps the topics and events that it had, however often it is asked: the answer stays."""
    client = with_a_death(lab)
    before = client.run_on_scheduler(tasks.events_kept)
    found = {answer_of(explain(Aftermath(client=client))) for _ in range(3)}
    assert client.run_on_scheduler(tasks.events_kept) == before
    assert found == {("signal.segfault", "explained")}


def test_the_answer_stays_when_the_scheduler_forgets(lab, explain):
    """An hour after a removal the scheduler clears the worker's topic: its log and the nanny's still know."""
    client = with_a_death(lab)
    first = explain(Aftermath(client=client))
    client.run_on_scheduler(tasks.forget_events)
    second = explain(Aftermath(client=client))
    assert answer_of(first) == answer_of(second) == ("signal.segfault", "explained")
    assert first.top.probability == pytest.approx(second.top.probability, abs=0.05)


def test_the_error_of_a_later_task_is_not_the_death(lab, explain):
    """A fresh worker raises it; that another one crashed before is a separate matter, with its own cause."""
    client = with_a_death(lab)
    error = raised(client.submit(tasks.divide_by_zero, key="fail"))
    diagnosis = explain(Aftermath(exc=error, client=client, is_noted=False))
    assert (diagnosis.outcome, diagnosis.top, diagnosis.deaths_are_separate) == ("unknown", None, True)
    assert diagnosis.failure.type == "ZeroDivisionError"
    assert "Separately, a worker died" in diagnosis.summary


def test_sixteen_threads_hear_what_one_hears(lab, explain):
    """Asking at once loses no answer; whoever could not look does not say that nothing died."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    problem = raised(client.submit(tasks.exit_at_once, 3, key="crash"))
    alone = explain(Aftermath(exc=problem, client=client))
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: workerdiag.explain(problem, client, timeout="60s"), range(16)))
    assert {each.top.id for each in found} == {alone.top.id} == {"code.process-exit"}


def test_a_worker_of_another_age_is_told_live(lab, explain):
    """Two years lie between a worker that leaves as soon as it gets work and its scheduler."""
    python = os.environ.get(OLD_PYTHON)
    if not python:
        pytest.skip(f"{OLD_PYTHON} names no Python with another distributed")
    lab.scheduler(**IMPATIENT)
    command = [python, "-m", "distributed.cli.dask_worker", lab.address, "--nthreads", "1", "--no-dashboard"]
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    for name in ("one", "two"):
        daemon = Daemon([*command, "--name", name], log=lab.folder / f"{name}.log", env=kept)
        lab.callback(daemon.close)
    client = lab.client(workers=2)
    problem = raised(client.submit(divmod, 7, 2, key="divide"))
    assert sys.executable != python
    diagnosis = explain(Aftermath(exc=problem, client=client))
    assert diagnosis.top.id == "exception.version-mismatch"
    assert diagnosis.top.probability > 0.9
