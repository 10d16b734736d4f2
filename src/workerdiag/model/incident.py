"""
Everything seen, sorted by the death it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, Protocol, TypeVar

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ExceptionFacts, MemoryReading, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.model.lifetimes import Lifetimes
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.timeline import ProcessHistory
from workerdiag.model.vocabulary import MatchRole, Place

#: What tells of an end.
END_ROLES: Final[frozenset[MatchRole]] = frozenset(("death", "self-closed", "removal"))


class HasIdentity(Protocol):
    """
    Evidence that says which process it is about.
    """

    @property
    def identity(self) -> Identity:
        """
        Whose it is.
        """


_T = TypeVar("_T")
_E = TypeVar("_E", bound=HasIdentity)


class NameIndex(Generic[_T]):
    """
    Numbered values by the worker addresses and pids that they name.
    """

    def __init__(self) -> None:
        self._named: dict[str | int, dict[int, _T]] = {}

    @staticmethod
    def by_identity(pieces: Iterable[_E]) -> NameIndex[_E]:
        """
        Pieces of evidence in their order.
        """
        index: NameIndex[_E] = NameIndex()
        for number, piece in enumerate(pieces):
            index.add(number, piece, piece.identity)
        return index

    def add(self, number: int, value: _T, *identities: Identity) -> None:
        """
        Add a value, or further *identities* of the one with that *number*.
        """
        for identity in identities:
            for name in (identity.worker, identity.pid):
                if name is not None:
                    self._named.setdefault(name, {})[number] = value

    def find(self, *identities: Identity) -> list[_T]:
        """
        The values that share a name with one of *identities*, by their numbers.
        """
        found: dict[int, _T] = {}
        for identity in identities:
            for name in (identity.worker, identity.pid):
                if name is not None:
                    found |= self._named.get(name, {})
        return [found[number] for number in sorted(found)]


@frozen(kw_only=True)
class Case:
    """
    One death with the signs that are its own, or (without a death) what is left over.
    """

    end: ProcessEnd | None
    signs: tuple[Match, ...] = ()


@frozen(kw_only=True)
class ClippedReports:
    """
    Reports of ends of one kind in one log, of which only the first and the last are among the marks.
    """

    #: Which landmark they are, and how many are kept.
    landmark: str
    kept: int
    #: How many there are, at least.
    count: int
    #: Whether there are no more.
    is_exact: bool


@frozen(kw_only=True)
class Incident:
    """
    Everything seen, sorted by the death it belongs to.
    """

    #: In the order in which they died.
    cases: tuple[Case, ...]
    #: Signs that no death claims; they count for every one.
    unassigned_signs: tuple[Match, ...]
    #: All landmarks, of whomever.
    marks: tuple[Match, ...]
    exceptions: tuple[ExceptionFacts, ...] = ()
    readings: tuple[MemoryReading, ...] = ()
    histories: tuple[ProcessHistory, ...] = ()
    #: What was running on workers that were lost, oldest first.
    tasks_at_loss: tuple[TasksAtLoss, ...] = ()
    #: Places that were looked at, so that absence counts there.
    inspected: frozenset[Place] = field(default=frozenset())
    #: The processes whose deaths are in question, where the caller knows them.
    about: tuple[Identity, ...] = ()
    #: Deaths of the same trouble that are known of and of which there is no evidence here.
    more_deaths: int = 0
    #: Reports of ends for which no time was left.
    left_out: int = 0
    #: Reports of ends that one log has so many of that only the first and the last were kept.
    clipped_reports: tuple[ClippedReports, ...] = ()
    #: When workers spoke.
    lifetimes: Lifetimes = field(factory=lambda: Lifetimes(()), repr=False, eq=False)
    #: Evidence by the names of the processes that it is about.
    exceptions_by_name: NameIndex[ExceptionFacts] = field(init=False, repr=False, eq=False)
    readings_by_name: NameIndex[MemoryReading] = field(init=False, repr=False, eq=False)
    histories_by_name: NameIndex[ProcessHistory] = field(init=False, repr=False, eq=False)
    tasks_at_loss_by_name: NameIndex[TasksAtLoss] = field(init=False, repr=False, eq=False)

    @property
    def all_signs(self) -> tuple[Match, ...]:
        """
        The signs of each death, then those that no death claims.
        """
        return (*(each for case in self.cases for each in case.signs), *self.unassigned_signs)

    @exceptions_by_name.default
    def _index_exceptions(self) -> NameIndex[ExceptionFacts]:
        return NameIndex.by_identity(self.exceptions)

    @readings_by_name.default
    def _index_readings(self) -> NameIndex[MemoryReading]:
        return NameIndex.by_identity(self.readings)

    @histories_by_name.default
    def _index_histories(self) -> NameIndex[ProcessHistory]:
        return NameIndex.by_identity(self.histories)

    @tasks_at_loss_by_name.default
    def _index_tasks_at_loss(self) -> NameIndex[TasksAtLoss]:
        return NameIndex.by_identity(self.tasks_at_loss)
