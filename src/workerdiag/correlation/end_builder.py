"""
The end of a process while its reports in one log, or among the scheduler's events, are read.
"""

from __future__ import annotations

from attrs import define, field

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.signals import signal_of_status


@define(eq=False)
class EndBuilder:
    """
    One end that a reader is still reading about; the fields are those of `ProcessEnd`.
    """

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
    #: Whether a nanny said that it starts the worker again.
    restarted: bool = False

    @property
    def exit_known(self) -> bool:
        """
        Whether a report says how the process ended.
        """
        return self.signal is not None or self.status is not None

    def learn_from(self, mark: Match, *, reporter: str) -> None:
        """
        Add what *mark* says.
        """
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
        """
        The end as a value.
        """
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
