"""
The deaths that records in files and black boxes describe, collected in bounded memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import count

from workerdiag.errors import describe_error
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.recorder.evidence import death_evidence
from workerdiag.sources.recorder.record_lines import ParsedRecord
from workerdiag.wire.constants import RECORDER
from workerdiag.wire.recorded_death import RecordedDeath, merge_messages

#: As many as a live scheduler is asked for (`workerdiag.sources.recorder`).
MAX_DEATHS = 32
#: What is kept until all was read, as JSON; parsed it takes some times as much.
_MAX_BYTES = 4 * 2**20
#: Of archived records: what is further back than this, or comes later, belongs to another death.
_SAME_CLUSTER_S, _AFTER_S = 24 * 3600.0, 60.0


class RecordCollection:
    """
    Records and reports from anywhere, in any order; their evidence comes once all were read.

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
        self._heap: list[tuple[int, float, int, ParsedRecord]] = []
        self._bytes = self._dropped_count = 0

    def add(self, record: ParsedRecord) -> None:
        """
        Keep a record; where there is no room, that which matters least goes.
        """
        death = RecordedDeath.of(record.message)
        rank = 2 if self._is_in_question(death) else int(not death.is_expected)
        heapq.heappush(self._heap, (rank, death.time, next(self._numbers), record))
        self._bytes += record.size_bytes
        while self._bytes > _MAX_BYTES and len(self._heap) > 1:
            self._bytes -= heapq.heappop(self._heap)[-1].size_bytes
            self._dropped_count += 1

    def evidence(self) -> Iterator[Evidence]:
        """
        The evidence of the deaths in question; nothing if there were none.
        """
        if not self._heap:
            return
        messages = [record.message for *_, record in sorted(self._heap, key=lambda each: each[1])]
        self._heap = []
        selected = select_archived(merge_messages(messages), about=self._about, tasks=self._tasks)
        if not selected and (self._about or self._tasks):
            who = ", ".join(sorted(self._about)[:5]) or "that task"
            yield self._gap("never-recorded", f"the records that were read do not tell of {who}")
        most = sorted(selected, key=lambda each: (self._is_in_question(each), each.time))[-MAX_DEATHS:]
        try:
            yield from death_evidence(sorted(most, key=lambda each: each.time))
        except Exception as problem:  # noqa: BLE001  files are not to be trusted
            yield self._gap("malformed", f"a record could not be used: {describe_error(problem)}")
        if len(selected) > len(most):
            more = len(selected) - len(most)
            yield self._gap("timed-out", f"{more} more deaths are recorded, too many to tell of at once")
        if self._dropped_count:
            detail = f"{self._dropped_count} records were let go of, as there were too many to keep"
            yield self._gap("timed-out", detail)

    def _is_in_question(self, death: RecordedDeath) -> bool:
        return death.identity.worker in self._about or death.has_task(self._tasks)

    @staticmethod
    def _gap(reason: GapReason, detail: str) -> Gap:
        remedy = "name the file of the time in question alone, or give the exception: explain(exc, logs=...)"
        return Gap(source=RECORDER, reason=reason, detail=detail[:500], remedy=remedy)


def select_archived(
    deaths: Iterable[RecordedDeath], *, about: Collection[str], tasks: Collection[str]
) -> list[RecordedDeath]:
    """
    The deaths in question of those that were kept for long, maybe by many schedulers; oldest first.

    Without workers or tasks that is the last unexpected death, with those of the quarter of an hour before;
    if all were expected, the last of them. A worker's address and a task's key may come again: what is
    further back than a day counts as another's.
    """
    known = sorted(deaths, key=lambda each: each.time)
    in_question = [each for each in known if each.identity.worker in about or each.has_task(tasks)]
    if not known or ((about or tasks) and not in_question):
        return []
    unexpected = [each for each in known if not each.is_expected]
    last = (in_question or unexpected or known)[-1].time
    return [
        each
        for each in known
        if -_AFTER_S <= last - each.time <= (_SAME_CLUSTER_S if each in in_question else RECENT_S)
        and (each in in_question or not each.is_expected or not (in_question or unexpected))
    ]
