"""Reads the nannies' logs, over the network or in this process.

The scheduler notices the closed connection first. The nanny learns the exit status 10 to 60 ms later, and
KilledWorker may reach an ``except`` block between the two. Hence a short wait.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

from workerdiag.deadline import Deadline
from workerdiag.model.dask import PROCESS_ENDED, Client
from workerdiag.model.identity import Identity
from workerdiag.sources.cluster import queries
from workerdiag.sources.cluster.asker import Asker
from workerdiag.sources.cluster.queries import ServerLog, ServerLogRecord

#: Time-out of one nanny's answer, in seconds.
_NANNY_S = 5.0
#: Longest wait for a logged exit, in seconds. A nanny never logs exit status 0, so such a death costs this.
EXIT_WAIT_S = 0.6
_POLL_S = 0.1
#: The status of every error that Python does not catch: only whether the nanny starts the worker again, which
#: it says some milliseconds later, tells such an end from a start that failed.
_STATUS_ONE = re.compile(r"exited with status 1\b")
#: A nanny's last message about an exit: it starts the worker again, or closes (``_on_worker_exit`` and
#: ``close`` in nanny.py).
_NEXT = ("Restarting worker", "Closing Nanny")
#: The records of a nanny's log, or why it did not answer.
NannyAnswer = Sequence[ServerLogRecord] | BaseException


class NannyLogs:
    """The nannies that may know how a worker ended.

    Args:
        client: The client of the cluster; a LocalCluster's nannies live in this process.
        asker: Sets the deadlines and collects gaps.
        about: The workers in question.
    """

    def __init__(self, client: Client, asker: Asker, about: Sequence[Identity]) -> None:
        self._client = client
        self._asker = asker
        #: Processes that have ended and have a nanny, which will log the exit.
        self._pids = tuple(each.pid for each in about if each.pid is not None and each.nanny)
        self._about = tuple(about)
        #: Number of nannies found.
        self.found = 0

    async def local_logs(self) -> list[ServerLog]:
        """Return the logs of the nannies in this process, once they have logged the exits in question."""
        logs = self._local_logs()
        if logs:
            await wait_for_exits(self._local_records, self._pids, self._asker.request_deadline())
            logs = self._local_logs()
        self.found += len(logs)
        return logs

    def asking(self, nannies: Sequence[str]) -> asyncio.Future[list[NannyAnswer]]:
        """Begin to fetch their records; the future holds records or an exception for each nanny.

        The scheduler takes 30 s to notice that a nanny is gone.
        """
        self.found += len(nannies)
        deadline = self._asker.request_deadline().share(at_most_s=_NANNY_S)
        reads = [partial(queries.fetch_nanny_log, self._client, each) for each in nannies]
        pids = [self._pids if len(nannies) == 1 else self._pids_of(each) for each in nannies]
        calls = [partial(wait_for_exits, read, own, deadline) for read, own in zip(reads, pids, strict=True)]
        return asyncio.gather(
            *(queries.answer_in_time(call, deadline) for call in calls), return_exceptions=True
        )

    def answered_logs(self, nannies: Sequence[str], answers: Sequence[NannyAnswer]) -> list[ServerLog]:
        """Return the logs of the nannies that answered; note a gap for each other."""
        logs = []
        for nanny, answer in zip(nannies, answers, strict=True):
            if isinstance(answer, BaseException):
                name = f"nanny log of {nanny}"
                self._asker.gaps.append(queries.query_gap(name, answer, place="nanny log"))
            else:
                logs.append(ServerLog(answer, nanny))
        return logs

    def _pids_of(self, nanny: str) -> tuple[int, ...]:
        return tuple(each.pid for each in self._about if each.nanny == nanny and each.pid is not None)

    def _local_logs(self) -> list[ServerLog]:
        return [each for each in queries.local_server_logs(self._client) if each.nanny]

    async def _local_records(self) -> list[ServerLogRecord]:
        return [record for log in self._local_logs() for record in log.records]


async def wait_for_exits(
    read: Callable[[], Awaitable[Sequence[ServerLogRecord]]], pids: Collection[int], deadline: Deadline
) -> Sequence[ServerLogRecord]:
    """Return the records of *read* once they show the exits of all *pids*, or after `EXIT_WAIT_S`.

    Args:
        read: Returns the records of a nanny's log.
        pids: Processes known to have ended; without any there is no wait.
        deadline: The wait takes at most half of the time left.
    """
    waiting = deadline.share(0.5, at_most_s=EXIT_WAIT_S)
    records = await read()
    while not _are_ends_noted(records, pids) and not waiting.is_over:
        await asyncio.sleep(_POLL_S)
        records = await read()
    return records


def _are_ends_noted(records: Iterable[ServerLogRecord], pids: Collection[int]) -> bool:
    """Whether the log has the exits of all *pids*, and what the nanny did after one with status 1."""
    noted: set[int] = set()
    is_next_due = False
    for each in records:
        found = PROCESS_ENDED.search(each.text)
        if found is not None:
            noted.add(int(found[1]))
            is_next_due |= int(found[1]) in pids and _STATUS_ONE.search(each.text) is not None
        is_next_due &= not any(said in each.text for said in _NEXT)
    return noted.issuperset(pids) and not is_next_due
