"""
Everything seen, sorted by the death it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ExceptionFacts, Identity, MemoryReading, TasksAtLoss
from workerdiag.model.lifetimes import Lifetimes
from workerdiag.model.process_end import ProcessEnd


class _HasIdentity(Protocol):
    @property
    def identity(self) -> Identity: ...


_P = TypeVar("_P", bound=_HasIdentity)


class EvidenceByName(Generic[_P]):
    """
    Evidence by the address and pid of the worker that it is about.
    """

    def __init__(self, pieces: Iterable[_P]) -> None:
        self._named: dict[str | int, dict[int, _P]] = {}
        for number, piece in enumerate(pieces):
            for name in (piece.identity.worker, piece.identity.pid):
                if name is not None:
                    self._named.setdefault(name, {})[number] = piece

    def __call__(self, end: ProcessEnd) -> list[_P]:
        """
        What names the process that ended, in the order of the evidence.
        """
        found: dict[int, _P] = {}
        for identity in (end.identity, *end.aliases):
            for name in (identity.worker, identity.pid):
                found |= self._named.get(name, {}) if name is not None else {}
        return [found[number] for number in sorted(found)]


@frozen(kw_only=True)
class Case:
    """
    One death with the signs that are its own, or (without a death) what is left over.
    """

    end: ProcessEnd | None
    signs: tuple[Match, ...] = ()


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
    #: What was running on workers that were lost, oldest first.
    tasks_at_loss: tuple[TasksAtLoss, ...] = ()
    #: Places that were looked at, so that absence counts there.
    inspected: frozenset[str] = field(default=frozenset())
    #: Reports of ends for which no time was left.
    left_out: int = 0
    #: When workers spoke.
    lifetimes: Lifetimes = field(factory=lambda: Lifetimes(()), repr=False, eq=False)
    #: Evidence by the names of the processes that it is about.
    exceptions_of: EvidenceByName[ExceptionFacts] = field(init=False, repr=False, eq=False)
    readings_of: EvidenceByName[MemoryReading] = field(init=False, repr=False, eq=False)
    tasks_at_loss_of: EvidenceByName[TasksAtLoss] = field(init=False, repr=False, eq=False)

    @exceptions_of.default
    def _exceptions_by_name(self) -> EvidenceByName[ExceptionFacts]:
        return EvidenceByName(self.exceptions)

    @readings_of.default
    def _readings_by_name(self) -> EvidenceByName[MemoryReading]:
        return EvidenceByName(self.readings)

    @tasks_at_loss_of.default
    def _tasks_at_loss_by_name(self) -> EvidenceByName[TasksAtLoss]:
        return EvidenceByName(self.tasks_at_loss)
