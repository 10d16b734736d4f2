"""No cluster faults: nothing dies, or nothing that anyone misses."""

from __future__ import annotations

from workerdiag import LogText

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import Lab, raised
from .kernel import kernel_log, kernel_log_since, kill_stranger


@fault
def task_error(lab: Lab) -> Aftermath:
    """A task fails without killing its worker."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    return Aftermath(exc=raised(client.submit(tasks.divide_by_zero, key="divide")), client=client)


@fault
def child_killed(lab: Lab) -> Aftermath:
    """A process that a task started is killed; the worker lives, and the task fails."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    return Aftermath(exc=raised(client.submit(tasks.lose_a_child, key="parent")), client=client)


@fault
def nothing_wrong(lab: Lab) -> Aftermath:
    """A cluster does its work."""
    lab.scheduler()
    lab.worker(name="one")
    lab.worker(name="two")
    client = lab.client(workers=2)
    assert client.gather(client.map(tasks.nap, [0.01] * 20, pure=False)) == ["rested"] * 20
    return Aftermath(client=client)


@fault
def orderly_end(lab: Lab) -> Aftermath:
    """A cluster does its work and is shut down."""
    lab.scheduler()
    daemon = lab.worker()
    client = lab.client()
    client.gather(client.map(tasks.nap, [0.01] * 20, pure=False))
    client.shutdown()
    for each in lab.daemons.values():
        each.ended()
    assert daemon.ended() == 0
    return Aftermath(logs=lab.logs)


@fault
def quiet_retirement(lab: Lab) -> Aftermath:
    """A worker with nothing to do is retired, as adaptive clusters do; its result moves."""
    lab.scheduler()
    leaving = lab.worker(name="one")
    lab.worker(name="two")
    client = lab.client(workers=2)
    futures = client.map(tasks.nap, [0.01] * 20, pure=False)
    client.gather(futures)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    client.retire_workers([address for address, worker in workers.items() if worker["name"] == "one"])
    leaving.ended()
    assert client.gather(futures) == ["rested"] * 20
    return Aftermath(client=client)


@fault
def quiet_restart(lab: Lab) -> Aftermath:
    """The cluster is restarted between two pieces of work."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    client.gather(client.map(tasks.nap, [0.01] * 20, pure=False))
    client.restart(timeout="60s")
    client.gather(client.map(tasks.nap, [0.01] * 20, pure=False))
    return Aftermath(client=client)


@fault
def restart_beside_kernel_kill(lab: Lab) -> Aftermath:
    """The kernel kills an unrelated process while the cluster is restarted; the user also has the kernel log."""
    lab.scheduler()
    lab.worker()
    client = lab.client()
    before = kernel_log()
    kill_stranger()
    client.restart(timeout="60s")
    kernel = LogText(kernel_log_since(before), stream="kernel")
    return Aftermath(client=client, facts={"kernel": kernel})


@fault
def noisy(lab: Lab) -> Aftermath:
    """A healthy cluster that warns: of memory, of a blocked event loop, of a task that failed."""
    lab.scheduler()
    daemon = lab.worker(memory_limit="300MB")
    client = lab.client()
    client.gather(client.map(tasks.nap, [0.005] * 200, pure=False))
    client.submit(tasks.leak, 160).result()
    daemon.wait_for_output("Unmanaged memory use is high")
    client.submit(tasks.block_loop, 4).result()
    daemon.wait_for_output("Event loop was unresponsive")
    raised(client.submit(tasks.divide_by_zero))
    client.gather(client.map(tasks.nap, [0.005] * 200, pure=False))
    return Aftermath(client=client)
