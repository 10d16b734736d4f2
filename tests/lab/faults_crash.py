"""Sudden ends: signals from outside, crashes and exits from inside a task."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from distributed.comm import CommClosedError

import workerdiag

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import IMPATIENT, Lab, raised
from .processes import wait_until

# ------------------------------------------------------------------------- from inside a task


def _crash(
    lab: Lab, task: Callable[..., Any], *arguments: object, nanny: bool = True, patient: bool = False
) -> Aftermath:
    lab.scheduler(**({} if patient else IMPATIENT))
    lab.worker(nanny=nanny)
    client = lab.client()
    problem = raised(client.submit(task, *arguments, mark=lab.mark(), key="crash"))
    return Aftermath(exc=problem, client=client, pid=lab.running())


@fault
def segfault(lab: Lab) -> Aftermath:
    """A task reads from address 0."""
    return _crash(lab, tasks.segfault)


@fault
def segfault_four_times(lab: Lab) -> Aftermath:
    """As segfault, with Dask's default allowed-failures: four workers die for one task."""
    return _crash(lab, tasks.segfault, patient=True)


@fault
def segfault_without_nanny(lab: Lab) -> Aftermath:
    """A task reads from address 0, and nobody watches."""
    return _crash(lab, tasks.segfault, nanny=False)


@fault
def segfault_local_cluster(lab: Lab) -> Aftermath:
    """As segfault-four-times on a LocalCluster, which hides the nannies' messages."""
    _, client = lab.cluster()
    problem = raised(client.submit(tasks.segfault, mark=lab.mark(), key="crash"))
    return Aftermath(exc=problem, client=client, pid=lab.running())


@fault
def two_segfaults_at_once(lab: Lab) -> Aftermath:
    """Two workers of a LocalCluster crash at the same moment, each in its own task."""
    _, client = lab.cluster(workers=2, **{"distributed.scheduler.allowed-failures": 0})
    marks = [lab.mark(str(each)) for each in range(2)]
    futures = [client.submit(tasks.segfault, mark, 2, key=f"crash-{mark[-1]}") for mark in marks]
    pids = {lab.running(mark[-1]) for mark in marks}
    problem, _ = map(raised, futures)
    return Aftermath(exc=problem, client=client, facts={"pids": pids})


@fault
def bystander(lab: Lab) -> Aftermath:
    """Dask gives up a task that only waited on a worker killed by another task."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    crash = client.submit(tasks.segfault, lab.mark(), 2, key="crash")
    pid = lab.running()  # so the thread is taken
    problem = raised(client.submit(tasks.nap, 0, key="innocent"))
    return Aftermath(exc=problem, client=client, pid=pid, facts={"futures": [crash]})


@fault
def sudden_culprit(lab: Lab) -> Aftermath:
    """One of ten tasks on two workers kills its process at its start, so that no heartbeat reports it."""
    lab.scheduler(**IMPATIENT)
    for name in ("one", "two"):
        lab.worker(name=name)
    client = lab.client(workers=2)
    futures = [client.submit(tasks.nap, 0.2, key=f"nap-{number}", priority=10) for number in range(6)]
    culprit = client.submit(tasks.shoot_itself, 9, key="culprit")
    futures += [client.submit(tasks.nap, 0.2, key=f"nap-{number}", priority=-10) for number in range(6, 10)]
    return Aftermath(exc=raised(culprit), client=client, facts={"futures": futures})


@fault
def abort(lab: Lab) -> Aftermath:
    """A task aborts."""
    return _crash(lab, tasks.abort)


@fault
def os_exit_0(lab: Lab) -> Aftermath:
    """A task calls os._exit(0), which the nanny does not log."""
    return _crash(lab, tasks.exit_at_once, 0)


@fault
def os_exit_1(lab: Lab) -> Aftermath:
    """A task calls os._exit(1), the status of Python's own errors."""
    return _crash(lab, tasks.exit_at_once, 1)


@fault
def os_exit_3(lab: Lab) -> Aftermath:
    """A task calls os._exit(3)."""
    return _crash(lab, tasks.exit_at_once, 3)


@fault
def sys_exit(lab: Lab) -> Aftermath:
    """A task calls sys.exit(3)."""
    return _crash(lab, tasks.exit_politely, 3)


@fault
def plugin_exits(lab: Lab) -> Aftermath:
    """A plugin registered by a client ends each worker process that runs it."""
    lab.scheduler()
    nanny = lab.worker()
    client = lab.client()
    with contextlib.suppress(CommClosedError):
        client.register_plugin(tasks.ExitingPlugin())
    nanny.wait_for_output(r"(?:exited with status 1[\s\S]*){3}")
    return Aftermath(client=client, logs=(nanny.log,))


# -------------------------------------------------------------------------------- from outside


def _shoot(lab: Lab, number: signal.Signals, *, at_nanny: bool = False, nanny: bool = True) -> Aftermath:
    lab.scheduler(**IMPATIENT)
    daemon = lab.worker(nanny=nanny)
    client = lab.client()
    workerdiag.auto(
        client, on=not at_nanny
    )  # making a note takes long enough for the nanny to end with what it knows
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    pid = lab.running()
    if at_nanny or not nanny:
        daemon.send(number)
    else:
        os.kill(pid, number)
    return Aftermath(exc=raised(future), client=client, pid=pid, is_noted=not at_nanny)


@fault
def sigkill_worker(lab: Lab) -> Aftermath:
    """Somebody kills a worker with SIGKILL."""
    return _shoot(lab, signal.SIGKILL)


@fault
def sigterm_worker(lab: Lab) -> Aftermath:
    """Somebody sends SIGTERM to a worker, past its nanny."""
    return _shoot(lab, signal.SIGTERM)


@fault
def sigint_worker(lab: Lab) -> Aftermath:
    """Somebody sends SIGINT to a worker, past its nanny."""
    return _shoot(lab, signal.SIGINT)


@fault
def sigkill_nanny(lab: Lab) -> Aftermath:
    """Somebody kills a nanny with SIGKILL; its worker follows."""
    return _shoot(lab, signal.SIGKILL, at_nanny=True)


@fault
def sigterm_nanny(lab: Lab) -> Aftermath:
    """Somebody sends SIGTERM to ``dask worker``."""
    return _shoot(lab, signal.SIGTERM, at_nanny=True)


@fault
def sigint_nanny(lab: Lab) -> Aftermath:
    """Somebody presses ^C on ``dask worker``."""
    return _shoot(lab, signal.SIGINT, at_nanny=True)


@fault
def sigkill_without_nanny(lab: Lab) -> Aftermath:
    """Somebody kills a worker with SIGKILL, and nobody watches."""
    return _shoot(lab, signal.SIGKILL, nanny=False)


@fault
def sigkill_after_scale_down(lab: Lab) -> Aftermath:
    """A LocalCluster scales down; seconds later somebody kills the remaining worker."""
    cluster, client = lab.cluster(workers=3, **{"distributed.scheduler.allowed-failures": 0})
    cluster.scale(1)
    wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1, "the cluster to shrink")
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    pid = lab.running()
    os.kill(pid, signal.SIGKILL)
    return Aftermath(exc=raised(future), client=client, pid=pid)
