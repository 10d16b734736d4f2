"""
The deaths that records in files and black boxes tell of, collected in bounded memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from itertools import count

from workerdiag.errors import worded
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.sources.recorder.evidence import of_deaths
from workerdiag.sources.recorder.record_lines import Record
from workerdiag.sources.recorder.selection import Death, deaths_of_events, recorded

NAME = "flight recorder"
#: As many as a live scheduler is asked for (`workerdiag.sources.recorder`).
MOST_DEATHS = 32
#: What is kept until all was read, as JSON; parsed it takes some times as much.
_MOST_BYTES = 4 * 2**20


class Records:
    """
    Records and messages from anywhere, in any order, that are told of once all were read.

    Args:
        about: Addresses of the workers in question; with *tasks* they select. Without either it is the
            last death, and those of the quarter of an hour before.
        tasks: Keys of the tasks that Dask gave up on.
    """

    def __init__(self, about: Collection[str] = (), tasks: Collection[str] = ()) -> None:
        self._about = frozenset(about)
        self._tasks = frozenset(tasks)
        self._numbers = count()
        #: What matters least comes first: by rank, by time, and as they came.
        self._kept: list[tuple[int, float, int, Record]] = []
        self._bytes = self._gone = 0

    def add(self, record: Record) -> None:
        """
        Keep a record; where there is no room, that which matters least goes.
        """
        when = float(record.said.get("when") or 0.0)
        heapq.heappush(self._kept, (self._rank(record), when, next(self._numbers), record))
        self._bytes += record.size_bytes
        while self._bytes > _MOST_BYTES and len(self._kept) > 1:
            self._bytes -= heapq.heappop(self._kept)[-1].size_bytes
            self._gone += 1

    def evidence(self) -> Iterator[Evidence]:
        """
        What they tell of the deaths in question; nothing if there were none.
        """
        if not self._kept:
            return
        entries = [(when, record.said) for _, when, _, record in sorted(self._kept, key=lambda each: each[1])]
        self._kept = []
        told = recorded(deaths_of_events(entries), about=self._about, tasks=self._tasks)
        if not told and (self._about or self._tasks):
            who = ", ".join(sorted(self._about)[:5]) or "that task"
            yield self._gap("never-recorded", f"the records that were read do not tell of {who}")
        most = sorted(told, key=lambda each: (self._is_asked_for(each), each.when))[-MOST_DEATHS:]
        try:
            yield from of_deaths(sorted(most, key=lambda each: each.when))
        except Exception as problem:  # noqa: BLE001  files are not to be trusted
            yield self._gap("malformed", f"a record could not be used: {worded(problem)}")
        if len(told) > len(most):
            more = len(told) - len(most)
            yield self._gap("timed-out", f"{more} more deaths are recorded, too many to tell of at once")
        if self._gone:
            detail = f"{self._gone} records were let go of, as there were too many to keep"
            yield self._gap("timed-out", detail)

    def _rank(self, record: Record) -> int:
        said = record.said
        of_scheduler = said["source"] == "scheduler"
        death = Death(record=said if of_scheduler else {}, told={} if of_scheduler else said)
        return 2 if self._is_asked_for(death) else int(not death.is_expected)

    def _is_asked_for(self, death: Death) -> bool:
        return death.worker in self._about or bool(self._tasks and death.keys & self._tasks)

    @staticmethod
    def _gap(reason: str, detail: str) -> Gap:
        remedy = "name the file of the time in question alone, or give the exception: explain(exc, logs=...)"
        return Gap(source=NAME, reason=reason, detail=detail[:500], remedy=remedy)
