"""
The nannies' logs: over the network, or of those in this process at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.sources.cluster import queries
from workerdiag.sources.cluster.asker import Asker
from workerdiag.sources.cluster.exit_wait import wait_for_exits

#: A nanny that has not answered after so long will not.
_NANNY_S = 5.0

#: Turns a log into evidence: its name, records, nanny, other nannies, records that are told of already.
LogReading = Callable[
    [
        str,
        Sequence[queries.ServerLogRecord],
        str | None,
        Collection[str],
        Collection[queries.ServerLogRecord],
    ],
    list[Evidence],
]


class NannyLogs:
    """
    Whoever can be asked for how a worker ended.

    Args:
        client: Whose cluster it is; a LocalCluster's nannies live in this process.
        asker: Keeps the time.
        about: The workers in question.
    """

    def __init__(self, client: Any, asker: Asker, about: Sequence[Identity]) -> None:
        self._client = client
        self._asker = asker
        #: Processes that have ended and whose nannies will say how, if there are such nannies.
        self._pids = tuple(each.pid for each in about if each.pid is not None and each.nanny)
        #: Logs that are told of already.
        self._read_names: set[str] = set()
        #: How many nannies there were to ask.
        self.found = 0

    async def wait_for_local(self) -> None:
        """
        Wait, for a moment, until the nannies in this process have noted the ends in question.
        """
        await wait_for_exits(self._local_records, self._pids, self._asker.request_deadline())

    def asking(self, nannies: Sequence[str]) -> asyncio.Future[list[Any]]:
        """
        Their logs, or what went wrong; that one is gone takes the scheduler 30 s to notice.
        """
        self.found += len(nannies)
        deadline = self._asker.request_deadline().share(at_most_s=_NANNY_S)
        reads = [partial(queries.fetch_nanny_log, self._client, each) for each in nannies]
        pids = self._pids if len(nannies) == 1 else ()
        calls = [partial(wait_for_exits, each, pids, deadline) for each in reads]
        return asyncio.gather(
            *(queries.answer_in_time(call, deadline) for call in calls), return_exceptions=True
        )

    def evidence(self, nannies: Sequence[str], answers: Sequence[Any], read: LogReading) -> list[Evidence]:
        """
        What their logs say; one that did not answer is a gap.
        """
        evidence: list[Evidence] = []
        seen: set[queries.ServerLogRecord] = set()  # nannies of one process have the same log
        for nanny, answer in zip(nannies, answers, strict=True):
            name = f"nanny log of {nanny}"
            if isinstance(answer, BaseException):
                self._asker.gaps.append(queries.query_gap(name, answer, place="nanny log"))
            else:
                evidence += read(name, answer, nanny, nannies, seen)
                seen.update(answer)
        return evidence

    def local_logs(self, read: LogReading, *, only_nannies: bool = False) -> list[Evidence]:
        """
        Logs of servers in this process that have not been read yet.
        """
        evidence: list[Evidence] = []
        seen: set[queries.ServerLogRecord] = set()
        local = [
            (name, nanny, records)
            for name, nanny, records in queries.local_server_logs(self._client)
            if name not in self._read_names and (nanny or not only_nannies)
        ]
        others = [nanny for _, nanny, _ in local if nanny]
        self.found += len(others)
        for name, nanny, records in local:
            self._read_names.add(name)
            evidence += read(name, records, nanny, others, seen)
            seen.update(records)
        return evidence

    def mark_read(self, name: str) -> None:
        """
        Take down that a log is told of.
        """
        self._read_names.add(name)

    async def _local_records(self) -> list[queries.ServerLogRecord]:
        """
        What the nannies in this process have noted; if there are none, there is no waiting for them.
        """
        read = [records for _, nanny, records in queries.local_server_logs(self._client) if nanny]
        done = [queries.ServerLogRecord(0.0, "", f"Worker process {pid} exited with") for pid in self._pids]
        return [record for records in read for record in records] if read else done
