"""The end of one worker process, as far as known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.values import frozen

#: Seconds before a death in which events belong to it.
RECENT_S = 900.0
#: Seconds within which workers of one host count as lost together.
TOGETHER_S = 5.0


@frozen(kw_only=True)
class ProcessEnd:
    """The end of one process, merged from all that report it."""

    identity: Identity = NO_IDENTITY
    #: Other names of the same process: a kernel sees another pid than a container.
    aliases: tuple[Identity, ...] = ()
    when: float | None = None
    signal: int | None = None
    status: int | None = None
    #: Whether somebody requested the stop.
    stop_requested: bool = False
    #: Whether it deregistered from the scheduler.
    deregistered: bool = False
    #: Whether a process certainly ended, or was lost without a request.
    lost: bool = False
    reason: str | None = None
    reporters: tuple[str, ...] = ()
    marks: tuple[Match, ...] = ()

    @property
    def exit_text(self) -> str:
        """How it ended, in short; empty if nothing says so."""
        if self.signal is not None:
            return f"signal {self.signal}"
        return f"status {self.status}" if self.status is not None else ""

    @cached_property
    def first_when(self) -> float | None:
        """When it was first reported."""
        return min((mark.when for mark in self.marks if mark.when is not None), default=None)

    @cached_property
    def _lines(self) -> Mapping[str, tuple[int, int]]:
        lines: dict[str, tuple[int, int]] = {}
        for mark in self.marks:
            if mark.line:
                first, last = lines.get(mark.origin, (mark.line, 0))
                lines[mark.origin] = min(mark.line, first), max(mark.last_line, last)
        return lines

    @cached_property
    def places(self) -> frozenset[tuple[str, int]]:
        """Origins and lines of the messages that report it."""
        return frozenset((mark.origin, mark.line) for mark in self.marks)

    @property
    def identities(self) -> tuple[Identity, ...]:
        """All names of the process."""
        return (self.identity, *self.aliases)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the worker."""
        return tuple(dict.fromkeys(each.worker for each in self.identities if each.worker is not None))

    @property
    def exit_known(self) -> bool:
        """Whether a report says how the process ended."""
        return self.signal is not None or self.status is not None

    @property
    def crashed(self) -> bool:
        """Whether a fault signal ended it, which is never sent to stop a process.

        An abort during a requested stop counts as a stop: threads that Python leaves behind cause it.
        """
        if self.signal != 6:  # SIGABRT
            return self.signal in (4, 7, 8, 11)  # SIGILL, SIGBUS, SIGFPE and SIGSEGV, as Linux numbers them
        return not any(
            request.role == "stop-request" and _is_soon_after(death, request)
            for death in self.marks
            if death.role == "death"
            for request in self.marks
        )

    @property
    def unexpected(self) -> bool:
        """Whether a process was lost without a request."""
        return self.lost and not self.stop_requested

    def same_process(self, identity: Identity) -> bool:
        """Whether *identity* names this very process."""
        return any(each.same_process(identity) for each in self.identities)

    def has_pid(self, pid: int | None) -> bool:
        """Whether *pid* is one of its process ids: a kernel knows nothing else."""
        return pid is not None and any(each.pid == pid for each in self.identities)

    def conflicts_with(self, identity: Identity) -> bool:
        """Whether *identity* cannot be this process, by any of its names."""
        return all(each.conflicts_with(identity) for each in self.identities)

    def first_line(self, origin: str) -> int:
        """The first line of *origin* that reports this end; 0 if none does."""
        return self._lines.get(origin, (0, 0))[0]

    def last_line(self, origin: str) -> int:
        """The last line of *origin* that reports this end; 0 if none does."""
        return self._lines.get(origin, (0, 0))[1]

    def merged_with(self, other: ProcessEnd) -> ProcessEnd:
        """Both reports of one end together; what *self* knows wins."""
        exit_ = self if self.exit_known else other
        return ProcessEnd(
            identity=self.identity.merged_with(other.identity),
            aliases=(*self.aliases, *other.identities),
            when=self.when if self.when is not None else other.when,
            signal=exit_.signal,
            status=exit_.status,
            stop_requested=self.stop_requested or other.stop_requested,
            deregistered=self.deregistered or other.deregistered,
            lost=self.lost or other.lost,
            reason=self.reason or other.reason,
            reporters=tuple(dict.fromkeys((*self.reporters, *other.reporters))),
            marks=(*self.marks, *other.marks),
        )


def _is_soon_after(death: Match, request: Match) -> bool:
    """Whether a log has a death in the 10 s after a stop request in which a nanny ends its worker (nanny.py)."""
    if death.origin != request.origin or not 0 < request.line < death.line:
        return False
    return death.when is None or request.when is None or death.when - request.when <= 10.0
