"""
Everything seen, sorted by the death it belongs to.
"""

from __future__ import annotations

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ExceptionFacts, MemoryReading, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.model.lifetimes import Lifetimes
from workerdiag.model.name_index import NameIndex
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.timeline import ProcessHistory
from workerdiag.model.vocabulary import Place


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
    histories: tuple[ProcessHistory, ...] = ()
    #: What was running on workers that were lost, oldest first.
    tasks_at_loss: tuple[TasksAtLoss, ...] = ()
    #: Places that were looked at, so that absence counts there.
    inspected: frozenset[Place] = field(default=frozenset())
    #: The processes whose deaths are in question, where the caller knows them.
    about: tuple[Identity, ...] = ()
    #: Reports of ends for which no time was left.
    left_out: int = 0
    #: When workers spoke.
    lifetimes: Lifetimes = field(factory=lambda: Lifetimes(()), repr=False, eq=False)
    #: Evidence by the names of the processes that it is about.
    exceptions_by_name: NameIndex[ExceptionFacts] = field(init=False, repr=False, eq=False)
    readings_by_name: NameIndex[MemoryReading] = field(init=False, repr=False, eq=False)
    histories_by_name: NameIndex[ProcessHistory] = field(init=False, repr=False, eq=False)
    tasks_at_loss_by_name: NameIndex[TasksAtLoss] = field(init=False, repr=False, eq=False)

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
