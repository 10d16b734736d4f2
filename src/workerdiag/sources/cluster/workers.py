"""Reads the states of a scheduler's workers: all of them up to 500, else only the relevant ones."""

from __future__ import annotations

from collections.abc import Collection

from workerdiag.model.dask import Client, Method, Reply, Scheduler, WorkerState, is_disallowed
from workerdiag.sources.addresses import host_of
from workerdiag.sources.cluster.scheduler_functions import forgetter, pauses
from workerdiag.sources.cluster.versions_and_settings import fetch_versions, has_same_python

#: At most this many workers are described. In a larger cluster at most `_MAX_OF_A_KIND` unhealthy ones, and
#: as many on the hosts in question, come first.
MAX_DESCRIBED = 500
_MAX_OF_A_KIND = 200


async def fetch_workers(client: Client, *, near: Collection[str | None] = ()) -> Reply:
    """Return ``workers`` by address, at most `MAX_DESCRIBED`, and ``worker_count``, the number of all.

    Args:
        client: The client of the scheduler.
        near: Addresses of workers to describe first, with others on their hosts.
    """
    reply = await fetch_identity(client, most_workers=MAX_DESCRIBED)
    workers: Reply = dict(reply.get("workers") or {})
    count = int(reply.get("n_workers", len(workers)))
    if count > MAX_DESCRIBED and has_same_python(await fetch_versions(client)):
        addresses = [each for each in near if each]
        hosts = [host for each in addresses if (host := host_of(each))]
        try:
            return dict(await client.run_on_scheduler(_worker_looker(), addresses, hosts))
        except Exception as problem:
            if not is_disallowed(problem):
                raise
    return {"workers": workers, "worker_count": count}


async def fetch_identity(client: Client, *, most_workers: int) -> Reply:
    """Return the scheduler's ``identity`` with its workers (0.7 kB each)."""
    try:
        reply = await client.scheduler.identity(n_workers=most_workers)
    except TypeError:  # up to 2025.3.1 it takes no argument and returns all workers
        reply = await client.scheduler.identity()
    return dict(reply)


def _worker_looker() -> Method:
    forget, workers = forgetter(), workers_reader()

    async def workerdiag_looks_at_workers(
        addresses: list[str], hosts: list[str], dask_scheduler: object = None
    ) -> Reply:
        forget(dask_scheduler)
        found: Reply = await workers(dask_scheduler, addresses, hosts)
        return found

    return workerdiag_looks_at_workers


def workers_reader() -> Method:
    """Return a function for ``workers`` by address (identity, pid, tasks at the last heartbeat) and counts.

    The function runs inside the scheduler. It is nested, so it is pickled by value.
    """
    begin, describe = pauses(), _worker_describer()
    most, most_of_a_kind = MAX_DESCRIBED, _MAX_OF_A_KIND

    def kind(each: WorkerState, heard_since: float, addresses: frozenset[str], hosts: frozenset[str]) -> str:
        memory = each.metrics.get("memory") or 0
        is_full = bool(each.memory_limit) and memory > 0.7 * each.memory_limit
        if each.address in addresses:
            return "in question"
        if each.status.name != "running" or each.last_seen < heard_since or is_full:
            return "unwell"
        return "near" if each.address.rpartition(":")[0].rpartition("/")[2] in hosts else "well"

    async def select(
        everyone: list[WorkerState], addresses: frozenset[str], hosts: frozenset[str]
    ) -> list[WorkerState]:
        """Return the workers in question, unhealthy ones (longest silent first), those on the hosts, others."""
        from heapq import nsmallest

        pause = begin()
        newest = max(everyone, key=lambda each: each.last_seen)
        heard_since = newest.last_seen - max(10.0, 5 * (len(everyone) / 200 + 1))
        kinds: dict[str, list[WorkerState]] = {}
        for each in (each for each in everyone if each is not newest):
            kinds.setdefault(kind(each, heard_since, addresses, hosts), []).append(each)
            await pause()
        unwell = nsmallest(most, kinds.get("unwell", ()), key=lambda each: each.last_seen)
        near = kinds.get("near", [])
        first = [newest, *unwell[:most_of_a_kind], *near[:most_of_a_kind]]
        rest = [*kinds.get("well", ()), *near[most_of_a_kind:], *unwell[most_of_a_kind:]]
        return [*kinds.get("in question", ()), *first, *rest][:most]

    async def workers(
        scheduler: Scheduler, addresses: Collection[str], hosts: Collection[str]
    ) -> dict[str, object]:
        pause = begin()
        everyone = list(scheduler.workers.values())
        running_count, is_any_executing = 0, False
        for each in everyone:
            running_count += each.status.name == "running"
            is_any_executing = is_any_executing or bool(each.executing)
            await pause()
        selected = everyone
        if len(everyone) > most:
            selected = await select(everyone, frozenset(addresses), frozenset(hosts))
        found: dict[str, object] = {}
        for each in selected:
            found[each.address] = describe(each)
            await pause()
        return {
            "workers": found,
            "worker_count": len(everyone),
            "running_count": running_count,
            "is_any_executing": is_any_executing,
        }

    return workers


def _worker_describer() -> Method:
    def describe(each: WorkerState) -> dict[str, object]:
        from itertools import islice

        return {
            "status": each.status.name,
            "nanny": each.nanny,
            "name": each.name,
            "pid": each.pid,
            "nthreads": each.nthreads,
            "memory_limit": each.memory_limit,
            "last_seen": each.last_seen,
            "metrics": {name: each.metrics.get(name) for name in ("memory", "task_counts")},
            "processing_count": len(each.processing),
            "processing": [str(task.key)[:200] for task in islice(each.processing, 3)],
            "executing": [(str(task.key)[:200], ran_s) for task, ran_s in islice(each.executing.items(), 3)],
        }

    return describe
