"""Requested stops, and the loss of the scheduler."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from distributed import Client, rpc

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import Lab, arrived, raised
from .processes import PATIENCE_S, wait_until


def _addresses(client: object) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])  # type: ignore[attr-defined]


@fault
def retire_workers(lab: Lab) -> Aftermath:
    """The user retires the worker that a task runs on."""
    lab.scheduler()
    lab.worker(name="one")
    lab.worker(name="two")
    client = lab.client(workers=2)
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    lab.running()
    (holder,) = [each for each, keys in client.processing().items() if keys]
    client.retire_workers([holder])
    wait_until(lambda: holder not in _addresses(client), "the worker to leave")
    return Aftermath(client=client, facts={"worker": holder, "futures": [future]})


@fault
def scale_down(lab: Lab) -> Aftermath:
    """The user scales down a LocalCluster; the worker that runs a task is closed at once."""
    cluster, client = lab.cluster(workers=2)
    futures = [client.submit(tasks.nap, 30, lab.mark(str(each)), key=f"nap-{each}") for each in range(2)]
    for each in range(2):
        lab.running(str(each))
    before = _addresses(client)
    cluster.scale(1)
    wait_until(lambda: len(_addresses(client)) == 1, "the worker to leave")
    (gone,) = set(before) - set(_addresses(client))
    return Aftermath(client=client, facts={"worker": gone, "futures": futures})


@fault
def adaptive_scale_down(lab: Lab) -> Aftermath:
    """An adaptive LocalCluster has no work for its second worker."""
    cluster, client = lab.cluster(workers=2)
    before = _addresses(client)
    cluster.adapt(minimum=1, maximum=2, interval="200 ms", wait_count=1)
    wait_until(lambda: len(_addresses(client)) == 1, "the worker to leave")
    (gone,) = set(before) - set(_addresses(client))
    return Aftermath(client=client, facts={"worker": gone})


@fault
def client_restart(lab: Lab) -> Aftermath:
    """Somebody restarts the cluster while a task runs."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    pid = lab.running()
    client.restart(timeout="60s")
    return Aftermath(exc=raised(future), client=client, pid=pid)


@fault
def close_by_code(lab: Lab) -> Aftermath:
    """Code on the worker that runs a task closes it."""
    lab.scheduler()
    lab.worker(name="one")
    lab.worker(name="two")
    client = lab.client(workers=2)
    future = client.submit(tasks.nap, 5, lab.mark(), key="nap")
    lab.running()
    (holder,) = [each for each, keys in client.processing().items() if keys]
    client.run(tasks.close_soon, workers=[holder])
    wait_until(lambda: holder not in _addresses(client), "the worker to leave")
    return Aftermath(client=client, facts={"worker": holder, "futures": [future]})


def _ended(lab: Lab, end: Callable[[Client, int], object]) -> Aftermath:
    """Close the one worker of a LocalCluster; wait until its process has ended and its nanny has logged that."""
    cluster, client = lab.cluster()
    (nanny,) = cluster.workers.values()
    pid = client.submit(os.getpid).result()
    end(client, pid)
    wait_until(lambda: nanny.status.name == "closed", "the nanny to close after its worker")
    return Aftermath(client=client, pid=pid)


@fault
def close_by_code_locally(lab: Lab) -> Aftermath:
    """Code closes the worker of a LocalCluster, and its process has ended."""
    return _ended(lab, lambda client, _: client.run(tasks.close_soon))


@fault
def sigint_worker_locally(lab: Lab) -> Aftermath:
    """SIGINT reaches the worker process of a LocalCluster alone, and it has ended."""
    return _ended(lab, lambda _, pid: os.kill(pid, signal.SIGINT))


@fault
def nanny_kill_by_code(lab: Lab) -> Aftermath:
    """Code tells a nanny to kill its worker while a task runs."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 30, lab.mark(), key="nap")
    pid = lab.running()
    (holder,) = client.scheduler_info(n_workers=-1)["workers"].values()
    client.sync(_kill, holder["nanny"])
    return Aftermath(client=client, pid=pid, facts={"futures": [future]})


async def _kill(nanny: str) -> None:
    async with rpc(nanny) as remote:
        await remote.kill()


@fault
def lifetime(lab: Lab) -> Aftermath:
    """A worker reaches its lifetime; later tasks have no worker."""
    lab.scheduler()
    client = lab.client(workers=0)
    done = client.submit(tasks.nap, 0)  # submitted before the worker starts, so that it runs within the lifetime
    daemon = lab.worker("--lifetime", "3s")
    done.result(timeout=PATIENCE_S)
    daemon.ended()
    future = arrived(client, client.submit(tasks.nap, 0, key="late"))
    return Aftermath(client=client, facts={"futures": [future]})


@fault
def scheduler_killed(lab: Lab) -> Aftermath:
    """The scheduler is killed; worker and client lose it."""
    scheduler = lab.scheduler()
    daemon = lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 3, lab.mark(), key="nap")
    lab.running()
    scheduler.send(signal.SIGKILL)
    problem = raised(future)
    daemon.ended()
    return Aftermath(exc=problem, client=client, logs=lab.logs)


@fault
def scheduler_stopped(lab: Lab) -> Aftermath:
    """The scheduler hangs: it keeps its connections and does not answer."""
    scheduler = lab.scheduler()
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.divide_by_zero, key="divide")
    problem = raised(future)
    scheduler.send(signal.SIGSTOP)
    lab.callback(scheduler.send, signal.SIGCONT)
    return Aftermath(exc=problem, client=client)
