"""Waits a moment for heartbeats of workers that seem silent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from workerdiag.model.dask import Client, Reply
from workerdiag.sources.cluster.asker import Asker
from workerdiag.sources.cluster.state import ClusterState
from workerdiag.sources.cluster.workers import fetch_workers

#: A worker without a heartbeat in this many more seconds is silent.
_LISTENING_S = 1.2


async def still_silent(client: Client, asker: Asker, state: ClusterState) -> frozenset[str]:
    """Return the workers that seem silent and send no heartbeat during the wait.

    The wait lets a busy scheduler process the heartbeats in its queue.
    """
    suspected = state.maybe_silent()
    if not suspected:
        return frozenset()
    listening = asker.request_deadline().share(0.4, at_most_s=_LISTENING_S)
    await asyncio.sleep(listening.left_s)
    answer = await asker.ask(
        "workers later", partial(fetch_workers, client, near=suspected), place="worker states"
    )
    later: Mapping[str, Reply] = (answer or {}).get("workers") or {}
    return frozenset(
        each
        for each in suspected
        if each in later and later[each].get("last_seen") == state.workers[each].get("last_seen")
    )
