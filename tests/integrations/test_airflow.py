"""Airflow tries a task again only where the death of Dask's workers allows it. Run by `nox -s integrations`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from datetime import timedelta
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from distributed.scheduler import KilledWorker

from support.diagnoses import diagnosis_with
from workerdiag.api.annotate import remember
from workerdiag.model.diagnosis import RetryPolicy

if find_spec("airflow") is None:
    pytest.skip("Airflow is not installed", allow_module_level=True)

#: Airflow writes a configuration file when it is imported.
HOME = tempfile.TemporaryDirectory()
os.environ["AIRFLOW_HOME"] = HOME.name

from airflow.sdk import RetryAction  # noqa: E402

from workerdiag.integrations.airflow import DeathRetryPolicy  # noqa: E402

#: Three tasks that may be tried three times: one crashes each worker, one lost its worker once without any fault,
#: and one needs a larger worker.
DAG = """
import ctypes
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import dask
from airflow.sdk import DAG, task
from distributed import Client
from distributed.scheduler import KilledWorker

import workerdiag
from workerdiag.api.annotate import remember
from workerdiag.integrations.airflow import DeathRetryPolicy
from workerdiag.model.diagnosis import Decision, RetryPolicy

CLUSTER = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}

def crash():
    ctypes.string_at(0)

def take(megabytes):
    held = [b"x" * 10**7 for _ in range(0, megabytes, 10) if not time.sleep(0.05)]
    return len(held)

def status(dask_worker):
    return dask_worker.status.name

with DAG(dag_id="deaths", schedule=None) as dag:

    @task(retries=2, retry_delay=timedelta(0), retry_policy=DeathRetryPolicy())
    def poisoned():
        with Path(FOLDER, "poisoned").open("a") as tries:
            tries.write("x")
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 0}),
            Client(**CLUSTER) as client,
            workerdiag.explaining(client, timeout=60),
        ):
            # A nanny learns late that its worker is up; if that dies before, it gives up and its log says less.
            while set(client.run(status, nanny=True).values()) != {"running"}:
                time.sleep(0.1)
            return client.submit(crash).result()

    @task(retries=2, retry_delay=timedelta(0), retry_policy=DeathRetryPolicy())
    def innocent():
        with Path(FOLDER, "innocent").open("a") as tries:
            tries.write("x")
        if Path(FOLDER, "innocent").stat().st_size == 1:
            killed = KilledWorker("load-1", SimpleNamespace(address="tcp://127.0.0.1:1"), 3)
            policy = RetryPolicy(action="retry-elsewhere", reason="a spot machine was taken back")
            remember(killed, workerdiag.Diagnosis(
                outcome="explained", summary="", decision=Decision(policy=policy)))
            raise killed
        return "done"

    def give_memory(memory_bytes, context):
        given = Path(FOLDER, "given")
        if given.exists():
            return False
        given.write_text(str(memory_bytes))
        return context["ti"].task_id == "hungry"

    @task(retries=2, retry_delay=timedelta(0), retry_policy=DeathRetryPolicy(give_memory=give_memory))
    def hungry():
        with Path(FOLDER, "hungry").open("a") as tries:
            tries.write("x")
        given = Path(FOLDER, "given")
        size = {"memory_limit": int(given.read_text()) if given.exists() else 300 * 2**20}
        with (
            dask.config.set({"distributed.scheduler.allowed-failures": 0}),
            Client(**CLUSTER | size) as client,
            workerdiag.explaining(client, timeout=60),
        ):
            return client.submit(take, 250).result()

    poisoned()
    innocent()
    hungry()

if __name__ == "__main__":
    from airflow.utils.db import initdb

    initdb()
    for instance in dag.test().get_task_instances():
        print("END", instance.task_id, instance.state)
"""


def decided(action, *, memory_bytes=None, **options):
    """What Airflow is told where a program may do *action*."""
    killed = KilledWorker("load-1", SimpleNamespace(address="tcp://127.0.0.1:1"), 3)
    policy = RetryPolicy(action=action, reason="it died", conditions=("Always.",), memory_bytes=memory_bytes)
    remember(killed, diagnosis_with(policy))
    return DeathRetryPolicy(**options).evaluate(killed, 1, 3)


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("retry", RetryAction.RETRY),
        ("retry-elsewhere", RetryAction.RETRY),
        ("retry-with-memory", RetryAction.FAIL),
        ("do-not-retry", RetryAction.FAIL),
        ("ask", RetryAction.DEFAULT),
    ],
)
def test_airflow_does_what_a_program_may(action, told):
    """And it is told why, so that the reason stands in the task's log."""
    decision = decided(action)
    assert decision.action == told
    assert decision.reason == f"workerdiag: {action}: it died. Always."


@pytest.mark.parametrize(("given", "told"), [(True, RetryAction.RETRY), (False, RetryAction.FAIL)])
def test_more_memory_is_tried_where_somebody_gives_it(given, told):
    """The size goes to whoever starts the next cluster, and only then there is a next try."""
    sizes = []

    def give_memory(memory_bytes, _):
        sizes.append(memory_bytes)
        return given

    assert decided("retry-with-memory", memory_bytes=2**33, give_memory=give_memory).action == told
    assert sizes == [2**33]


def test_a_delay_of_ones_own():
    """A machine may take minutes to come back."""
    assert decided("retry", retry_delay=timedelta(minutes=5)).retry_delay == timedelta(minutes=5)


def test_other_errors_are_left_to_the_task():
    """What did not come from Dask is tried again as the task says."""
    decision = DeathRetryPolicy().evaluate(ValueError("no"), 1, 3)
    assert (decision.action, decision.reason) == (RetryAction.DEFAULT, None)


@pytest.mark.timeout(400)
def test_a_poisoned_task_is_tried_once_and_an_innocent_or_hungry_one_again(tmp_path):
    """In a run of Airflow itself: a crash ends one worker, a lost spot machine and too little memory cost one try."""
    dag = tmp_path / "dags" / "deaths.py"
    dag.parent.mkdir()
    dag.write_text(f"FOLDER = {str(tmp_path)!r}\n" + textwrap.dedent(DAG))
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dag.parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
    }
    run = subprocess.run(
        [sys.executable, str(dag)], env=environment, capture_output=True, text=True, timeout=360, check=False
    )
    output = run.stdout + run.stderr
    assert "END poisoned failed" in output, output
    assert "END innocent success" in output, output
    assert (tmp_path / "poisoned").read_text() == "x"
    assert (tmp_path / "innocent").read_text() == "xx"
    assert "END hungry success" in output, output
    assert (tmp_path / "hungry").read_text() == "xx"
    assert "do-not-retry: Segmentation fault" in output
