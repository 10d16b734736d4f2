"""
Waiting, for a moment, until a nanny has noted how its worker ended.

The scheduler notices the closed connection first; the nanny learns the exit status some 10 to
60 ms later, and KilledWorker may reach an ``except`` block between the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from workerdiag.deadline import Deadline
from workerdiag.model.dask_messages import PROCESS_ENDED
from workerdiag.sources.cluster.queries import ServerLogRecord

#: Longest wait. An exit with status 0 is never noted, so this is what such a death costs.
EXIT_WAIT_S = 0.6
_POLL_S = 0.1


async def wait_for_exits(
    read: Callable[[], Awaitable[Sequence[ServerLogRecord]]], pids: Collection[int], deadline: Deadline
) -> Sequence[ServerLogRecord]:
    """
    What *read* gives once it tells of the end of all *pids*, or after `EXIT_WAIT_S`.

    Args:
        read: Gives the records of a nanny's log.
        pids: Processes that are known to have ended; none: nothing is waited for.
        deadline: For all of it; at most half of what is left is used.
    """
    waiting = deadline.share(0.5, at_most_s=EXIT_WAIT_S)
    records = await read()
    while not are_exits_noted(records, pids) and not waiting.is_over:
        await asyncio.sleep(_POLL_S)
        records = await read()
    return records


def are_exits_noted(records: Iterable[ServerLogRecord], pids: Collection[int]) -> bool:
    """
    Whether the end of each of *pids* is noted.
    """
    noted = {int(found[1]) for each in records if (found := PROCESS_ENDED.search(each.text))}
    return noted.issuperset(pids)
