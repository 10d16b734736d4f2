"""
Alive but silent, and work that waits for something that never comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from . import tasks
from .catalogue import Aftermath, fault
from .cluster import IMPATIENT, Lab, arrived, raised

#: The scheduler looks this often, and waits for ten heartbeats (5 s) at least, whatever is set
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
    """
    A coroutine blocks the worker's event loop until the scheduler loses patience.
    """
    return _blocked(lab, tasks.block_loop)


@fault
def gil_held(lab: Lab) -> Aftermath:
    """
    C code holds the GIL until the scheduler loses patience.
    """
    return _blocked(lab, tasks.hold_gil)


@fault
def worker_stopped(lab: Lab) -> Aftermath:
    """
    SIGSTOP to a worker process; its nanny lives.
    """
    lab.scheduler(**IMPATIENT, **SHORT_TTL)
    lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    pid = lab.running()
    os.kill(pid, signal.SIGSTOP)
    return Aftermath(exc=raised(future), client=client, pid=pid)


@fault
def node_stopped(lab: Lab) -> Aftermath:
    """
    SIGSTOP to nanny and worker, as of a node that freezes; asked while the scheduler still hopes.
    """
    scheduler = lab.scheduler(**IMPATIENT, **SHORT_TTL)
    nanny = lab.worker()
    client = lab.client()
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    pid = lab.running()
    for each in (nanny.pid, pid):
        os.kill(each, signal.SIGSTOP)
    scheduler.said("failed to heartbeat")
    return Aftermath(client=client, pid=pid, facts={"futures": [future]})


@fault
def unschedulable(lab: Lab) -> Aftermath:
    """
    A task wants a resource that no worker has.
    """
    lab.scheduler()
    lab.worker()
    client = lab.client()
    client.submit(tasks.nap, 0).result()
    future = arrived(client, client.submit(tasks.nap, 0, resources={"GPU": 1}, key="wants-gpu"))
    return Aftermath(client=client, facts={"futures": [future]})
