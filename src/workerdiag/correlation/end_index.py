"""
Ends by their names and times, so that of many thousands only those are compared that may be one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workerdiag.model.evidence import Identity
from workerdiag.model.process_end import ProcessEnd

#: Ends that are told within so many seconds of each other are compared.
_BUCKET_S = 4.0
#: A slow end is looked up by its first and last such spans of time.
_MAX_BUCKETS = 64
#: Of those that nothing but the time tells apart, so many are compared.
_MAX_COMPARED = 400


class EndsByName:
    """
    Ends by the address and pid of their workers, in the order in which they came.
    """

    def __init__(self, ends: Iterable[ProcessEnd] = ()) -> None:
        self._ends: list[ProcessEnd] = []
        self._number: dict[int, int] = {}
        self._named: dict[str | int, dict[int, ProcessEnd]] = {}
        for end in ends:
            self.add(end)

    def add(self, end: ProcessEnd) -> int:
        """
        Take up an end, or what became known of it since; its number.
        """
        number = self._number.setdefault(id(end), len(self._ends))
        if number == len(self._ends):
            self._ends.append(end)
        for identity in (end.identity, *end.aliases):
            for name in (identity.worker, identity.pid):
                if name is not None:
                    self._named.setdefault(name, {})[number] = end
        return number

    def with_name(self, *identities: Identity) -> list[ProcessEnd]:
        """
        Those that share a name with one of them.
        """
        found: dict[int, ProcessEnd] = {}
        for identity in identities:
            found |= self._named.get(identity.worker or "", {})
            found |= self._named.get(identity.pid, {}) if identity.pid is not None else {}
        return [found[number] for number in sorted(found) if any(map(found[number].same_process, identities))]


class EndCandidates:
    """
    The ends that are known so far, of which a further one may be the same process.
    """

    def __init__(self) -> None:
        self._names = EndsByName()
        self._timed: set[int] = set()
        self._at: dict[int, dict[int, ProcessEnd]] = {}
        self._timeless: dict[int, ProcessEnd] = {}

    def add(self, end: ProcessEnd, span: tuple[float, float]) -> None:
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

    def of(self, end: ProcessEnd, span: tuple[float, float], taken: set[int]) -> list[ProcessEnd]:
        """
        Those that *end* may be: of its name, of its time, or where a time is missing.
        """
        found: dict[int, ProcessEnd] = {}
        for each in self._names.with_name(end.identity, *end.aliases):
            found[self._names.add(each)] = each
        near = self._ends_near(span) if end.when is not None else self._any()
        compared = 0
        for number, each in near:
            if number not in found and id(each) not in taken:
                found[number] = each
                compared += 1
                if compared >= _MAX_COMPARED:
                    break
        return [found[number] for number in sorted(found) if id(found[number]) not in taken]

    def _ends_near(self, span: tuple[float, float]) -> Iterator[tuple[int, ProcessEnd]]:
        for bucket in _time_buckets(span):
            for near in (bucket, bucket - 1, bucket + 1):
                yield from self._at.get(near, {}).items()
        yield from self._timeless.items()

    def _any(self) -> Iterator[tuple[int, ProcessEnd]]:
        yield from self._timeless.items()
        for filed in self._at.values():
            yield from filed.items()


def _time_buckets(span: tuple[float, float]) -> list[int]:
    first, last = (int(when // _BUCKET_S) for when in span)
    if last - first < _MAX_BUCKETS:
        return list(range(first, last + 1))
    half = _MAX_BUCKETS // 2
    return [*range(first, first + half), *range(last - half + 1, last + 1)]
