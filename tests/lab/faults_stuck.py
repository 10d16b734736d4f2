"""Live but silent workers, and work that waits forever."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from distributed import Client, Future

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import IMPATIENT, Lab, arrived, raised
from .kernel import UnavailableError, kernel_log
from .processes import LabError, wait_until

#: The scheduler checks at this interval, and waits for at least ten heartbeats (5 s) whatever the setting
#: (scheduler.py, ``check_worker_ttl``).
SHORT_TTL = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"}


def _blocked(lab: Lab, task: Callable[..., Any]) -> Aftermath:
    lab.scheduler(**IMPATIENT, **SHORT_TTL)
    lab.worker()
    client = lab.client()
    future = client.submit(task, 60, lab.mark(), key="block")
    return Aftermath(exc=raised(future), client=client, pid=lab.running())


@fault
def loop_blocked(lab: Lab) -> Aftermath:
    """A coroutine blocks the worker's event loop until the scheduler loses patience."""
    return _blocked(lab, tasks.block_loop)


@fault
def gil_held(lab: Lab) -> Aftermath:
    """C code holds the GIL until the scheduler loses patience."""
    return _blocked(lab, tasks.hold_gil)


@fault
def worker_stopped(lab: Lab) -> Aftermath:
    """SIGSTOP to a worker process; its nanny keeps running."""
    lab.scheduler(**IMPATIENT, **SHORT_TTL)
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    pid = lab.running()
    os.kill(pid, signal.SIGSTOP)
    return Aftermath(exc=raised(future), client=client, pid=pid)


@fault
def node_stopped(lab: Lab) -> Aftermath:
    """SIGSTOP to nanny and worker, like a frozen node; the user asks before the scheduler removes the worker."""
    scheduler = lab.scheduler(**IMPATIENT, **SHORT_TTL)
    nanny = lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    pid = lab.running()
    for each in (nanny.pid, pid):
        os.kill(each, signal.SIGSTOP)
    scheduler.wait_for_output("failed to heartbeat")
    return Aftermath(client=client, pid=pid, facts={"futures": [future]})


def _impatient(future: Future, seconds: float) -> BaseException:
    """Return the exception of a user who waits only this many seconds."""
    try:
        future.result(timeout=seconds)
    except TimeoutError as problem:
        return problem
    raise LabError(f"{future.key} was done within {seconds} s")


@fault
def no_workers(lab: Lab) -> Aftermath:
    """Work is submitted to a scheduler that has no worker."""
    lab.scheduler()
    client = lab.client(workers=0)
    return Aftermath(exc=_impatient(client.submit(tasks.nap, 0, key="nap"), 2), client=client)


@fault
def no_workers_local(lab: Lab) -> Aftermath:
    """A LocalCluster has no workers, and a task is queued."""
    _, client = lab.cluster(workers=0)
    return Aftermath(exc=_impatient(client.submit(tasks.nap, 0, key="nap"), 2), client=client)


@fault
def all_workers_retired(lab: Lab) -> Aftermath:
    """The last worker is retired before a task is submitted."""
    lab.scheduler()
    leaving = lab.worker()
    client = lab.client()
    client.retire_workers(list(client.scheduler_info(n_workers=-1)["workers"]))
    leaving.ended()
    return Aftermath(exc=_impatient(client.submit(tasks.nap, 0, key="nap"), 2), client=client)


@fault
def slow_task(lab: Lab) -> Aftermath:
    """A task takes longer than the user waits."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 60, lab.mark(), key="slow")
    pid = lab.running()
    return Aftermath(exc=_impatient(future, 3), client=client, pid=pid, facts={"future": future})


def _silent(lab: Lab, task: Callable[..., Any], *, stop: bool) -> Aftermath:
    lab.scheduler()
    for name in ("one", "two"):
        lab.worker(name=name)
    client = lab.client(workers=2)
    future = client.submit(task, 60, lab.mark(), key="hang")
    pid = lab.running()
    if stop:
        os.kill(pid, signal.SIGSTOP)
    return Aftermath(exc=_impatient(future, 8), client=client, pid=pid, facts={"future": future})


@fault
def gil_held_now(lab: Lab) -> Aftermath:
    """C code holds the GIL, and the user asks long before the scheduler loses patience."""
    return _silent(lab, tasks.hold_gil, stop=False)


@fault
def worker_stopped_now(lab: Lab) -> Aftermath:
    """SIGSTOP to one of two workers, and the user asks long before the scheduler loses patience."""
    return _silent(lab, tasks.nap, stop=True)


@fault
def unschedulable(lab: Lab) -> Aftermath:
    """A task requires a resource that no worker has."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    client.submit(tasks.nap, 0).result()
    future = arrived(client, client.submit(tasks.nap, 0, resources={"GPU": 1}, key="wants-gpu"))
    return Aftermath(client=client, facts={"futures": [future]})


@fault
def all_workers_lost(lab: Lab) -> Aftermath:
    """SIGKILL to all workers, which have no nannies; their tasks wait for other workers."""
    lab.scheduler()
    daemons = [lab.worker(name=name, nanny=False) for name in ("one", "two")]
    client = lab.client(workers=2)
    futures = [client.submit(tasks.nap, 60, lab.mark(str(each)), key=f"nap-{each}") for each in range(2)]
    for each in range(2):
        lab.running(str(each))
    # Until a heartbeat says that they run them, these workers look like some that cannot read their tasks.
    wait_until(lambda: all(_executing(client)), "the scheduler to hear that both run")
    for daemon in daemons:
        daemon.send(signal.SIGKILL)
    wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "the workers to be missed")
    return Aftermath(client=client, facts={"futures": futures})


def _executing(client: Client) -> list[bool]:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return [bool(each["metrics"].get("task_counts", {}).get("executing")) for each in workers]


@fault
def all_workers_crashed(lab: Lab) -> Aftermath:
    """A task crashes all workers, which have no nannies, one after the other, and waits for another worker."""
    if not kernel_log():
        raise UnavailableError("the kernel log may not be read")
    lab.scheduler()
    for name in ("one", "two"):
        lab.worker(name=name, nanny=False)
    client = lab.client(workers=2)
    future = client.submit(tasks.segfault, key="crash")
    wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "the workers to be missed")
    return Aftermath(client=client, facts={"futures": [future]})
