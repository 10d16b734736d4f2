"""Too much memory: killed by the nanny, by the kernel, or paused for ever."""

from __future__ import annotations

from workerdiag import LogText

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import IMPATIENT, Lab, arrived, raised
from .kernel import kernel_log, kernel_log_since, memory_group, small_disk
from .processes import wait_until

#: A few times the memory of Python with Dask (about 70 MB).
LIMIT = "300MB"


@fault
def nanny_memory_slow(lab: Lab) -> Aftermath:
    """A task grows slowly until the nanny kills its worker."""
    lab.scheduler(**IMPATIENT)
    lab.worker(memory_limit=LIMIT)
    client = lab.client()
    problem = raised(client.submit(tasks.grow, 600, 5, lab.mark(), key="grow"))
    return Aftermath(exc=problem, client=client, pid=lab.running())


@fault
def nanny_memory_fast(lab: Lab) -> Aftermath:
    """A task allocates more than the limit at once, four times."""
    lab.scheduler()
    lab.worker(memory_limit=LIMIT)
    client = lab.client()
    problem = raised(client.submit(tasks.burst, 600, lab.mark(), key="burst"))
    return Aftermath(exc=problem, client=client, pid=lab.running())


@fault
def kernel_oom(lab: Lab) -> Aftermath:
    """A task outgrows a cgroup that Dask does not know; the kernel kills the worker."""
    group = lab.enter_context(memory_group(limit_bytes=300 * tasks.MB))
    before = kernel_log()
    lab.scheduler(**IMPATIENT)
    lab.worker(memory_limit="4GB", group=group)
    client = lab.client()
    problem = raised(client.submit(tasks.burst, 600, lab.mark(), key="burst"))
    kernel = LogText(kernel_log_since(before), stream="kernel")
    return Aftermath(
        exc=problem,
        client=client,
        logs=(kernel,),
        pid=lab.running(),
        facts={"group": group, "kernel": kernel},
    )


@fault
def child_out_of_memory(lab: Lab) -> Aftermath:
    """A child of a task outgrows the cgroup of its worker; the kernel kills it, and the task fails."""
    group = lab.enter_context(memory_group(limit_bytes=400 * tasks.MB))
    lab.scheduler()
    lab.worker(memory_limit="4GB", group=group)
    client = lab.client()
    return Aftermath(exc=raised(client.submit(tasks.burst_in_child, 800, key="parent")), client=client)


@fault
def paused_for_ever(lab: Lab) -> Aftermath:
    """Leaked memory keeps a worker paused; the tasks behind it wait, and nothing dies."""
    lab.scheduler()
    lab.worker(memory_limit=LIMIT)
    client = lab.client()
    client.submit(tasks.leak, 190, key="leak").result()
    worker = client.submit(tasks.nap, 0, key="before")
    wait_until(lambda: _status(client) == "paused", "the worker to pause")
    waiting = arrived(client, client.submit(tasks.nap, 0, key="after"))
    return Aftermath(client=client, facts={"futures": (worker, waiting)})


@fault
def full_disk(lab: Lab) -> Aftermath:
    """A worker's spill disk is full, so it keeps everything in memory, and pauses."""
    disk = lab.enter_context(small_disk(lab.folder / "disk", size_bytes=40 * 2**20))
    lab.scheduler()
    # At most a pause: on a busy machine memory can jump from 80 to 95 % between two checks of the worker.
    daemon = lab.worker(
        memory_limit="400MB", local=disk, env={"DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False"}
    )
    client = lab.client()
    futures = [client.submit(tasks.make, 20, seed, key=f"make-{seed}") for seed in range(30)]
    daemon.wait_for_output("Spill to disk failed")
    wait_until(lambda: _status(client) == "paused", "the worker to pause")
    return Aftermath(client=client, logs=(daemon.log,), facts={"futures": futures})


def _status(client: object) -> str:
    workers = client.scheduler_info(n_workers=-1)["workers"]  # type: ignore[attr-defined]
    return next((str(worker["status"]) for worker in workers.values()), "")
