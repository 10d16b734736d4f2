"""
Ends by their names and times, so that of many thousands only those are compared that may be one process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from workerdiag.correlation.end_builder import EndBuilder
from workerdiag.model.identity import Identity
from workerdiag.model.name_index import NameIndex

#: Ends that are told within so many seconds of each other are compared.
_BUCKET_S = 4.0
#: A slow end is looked up by its first and last such spans of time.
_MAX_BUCKETS = 64
#: At most this many ends are compared of those that share a name, or that nothing but the time tells apart.
_MAX_COMPARED = 400


class EndsByName:
    """
    Ends by the address and pid of their workers, in the order in which they came.
    """

    def __init__(self, ends: Iterable[EndBuilder] = ()) -> None:
        self._numbers: dict[EndBuilder, int] = {}
        self._names: NameIndex[EndBuilder] = NameIndex()
        for end in ends:
            self.add(end)

    def add(self, end: EndBuilder) -> int:
        """
        Take up an end, or what became known of it since; its number.
        """
        number = self._numbers.setdefault(end, len(self._numbers))
        self._names.add(number, end, *end.identities)
        return number

    def with_name(self, *identities: Identity) -> list[EndBuilder]:
        """
        Those that are the process that one of them names.
        """
        return [
            end
            for end in self._names.find(*identities)
            if any(own.same_process(each) for own in end.identities for each in identities)
        ]


class EndsByTime:
    """
    Ends by the address or pid of their workers, and under each name in the order of time.
    """

    def __init__(self, ends: Iterable[EndBuilder]) -> None:
        self._timed: dict[str | int, list[tuple[float, EndBuilder]]] = {}
        self._timeless: dict[str | int, list[EndBuilder]] = {}
        for end in ends:
            names = {name for each in end.identities for name in (each.worker, each.pid) if name is not None}
            for name in names:
                if end.when is None:
                    self._timeless.setdefault(name, []).append(end)
                else:
                    self._timed.setdefault(name, []).append((end.when, end))
        for timed in self._timed.values():
            timed.sort(key=_first)

    def near(self, identity: Identity, when: float | None) -> Iterator[EndBuilder]:
        """
        Ends that share a name with *identity*, of each name at most `_MAX_COMPARED` around *when*.

        They may be of other processes. Where *when* is None, they are the last ones.
        """
        for name in (identity.worker, identity.pid):
            if name is not None:
                timed = self._timed.get(name, [])
                place = len(timed) if when is None else bisect_left(timed, when, key=_first)
                first = max(0, min(place - _MAX_COMPARED // 2, len(timed) - _MAX_COMPARED))
                yield from (end for _, end in timed[first : first + _MAX_COMPARED])
                yield from self._timeless.get(name, [])[:_MAX_COMPARED]


def _first(timed: tuple[float, EndBuilder]) -> float:
    return timed[0]


class EndCandidates:
    """
    The ends that are known so far, of which a further one may be the same process.
    """

    def __init__(self) -> None:
        self._names = EndsByName()
        self._timed: set[int] = set()
        self._at: dict[int, dict[int, EndBuilder]] = {}
        self._timeless: dict[int, EndBuilder] = {}

    def add(self, end: EndBuilder, span: tuple[float, float]) -> None:
        """
        Take up an end that is told from the first to the last time of *span*.
        """
        number = self._names.add(end)
        if end.when is None:
            self._timeless[number] = end
            return
        self._timeless.pop(number, None)
        self._timed.add(number)
        for bucket in _time_buckets(span):
            self._at.setdefault(bucket, {})[number] = end

    @property
    def timed_count(self) -> int:
        """
        How many of them have a time.
        """
        return len(self._timed)

    def of(self, end: EndBuilder, span: tuple[float, float], taken: set[EndBuilder]) -> list[EndBuilder]:
        """
        Those that *end* may be: of its name, of its time, or where a time is missing.
        """
        found: dict[int, EndBuilder] = {}
        for each in self._names.with_name(*end.identities):
            found[self._names.add(each)] = each
        near = self._ends_near(span) if end.when is not None else self._any()
        compared = 0
        for number, each in near:
            if number not in found and each not in taken:
                found[number] = each
                compared += 1
                if compared >= _MAX_COMPARED:
                    break
        return [found[number] for number in sorted(found) if found[number] not in taken]

    def _ends_near(self, span: tuple[float, float]) -> Iterator[tuple[int, EndBuilder]]:
        for bucket in _time_buckets(span):
            for near in (bucket, bucket - 1, bucket + 1):
                yield from self._at.get(near, {}).items()
        yield from self._timeless.items()

    def _any(self) -> Iterator[tuple[int, EndBuilder]]:
        yield from self._timeless.items()
        for filed in self._at.values():
            yield from filed.items()


def _time_buckets(span: tuple[float, float]) -> list[int]:
    first, last = (int(when // _BUCKET_S) for when in span)
    if last - first < _MAX_BUCKETS:
        return list(range(first, last + 1))
    half = _MAX_BUCKETS // 2
    return [*range(first, first + half), *range(last - half + 1, last + 1)]
