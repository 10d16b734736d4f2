"""pytest itself, run on tests in which workers really die."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points

import pytest
from attrs import frozen

import workerdiag

from .processes import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

#: Loaded by its entry point where workerdiag is installed, else by its name.
LOAD = () if entry_points(group="pytest11", name="workerdiag") else ("-p", "workerdiag.integrations.pytest")

#: How somebody tests code that uses Dask, who knows nothing of workerdiag.
HEAD = """
import asyncio, ctypes, os, signal, sys, time
import dask, pytest
from distributed import Client, LocalCluster

OPTIONS = dict(n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=":0")

def status(dask_worker):
    return dask_worker.status.name

def ready(client):
    # A nanny learns late that its worker is up; if that dies before, it gives up and its log says less.
    while set(client.run(status, nanny=True).values()) != {"running"}:
        time.sleep(0.1)
    return client

def crash():
    ctypes.string_at(0)

def killed_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"

@pytest.fixture
def client():
    with LocalCluster(**OPTIONS) as cluster, Client(cluster) as client:
        yield ready(client)

@pytest.fixture(autouse=True)
def impatient():
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        yield
"""


@frozen
class Run:
    """One run of pytest that has ended."""

    status: int
    output: str
    #: Properties in junit-xml, by the name of the test.
    properties: dict[str, dict[str, str]]


@pytest.fixture
def run(tmp_path):
    """Runs pytest on a module with some tests."""

    def run(tests: str, *options: str) -> Run:
        (tmp_path / "test_user.py").write_text(HEAD + textwrap.dedent(tests))
        (tmp_path / "pytest.ini").write_text(f"[pytest]\nworkerdiag_timeout = {PATIENCE_S}\n")
        junit = tmp_path / "junit.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *LOAD,
            "-p",
            "no:cacheprovider",
            f"--junit-xml={junit}",
            *options,
        ]
        plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # it is for us
        done = subprocess.run(
            command, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=380, check=False
        )
        cases = ET.parse(junit).getroot().iter("testcase")
        properties = {
            case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
            for case in cases
        }
        return Run(done.returncode, done.stdout + done.stderr, properties)

    return run


FAILING = """
def test_in_its_body():
    with Client(**OPTIONS) as client:
        ready(client).submit(crash).result()

def test_with_a_fixture(client):
    client.submit(crash).result()

def test_notices_later(client):
    client.submit(killed_once, "mark")
    address = next(iter(client.scheduler_info()["workers"]))
    while address in client.scheduler_info()["workers"]:
        time.sleep(0.1)
    assert False, "the worker is gone"

def test_fails_for_its_own_reasons(client):
    assert client.submit(sum, [1, 2]).result() == 4

def test_asynchronous():
    async def compute():
        async with Client(asynchronous=True, **OPTIONS) as client:
            await client.submit(crash)
    asyncio.run(compute())
"""


def test_a_failing_test_carries_its_diagnosis(run, tmp_path):
    """Wherever its cluster came from, and also where it is closed already: in the report, in junit-xml, as a bundle."""
    ended = run(FAILING, "--workerdiag-bundles=deaths")
    assert ended.status == 1, ended.output
    causes = {name: each.get("workerdiag.cause") for name, each in ended.properties.items()}
    assert causes == {
        "test_in_its_body": "signal.segfault",
        "test_with_a_fixture": "signal.segfault",
        "test_notices_later": "external.sigkill",
        "test_fails_for_its_own_reasons": None,
        "test_asynchronous": "signal.segfault",
    }, ended.output
    assert ended.output.count("- workerdiag -") == 4
    assert "killed by signal 11" in ended.properties["test_in_its_body"]["workerdiag.death"]
    bundles = sorted((tmp_path / "deaths").iterdir())
    assert len(bundles) == 4
    assert {workerdiag.explain(logs=each).top.id for each in bundles} == {
        "signal.segfault",
        "external.sigkill",
    }


PASSING = """
def test_survives(client, tmp_path):
    with dask.config.set({"distributed.scheduler.allowed-failures": 3}):
        with Client(**OPTIONS) as own:
            assert ready(own).submit(killed_once, str(tmp_path / "mark")).result() == "done"
"""

DELIBERATE = """
@pytest.mark.worker_deaths_expected
def test_expects_it(client):
    with pytest.raises(Exception):
        client.submit(crash).result()

def test_restarts(client):
    client.restart()

def test_scales_down(client):
    client.cluster.scale(2)
    client.wait_for_workers(2)
    client.cluster.scale(0)
    while client.scheduler_info()["workers"]:
        time.sleep(0.1)

def test_closes_the_cluster_first():
    with LocalCluster(**OPTIONS) as cluster:
        client = Client(cluster)
        client.submit(sum, [1]).result()
    client.close()

def test_shuts_down():
    client = Client(**OPTIONS)
    client.submit(sum, [1]).result()
    client.shutdown()

def test_raises_in_a_task(client):
    with pytest.raises(ZeroDivisionError):
        client.submit(lambda: 1 / 0).result()
"""


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_strict_run_fails_for_a_death_that_no_test_noticed(run, options):
    """Also under xdist, where another process saw it."""
    ended = run(PASSING, "--workerdiag-strict", *options)
    assert ended.status == 1, ended.output
    assert "1 passed" in ended.output
    assert "test_user.py::test_survives: tcp://" in ended.output
    assert "killed by signal 9 (SIGKILL)" in ended.output


def test_without_strict_a_passing_run_passes(run):
    """No result changes that nobody asked to be changed."""
    assert run(PASSING).status == 0


def test_a_stop_that_was_asked_for_is_no_death(run):
    """A strict run passes where workers end by the test's own will."""
    ended = run(DELIBERATE, "--workerdiag-strict", "-n", "2")
    assert ended.status == 0, ended.output
    assert "workers died" not in ended.output
    assert "killed by signal" not in ended.output
