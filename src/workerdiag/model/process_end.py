"""
The end of one worker process, so far as known.
"""

from __future__ import annotations

from attrs import define, field

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import NO_IDENTITY, Identity
from workerdiag.model.numerals import whole

#: SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV, as Linux numbers them.
_FAULTS = (4, 6, 7, 8, 11)


@define(eq=False)
class ProcessEnd:
    """
    The end of one process, so far as known.
    """

    identity: Identity = NO_IDENTITY
    #: What others call the same process: a kernel sees another pid than a container.
    aliases: list[Identity] = field(factory=list)
    when: float | None = None
    signal: int | None = None
    status: int | None = None
    #: Somebody asked it to stop.
    stop_requested: bool = False
    #: It took leave of the scheduler in order.
    deregistered: bool = False
    #: It is certain that a process ended, or was lost unasked.
    lost: bool = False
    reason: str | None = None
    reporters: dict[str, None] = field(factory=dict)
    marks: list[Match] = field(factory=list)
    restarted: bool = False
    _last_lines: dict[str, int] = field(factory=dict, init=False)

    @property
    def exit_known(self) -> bool:
        """
        Whether anybody said how the process ended.
        """
        return self.signal is not None or self.status is not None

    @property
    def crashed(self) -> bool:
        """
        Whether a signal ended it that comes of a fault inside a process, and that nobody sends to stop one.
        """
        return self.signal in _FAULTS

    @property
    def addresses(self) -> tuple[str, ...]:
        """
        The addresses of the worker that ended.
        """
        names = (identity.worker for identity in (self.identity, *self.aliases))
        return tuple(dict.fromkeys(each for each in names if each is not None))

    def same_process(self, identity: Identity) -> bool:
        """
        Whether *identity* names this very process.
        """
        return any(each.same_process(identity) for each in (self.identity, *self.aliases))

    def has_pid(self, pid: int | None) -> bool:
        """
        Whether *pid* is one of its numbers: kernels know processes by nothing else.
        """
        return pid is not None and any(each.pid == pid for each in (self.identity, *self.aliases))

    def conflicts_with(self, identity: Identity) -> bool:
        """
        Whether *identity* cannot be this process, by any of its names.
        """
        return all(each.conflicts_with(identity) for each in (self.identity, *self.aliases))

    def last_line(self, origin: str) -> int:
        """
        The last line of *origin* that tells of this end; 0 if none does.
        """
        return self._last_lines.get(origin, 0)

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
        self.attach(mark)

    def attach(self, mark: Match) -> None:
        """
        Keep *mark* with this end.
        """
        self.marks.append(mark)
        self._last_lines[mark.origin] = max(mark.last_line, self._last_lines.get(mark.origin, 0))

    def _learn_status(self, status: int | None) -> None:
        """
        A status of 128 + n is how shells and containers word signal n.
        """
        if status is not None and 128 < status < 128 + 65 and status != 255 and not self.identity.pid:
            self.signal = status - 128
        elif status is not None:
            self.status = status

    def absorb(self, other: ProcessEnd) -> None:
        """
        Both are the same process.
        """
        self.aliases += [other.identity, *other.aliases]
        self.identity = self.identity.merged_with(other.identity)
        self.when = self.when if self.when is not None else other.when
        if not self.exit_known:
            self.signal, self.status = other.signal, other.status
        self.stop_requested = self.stop_requested or other.stop_requested
        self.deregistered = self.deregistered or other.deregistered
        self.lost = self.lost or other.lost
        self.reason = self.reason or other.reason
        self.reporters.update(other.reporters)
        for mark in other.marks:
            self.attach(mark)
        self.restarted = self.restarted or other.restarted
