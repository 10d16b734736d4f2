"""Collects the deaths described by record files and black boxes, in bounded memory."""

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

#: The same number as requested of a live scheduler (`workerdiag.sources.recorder`).
MAX_DEATHS = 32
#: Maximum bytes of JSON kept until all is read; parsed, they take a multiple.
_MAX_BYTES = 4 * 2**20
#: Archived records further back, or later, than these many seconds belong to another death.
_SAME_CLUSTER_S, _AFTER_S = 24 * 3600.0, 60.0


class RecordCollection:
    """Collects records and reports in any order, and yields their evidence once all are read.

    Args:
        about: Addresses of the workers in question. Without *about* and *tasks* the last death, and those in
            the quarter of an hour before, are selected.
        tasks: Keys of the tasks that Dask gave up on.
    """

    def __init__(self, about: Collection[str] = (), tasks: Collection[str] = ()) -> None:
        self._about = frozenset(about)
        self._tasks = frozenset(tasks)
        self._numbers = count()
        #: The least important first: by rank, time and order of arrival.
        self._heap: list[tuple[int, float, int, ParsedRecord]] = []
        self._bytes = self._dropped_count = 0

    def add(self, record: ParsedRecord) -> None:
        """Keep a record; if there is no room, drop the least important one."""
        death = RecordedDeath.of(record.message)
        rank = 2 if self._is_in_question(death) else int(not death.is_expected)
        heapq.heappush(self._heap, (rank, death.time, next(self._numbers), record))
        self._bytes += record.size_bytes
        while self._bytes > _MAX_BYTES and len(self._heap) > 1:
            self._bytes -= heapq.heappop(self._heap)[-1].size_bytes
            self._dropped_count += 1

    def evidence(self) -> Iterator[Evidence]:
        """Yield the evidence of the selected deaths; nothing without records."""
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
        except Exception as problem:  # noqa: BLE001  files are untrusted
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
    """Select the relevant deaths from an archive, which many schedulers may have written; oldest first.

    Without workers or tasks they are the last unexpected death and those in the quarter of an hour before, or
    the last death if all were expected. Addresses and keys may be reused, so deaths more than a day before
    belong to another cluster.
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
