"""
What one report after another adds to the end of a process.
"""

from __future__ import annotations

from attrs import define, field

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.numerals import whole
from workerdiag.model.process_end import ProcessEnd


@define(eq=False)
class EndBuilder:
    """
    The end of a process while reports of it are merged; the fields are those of `ProcessEnd`.
    """

    identity: Identity = NO_IDENTITY
    aliases: list[Identity] = field(factory=list)
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
    def identities(self) -> tuple[Identity, ...]:
        """
        All names of the process.
        """
        return (self.identity, *self.aliases)

    @property
    def exit_known(self) -> bool:
        """
        Whether anybody said how the process ended.
        """
        return self.signal is not None or self.status is not None

    def learn_from(self, mark: Match, *, reporters: str) -> None:
        """
        Learn what *mark* says.
        """
        self.identity = self.identity.merged_with(mark.identity)
        if self.when is None or (mark.role == "death" and mark.when is not None):
            self.when = mark.when
        self.signal = self.signal if self.signal is not None else whole(mark.captures.get("signal"))
        if self.signal is None and mark.role == "death":
            self._learn_status(whole(mark.captures.get("status")))
        self.reason = self.reason or mark.captures.get("reason") or mark.captures.get("stimulus")
        self.reporters[reporters] = None
        self.marks.append(mark)

    def _learn_status(self, status: int | None) -> None:
        """
        A status of 128 + n is how shells and containers word signal n.
        """
        if status is not None and 128 < status < 128 + 65 and status != 255 and not self.identity.pid:
            self.signal = status - 128
        elif status is not None:
            self.status = status

    def absorb(self, other: EndBuilder) -> None:
        """
        Add all that is known of *other*, which is the same process.
        """
        self.aliases += other.identities
        self.identity = self.identity.merged_with(other.identity)
        self.when = self.when if self.when is not None else other.when
        if not self.exit_known:
            self.signal, self.status = other.signal, other.status
        self.stop_requested = self.stop_requested or other.stop_requested
        self.deregistered = self.deregistered or other.deregistered
        self.lost = self.lost or other.lost
        self.reason = self.reason or other.reason
        self.reporters.update(other.reporters)
        self.marks += other.marks
        self.restarted = self.restarted or other.restarted

    def build(self) -> ProcessEnd:
        """
        The end as a value.
        """
        return ProcessEnd(
            identity=self.identity,
            aliases=tuple(self.aliases),
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
