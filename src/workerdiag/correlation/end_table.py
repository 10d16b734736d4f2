"""Ends of processes while their reports are read: numbered, and found by name and time among few others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from attrs import define, field

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.incident import NameIndex
from workerdiag.model.normalize import whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.signals import signal_of_status


@define(eq=False)
class EndBuilder:
    """One end whose reports are still being read; the fields are those of `ProcessEnd`."""

    identity: Identity = NO_IDENTITY
    when: float | None = None
    signal: int | None = None
    status: int | None = None
    stop_requested: bool = False
    deregistered: bool = False
    lost: bool = False
    reason: str | None = None
    reporters: dict[str, None] = field(factory=dict)
    marks: list[Match] = field(factory=list)
    #: Whether a nanny reported that it restarts the worker.
    restarted: bool = False

    @property
    def exit_known(self) -> bool:
        """Whether a report says how the process ended."""
        return self.signal is not None or self.status is not None

    def learn_from(self, mark: Match, *, reporter: str) -> None:
        """Add what *mark* says."""
        self.identity = self.identity.merged_with(mark.identity)
        if self.when is None or (mark.role == "death" and mark.when is not None):
            self.when = mark.when
        self.signal = self.signal if self.signal is not None else whole(mark.captures.get("signal"))
        if self.signal is None and mark.role == "death":
            status = whole(mark.captures.get("status"))
            if status is not None:
                self.signal = None if self.identity.pid else signal_of_status(status)
                self.status = status if self.signal is None else self.status
        self.reason = self.reason or mark.captures.get("reason") or mark.captures.get("stimulus")
        self.reporters[reporter] = None
        self.marks.append(mark)

    def build(self) -> ProcessEnd:
        """The end as a value."""
        return ProcessEnd(
            identity=self.identity,
            when=self.when,
            signal=self.signal,
            status=self.status,
            stop_requested=self.stop_requested,
            deregistered=self.deregistered,
            lost=self.lost,
            reason=self.reason,
            reporters=tuple(self.reporters),
            marks=tuple(self.marks),
        )


class EndList:
    """The ends that one log reports, in its order, and the latest of each worker."""

    def __init__(self) -> None:
        self._numbers: dict[EndBuilder, int] = {}
        self._latest: dict[str, EndBuilder] = {}

    def add(self, end: EndBuilder) -> None:
        """Append one."""
        self._numbers[end] = len(self._numbers)

    def learn(self, end: EndBuilder, mark: Match, *, reporter: str) -> None:
        """Add to one of these what *mark* says."""
        end.learn_from(mark, reporter=reporter)
        if worker := end.identity.worker:
            known = self._latest.setdefault(worker, end)
            if self._numbers[known] < self._numbers[end]:
                self._latest[worker] = end

    def latest_of(self, worker: str | None) -> EndBuilder | None:
        """The last end of a worker, or None."""
        return self._latest.get(worker) if worker else None

    def latest(self, most: int) -> Iterator[EndBuilder]:
        """The last ends, at most this many, newest first."""
        return islice(reversed(self._numbers), most)

    def build(self) -> list[ProcessEnd]:
        """All as values."""
        return [end.build() for end in self._numbers]


#: Seconds between the reports of ends that are compared.
_BUCKET_S = 4.0
#: Time buckets under which a slow end is found at most: its first and its last.
_MAX_BUCKETS = 64
#: Ends that are compared at most among those that share a name, or that only the time distinguishes.
_MAX_COMPARED = 400


class EndTable:
    """Numbered ends, the newest value of each."""

    def __init__(self, ends: Iterable[ProcessEnd] = ()) -> None:
        self.ends: list[ProcessEnd] = []
        self._names: NameIndex[int] = NameIndex()
        for end in ends:
            self.add(end)

    def add(self, end: ProcessEnd) -> int:
        """Append *end*. Returns its number."""
        self.ends.append(end)
        self.replace(len(self.ends) - 1, end)
        return len(self.ends) - 1

    def replace(self, number: int, end: ProcessEnd) -> None:
        """Replace what was known of an end by *end*."""
        self.ends[number] = end
        self._names.add(number, number, *end.identities)

    def with_name(self, *identities: Identity) -> list[int]:
        """The numbers of the ends of processes that one of *identities* names."""
        return [
            number
            for number in self._names.find(*identities)
            if any(self.ends[number].same_process(each) for each in identities)
        ]


class CandidateTable(EndTable):
    """Numbered ends that are also found by the time span of their reports."""

    def __init__(self) -> None:
        super().__init__()
        self._timed: set[int] = set()
        self._timeless: dict[int, None] = {}
        self._buckets: dict[int, dict[int, None]] = {}
        #: Time spans that are not in the buckets yet, by number.
        self._pending: dict[int, tuple[float, float]] = {}

    def set_span(self, number: int, span: tuple[float, float]) -> None:
        """Note the first and last time at which the end is reported; it is found by them after `end_group`."""
        if self.ends[number].when is None:
            self._timeless[number] = None
            return
        self._timeless.pop(number, None)
        self._timed.add(number)
        self._pending[number] = span

    def end_group(self) -> None:
        """Make the ends of one group findable by time; no two of them are the same."""
        for number, span in self._pending.items():
            for bucket in _time_buckets(span):
                self._buckets.setdefault(bucket, {})[number] = None
        self._pending.clear()

    @property
    def timed_count(self) -> int:
        """How many of them have a time."""
        return len(self._timed)

    def candidates(self, end: ProcessEnd, span: tuple[float, float], taken: Collection[int]) -> list[int]:
        """The ends that may be *end*, by number, without *taken*: with its name, at its time, or without a time."""
        found = {number for number in self.with_name(*end.identities) if number not in taken}
        compared = 0
        for number in self._near(span) if end.when is not None else self._all():
            if number not in found and number not in taken:
                found.add(number)
                compared += 1
                if compared >= _MAX_COMPARED:
                    break
        return sorted(found)

    def _near(self, span: tuple[float, float]) -> Iterator[int]:
        for bucket in _time_buckets(span):
            for near in (bucket, bucket - 1, bucket + 1):
                yield from self._buckets.get(near, ())
        yield from self._timeless

    def _all(self) -> Iterator[int]:
        yield from self._timeless
        for numbers in self._buckets.values():
            yield from numbers


class EndsByTime:
    """Ends by the address or pid of their workers, sorted by time under each name."""

    def __init__(self, ends: Iterable[ProcessEnd]) -> None:
        self._timed: dict[str | int, list[tuple[float, ProcessEnd]]] = {}
        self._timeless: dict[str | int, list[ProcessEnd]] = {}
        for end in ends:
            names = {name for each in end.identities for name in (each.worker, each.pid) if name is not None}
            for name in names:
                if end.when is None:
                    self._timeless.setdefault(name, []).append(end)
                else:
                    self._timed.setdefault(name, []).append((end.when, end))
        for timed in self._timed.values():
            timed.sort(key=_end_time)

    def near(self, identity: Identity, when: float | None) -> Iterator[ProcessEnd]:
        """Ends that share a name with *identity*; they may be of other processes.

        At most `_MAX_COMPARED` of each name, around *when* or the last.
        """
        for name in (identity.worker, identity.pid):
            if name is not None:
                timed = self._timed.get(name, [])
                place = len(timed) if when is None else bisect_left(timed, when, key=_end_time)
                first = max(0, min(place - _MAX_COMPARED // 2, len(timed) - _MAX_COMPARED))
                yield from (end for _, end in timed[first : first + _MAX_COMPARED])
                yield from self._timeless.get(name, [])[:_MAX_COMPARED]


def _end_time(timed: tuple[float, ProcessEnd]) -> float:
    return timed[0]


def _time_buckets(span: tuple[float, float]) -> list[int]:
    first, last = (int(when // _BUCKET_S) for when in span)
    if last - first < _MAX_BUCKETS:
        return list(range(first, last + 1))
    half = _MAX_BUCKETS // 2
    return [*range(first, first + half), *range(last - half + 1, last + 1)]
