"""Real deaths, and what the machine tells of them when ``workerdiag.explain(exc, client)`` asks it.

No log is handed in: what is known of the kernel comes from the nanny's machine, through the nanny.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Event, Inspected, LogChunk
from workerdiag.sources import registry
from workerdiag.sources.exception import exception_facts
from workerdiag.sources.host.respondents import find_locations
from workerdiag.sources.host.source import HostSource
from workerdiag.sources.scene import find_victims, make_scene

from . import tasks
from .catalogue import Aftermath
from .cluster import IMPATIENT, NO_DASHBOARD, raised
from .kernel import UnavailableError, kernel_log, memory_group
from .processes import PATIENCE_S, Daemon
from .promises import named_cause

pytestmark = pytest.mark.lab
readable = pytest.mark.skipif(not kernel_log(), reason="the kernel log may not be read")


@pytest.fixture(autouse=True)
def _only_the_host(monkeypatch):
    """Of the sources beyond Dask, the machine alone."""
    monkeypatch.setattr(registry, "SHIPPED", (registry.ShippedKind("host.source:HostSource"),))


def seen(diagnosis):
    """All evidence for the named_cause cause, as one text."""
    return "\n".join(f"{clue.where} {clue.text}" for clue in diagnosis.top.evidence)


@pytest.mark.parametrize(
    ("fault", "cause", "told"),
    [
        pytest.param("kernel-oom", "kernel.oom-killer", "Killed process {pid}", marks=readable),
        ("kernel-oom", "kernel.oom-killer", "oom_kill=1"),
        pytest.param("segfault", "signal.segfault", "segfault at 0 ip", marks=readable),
        pytest.param("segfault-without-nanny", "signal.segfault", "segfault at 0 ip", marks=readable),
        pytest.param("sigkill-worker", "external.sigkill", "kernel log", marks=readable),
        pytest.param("sigkill-nanny", "external.nanny-lost", "listening=no", marks=pytest.mark.alone),
        ("full-disk", "exception.disk-full", "full=yes"),
    ],
)
def test_the_machine_tells_what_dask_cannot(provoke, explain, fault, cause, told):
    """Without any log handed in, the machine's own words name the cause, and nothing else is likely."""
    aftermath = evolve(provoke(fault), logs=())
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == cause
    assert diagnosis.top.probability > 0.8  # one moderate sign of a usual cause gives 5 in 6
    told = told.format(pid=aftermath.pid)
    if told != "oom_kill=1":  # reports clip long events
        assert told in seen(diagnosis)


@pytest.mark.parametrize(
    "fault", ["abort", "sigterm-worker", "nanny-memory-slow", "retire-workers", "nothing-wrong"]
)
def test_the_machine_does_not_put_other_deaths_down_to_itself(provoke, explain, fault):
    """Deaths that the machine has no part in are explained as they are without it."""
    diagnosis = explain(provoke(fault))
    assert not {each.id for each in diagnosis.causes if each.probability > 0.05} & {
        "kernel.oom-killer",
        "signal.segfault",
        "exception.disk-full",
        "external.nanny-lost",
    }


def test_a_kill_of_another_process_is_not_the_workers(lab, explain):
    """While the kernel kills a stranger for its memory, somebody kills our worker: that is told apart."""
    try:
        group = lab.enter_context(memory_group(limit_bytes=60 * tasks.MB))
    except UnavailableError as problem:
        pytest.skip(str(problem))
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    pid = lab.running()
    join = f"echo $$ > {group.processes}; exec {sys.executable} -c 'b\"x\" * 300_000_000'"
    stranger = subprocess.run(["sh", "-c", join], check=False)
    assert (stranger.returncode, group.oom_kills()) == (-9, 1)
    os.kill(pid, signal.SIGKILL)
    diagnosis = explain(Aftermath(exc=raised(future), client=client, pid=pid))
    assert named_cause(diagnosis) == "external.sigkill"
    assert [each.identity.pid for each in diagnosis.deaths] == [pid]


def test_a_kill_of_before_is_not_this_one(lab, explain):
    """The group has counted a kill of the first worker; the second is killed by hand, and that is what we say of it."""
    if not kernel_log():
        pytest.skip("the kernel log may not be read")
    try:
        group = lab.enter_context(memory_group(limit_bytes=300 * tasks.MB))
    except UnavailableError as problem:
        pytest.skip(str(problem))
    lab.scheduler(**IMPATIENT)
    lab.worker(memory_limit="4GB", group=group)
    client = lab.client()
    raised(client.submit(tasks.burst, 600, lab.mark("first"), key="burst"))
    assert group.oom_kills() == 1
    client.wait_for_workers(1, timeout=30)
    future = client.submit(tasks.nap, 30, lab.mark("second"), key="nap")
    pid = lab.running("second")
    time.sleep(1)  # so that the two deaths are two moments
    os.kill(pid, signal.SIGKILL)
    diagnosis = explain(Aftermath(exc=raised(future), client=client, pid=pid))
    death = next(each for each in diagnosis.deaths if each.identity.pid == pid)
    assert death.cause == "external.sigkill"


@pytest.mark.alone
def test_in_a_pid_namespace_of_its_own_a_kill_is_known_by_moment_and_group(lab, explain):
    """A container's pids are not the kernel's: the kill is the worker's all the same."""
    unshare = shutil.which("unshare")
    alone = [str(unshare), "--pid", "--fork", "--mount-proc", "--kill-child"]
    if unshare is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespace may be made")
    try:
        group = lab.enter_context(memory_group(limit_bytes=300 * tasks.MB))
    except UnavailableError as problem:
        pytest.skip(str(problem))
    lab.scheduler(**IMPATIENT)
    worker = [sys.executable, "-m", "dask", "worker", lab.address, "--nthreads", "1", "--memory-limit", "4GB"]
    environment = {**os.environ, "PYTHONPATH": lab.import_path(), "DASK_TEMPORARY_DIRECTORY": str(lab.folder)}
    log = lab.folder / "alone.log"
    daemon = Daemon([*alone, *worker, *NO_DASHBOARD], log=log, env=environment, group=group.processes)
    lab.callback(daemon.close)
    client = lab.client()
    exc = raised(client.submit(tasks.burst, 600, lab.mark(), key="burst"))
    diagnosis = explain(Aftermath(exc=exc, client=client))
    assert lab.running() < 1000, "the worker had a pid of its own namespace"
    assert named_cause(diagnosis) == "kernel.oom-killer"
    if kernel_log():
        assert "Killed process" in seen(diagnosis), (diagnosis.gaps, kernel_log()[-3000:])
    assert len(diagnosis.deaths) == 1


def test_places_and_machine_are_told_where_all_live(provoke):
    """Of a LocalCluster all places are known, and its machine is asked in this process."""
    aftermath = provoke("segfault-local-cluster")
    victims = find_victims(exception_facts(aftermath.exc))
    places, gaps = find_locations(aftermath.client, victims, Deadline.after(2))
    assert ({each.role for each in places}, gaps) == ({"client", "nanny", "scheduler"}, [])
    evidence = list(HostSource.of(make_scene(victims, places, aftermath.client)).collect(budget_s=3))
    assert {each.topic for each in evidence if isinstance(each, Event)} >= {
        "cgroup",
        "host",
        "limits",
        "disk",
    }


def test_a_nanny_that_forbids_functions_is_a_gap_with_the_remedy(lab, explain):
    """Where nannies run nothing for others, that is said, and the death is explained as well as without."""
    lab.scheduler(**IMPATIENT)
    lab.worker(env={"DASK_DISTRIBUTED__NANNY__BLOCKED_HANDLERS": "['run']"})
    client = _without_status(lab)
    exc = raised(client.submit(tasks.segfault, lab.mark(), key="crash"))
    diagnosis = explain(Aftermath(exc=exc, client=client, pid=lab.running()))
    assert named_cause(diagnosis) == "signal.segfault"
    forbidden = [each for each in diagnosis.gaps if each.reason == "forbidden"]
    assert forbidden
    assert "blocked-handlers" in forbidden[0].remedy


def test_a_nanny_that_is_stopped_holds_nobody_up(lab, explain):
    """A frozen nanny is not waited for until it thaws, and the neighbour on the same machine is heard."""
    lab.scheduler(**IMPATIENT)
    first = lab.worker(name="first")
    lab.worker(name="second")
    client = lab.client(workers=2)
    future = client.submit(tasks.segfault, lab.mark(), 1, key="crash", workers="first")
    lab.running()
    first.send(signal.SIGSTOP)
    try:
        exc = raised(future)
        diagnosis = explain(Aftermath(exc=exc, client=client), timeout="6s")
    finally:
        first.send(signal.SIGCONT)
    if kernel_log():
        assert named_cause(diagnosis) == "signal.segfault"


def test_nothing_of_the_machine_is_claimed_without_looking(provoke):
    """That the kernel is silent is only said where its log was read."""
    aftermath = provoke("sigkill-worker")
    victims = find_victims(exception_facts(aftermath.exc))
    places, _ = find_locations(aftermath.client, victims, Deadline.after(2))
    evidence = list(HostSource.of(make_scene(victims, places, aftermath.client)).collect(budget_s=3))
    looked = [each for each in evidence if isinstance(each, Inspected)]
    assert bool(looked) == bool(kernel_log())
    assert [each for each in evidence if isinstance(each, LogChunk)] == []


def _without_status(lab):
    """A client of a lab whose nannies cannot be asked for their state; they have a second to be up."""
    lab._nannies = False
    client = lab.client()
    client.submit(tasks.nap, 1).result(PATIENCE_S)
    return client
