"""An incident: all evidence, sorted by the death it belongs to, and when worker processes were alive.

A process that writes after its kill was not killed: a kernel line that is older than its last message is about
another process of that machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Final, Generic, TypeVar

from workerdiag.model.diagnosis import Death, Match
from workerdiag.model.evidence import ExceptionFacts, MemoryReading, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import REGISTRATIONS, ErrorRule
from workerdiag.model.timeline import ProcessHistory
from workerdiag.model.vocabulary import MatchRole, Place
from workerdiag.values import field, frozen

#: Roles that report an end.
END_ROLES: Final[frozenset[MatchRole]] = frozenset(("death", "self-closed", "removal"))
#: Seconds by which the kernel's clock and those of Dask's processes may differ.
SLACK_S = 2.0
#: Landmarks that a worker process itself writes.
_SPOKEN = frozenset(
    "worker.start worker.asked-to-stop worker.asked-by-code worker.closed-itself"
    " event.closing-worker event.worker-status-change".split()
).union(REGISTRATIONS)
#: Time zones differ by multiples of a quarter of an hour; times of logs in two zones have no order.
_ZONE_S = 900.0
_T = TypeVar("_T")
_K = TypeVar("_K")
_E = TypeVar("_E", bound=Death | ExceptionFacts | Match | MemoryReading | ProcessEnd | ProcessHistory | TasksAtLoss)


def grouped(values: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """The values by their keys, in their order."""
    found: dict[_K, list[_T]] = {}
    for each in values:
        found.setdefault(key(each), []).append(each)
    return found


class Lifetimes:
    """The times at which workers wrote, by address; *marks* are landmarks with times on one clock."""

    def __init__(self, marks: Iterable[Match]) -> None:
        self._joined: dict[str, list[float]] = {}
        self._spoke: dict[str, list[float]] = {}
        for mark in marks:
            worker = mark.identity.worker
            if worker is None or mark.when is None or mark.owner not in _SPOKEN:
                continue
            self._spoke.setdefault(worker, []).append(mark.when)
            if mark.owner in REGISTRATIONS:
                self._joined.setdefault(worker, []).append(mark.when)
        for times in (*self._joined.values(), *self._spoke.values()):
            times.sort()

    def outlived(self, workers: Iterable[str], line: Match, until: float | None = None) -> bool:
        """Whether a process with these addresses, gone at *until*, wrote after the kernel's report of its end."""
        when = line.when
        if when is None or line.stream != "kernel":
            return False
        apart_s = until - when if until is not None else 0.0
        if apart_s > 300.0 and min(apart_s % _ZONE_S, -apart_s % _ZONE_S) <= SLACK_S * 5:
            return False  # a death is noticed sooner: the line may be in a log of another time zone
        return any(self._spoke_after(worker, when + SLACK_S, until) for worker in workers)

    def may_describe(self, sign: Match, end: ProcessEnd) -> bool:
        """Whether *sign* may be about *end*: the kernel reports no orderly end, and none of who spoke later."""
        if sign.stream != "kernel" or end.has_pid(sign.identity.pid):
            return True
        if end.deregistered or (end.stop_requested and not end.crashed):
            return False
        return not self.outlived(end.addresses, sign, end.when)

    def _spoke_after(self, worker: str, since: float, until: float | None) -> bool:
        """Whether the process that had the address then, or the first one to have it, wrote later."""
        joined, spoke = self._joined.get(worker, []), self._spoke.get(worker, [])
        before = bisect_right(joined, since)
        following = joined[before] if before and before < len(joined) else inf
        last = min(following, inf if until is None else until + SLACK_S)
        place = bisect_right(spoke, since)
        return place < len(spoke) and spoke[place] < last


class NameIndex(Generic[_T]):
    """Numbered values, indexed by the worker addresses and pids that they name."""

    def __init__(self) -> None:
        self._named: dict[str | int, dict[int, _T]] = {}

    @staticmethod
    def by_identity(pieces: Iterable[_E]) -> NameIndex[_E]:
        """Pieces of evidence, or ends of processes by all their names, in their order."""
        index: NameIndex[_E] = NameIndex()
        for number, piece in enumerate(pieces):
            index.add(number, piece, *getattr(piece, "identities", (piece.identity,)))
        return index

    def add(self, number: int, value: _T, *identities: Identity) -> None:
        """Add a value, or further *identities* of the one with that *number*."""
        for identity in identities:
            for name in (identity.worker, identity.pid):
                if name is not None:
                    self._named.setdefault(name, {})[number] = value

    def find(self, *identities: Identity) -> list[_T]:
        """The values that share a name with one of *identities*, by their numbers."""
        found: dict[int, _T] = {}
        for identity in identities:
            for name in (identity.worker, identity.pid):
                if name is not None:
                    found |= self._named.get(name, {})
        return [found[number] for number in sorted(found)]


@frozen(kw_only=True)
class Case:
    """One death with its own signs."""

    end: ProcessEnd
    signs: tuple[Match, ...] = ()


@frozen(kw_only=True)
class ClippedReports:
    """Reports of ends of one kind in one log of which the marks have only the first and the last."""

    #: Which landmark they are, and how many are kept.
    landmark: str
    kept: int
    #: How many there are, at least.
    count: int
    #: Whether there are no more.
    is_exact: bool
    #: Whether those left out may be of lost workers. Expected removals and those below a goodbye are not.
    of_losses: bool = True


@frozen(kw_only=True)
class Incident:
    """Everything seen, sorted by the death it belongs to."""

    #: In the order in which they died.
    cases: tuple[Case, ...]
    #: Signs that no death claims; they count for every death.
    unassigned_signs: tuple[Match, ...]
    #: All landmarks.
    marks: tuple[Match, ...]
    exceptions: tuple[ExceptionFacts, ...] = ()
    readings: tuple[MemoryReading, ...] = ()
    histories: tuple[ProcessHistory, ...] = ()
    #: The tasks on workers that were lost, oldest first.
    tasks_at_loss: tuple[TasksAtLoss, ...] = ()
    #: Places that were inspected, so that absence there counts.
    inspected: frozenset[Place] = field(default=frozenset())
    #: The processes whose deaths are in question, if the caller knows them.
    about: tuple[Identity, ...] = ()
    #: What the caught exception can come of, if a rule says so.
    asked: ErrorRule | None = None
    #: Whether workers died that have nothing to do with what was asked.
    deaths_are_separate: bool = False
    #: Known deaths of the same trouble without evidence here.
    more_deaths: int = 0
    #: Reports of ends for which no time remained.
    left_out: int = 0
    #: Reports of ends that are so many in one log that only the first and the last were kept.
    clipped_reports: tuple[ClippedReports, ...] = ()
    #: When workers wrote.
    lifetimes: Lifetimes = field(factory=lambda: Lifetimes(()), repr=False, eq=False)

    @property
    def ends(self) -> tuple[ProcessEnd, ...]:
        """The deaths alone."""
        return tuple(case.end for case in self.cases)

    @property
    def all_signs(self) -> tuple[Match, ...]:
        """The signs of each death, then those that no death claims."""
        return (*(each for case in self.cases for each in case.signs), *self.unassigned_signs)

    @cached_property
    def marks_by_owner(self) -> Mapping[str, Sequence[Match]]:
        """The landmarks by their ids."""
        return grouped(self.marks, lambda each: each.owner)

    def events(self, topic: str) -> Sequence[Match]:
        """The events of that topic; its fields are captures, as text."""
        return self.marks_by_owner.get(f"event.{topic}", ())

    def fields_of(self, topic: str) -> list[Mapping[str, str]]:
        """The fields of each event of that topic."""
        return [each.captures for each in self.events(topic)]

    def naming(self, end: ProcessEnd, kind: type[_E]) -> list[_E]:
        """The exceptions, readings, histories or tasks at a loss that share a name with a process that ended."""
        return [each for each in self._named.find(*end.identities) if isinstance(each, kind)]

    @cached_property
    def _named(self) -> NameIndex[ExceptionFacts | MemoryReading | ProcessHistory | TasksAtLoss]:
        return NameIndex.by_identity((*self.exceptions, *self.readings, *self.histories, *self.tasks_at_loss))
