"""The status of a watcher, for `Watcher.status`."""

from __future__ import annotations

import threading
from collections import deque

from attrs import define, evolve, field, frozen

from workerdiag.errors import describe_error
from workerdiag.model.vocabulary import WatcherState
from workerdiag.redaction.secrets import redact_text
from workerdiag.watch.deliveries import SinkStatus

#: Maximum number of notes; the newest are kept.
_MAX_NOTES = 20


@frozen(kw_only=True)
class WatcherNote:
    """A failure in the watcher, which continued."""

    #: The activity that failed: ``judge deaths``.
    doing: str
    #: What was wrong, for a person, without secrets.
    problem: str
    #: The first and the last time, in seconds since the epoch.
    first_at: float
    last_at: float
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"could not {self.doing}: {self.problem}{times}"


@frozen(kw_only=True)
class WatcherStatus:
    """The status of a watcher."""

    state: WatcherState
    #: Name of the cluster; empty until it was seen.
    cluster: str = ""
    #: When the scheduler last answered, in seconds since the epoch; None: never.
    seen_at: float | None = None
    #: Why it is blind or not connected; empty: it sees.
    problem: str = ""
    #: Number of deaths that this watcher has read, including deliberate stops.
    death_count: int = 0
    sinks: tuple[SinkStatus, ...] = ()
    #: Failures, the newest last.
    notes: tuple[WatcherNote, ...] = ()


@define(eq=False)
class WatcherProgress:
    """The status that the watcher's thread changes and other threads read."""

    _status: WatcherStatus = field(factory=lambda: WatcherStatus(state="connecting"), init=False)
    _notes: deque[WatcherNote] = field(factory=lambda: deque(maxlen=_MAX_NOTES), init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def status(self) -> WatcherStatus:
        """Return the current status."""
        with self._lock:
            return evolve(self._status, notes=tuple(self._notes))

    def seen(self, now: float, cluster: str, death_count: int) -> None:
        """Note an answer of the scheduler with this many new deaths."""
        with self._lock:
            more = self._status.death_count + death_count
            self._status = evolve(
                self._status,
                state="watching",
                cluster=cluster,
                seen_at=now,
                problem="",
                death_count=more,
            )

    def changed(self, state: WatcherState, problem: str = "") -> None:
        """Note a new state of the watcher."""
        with self._lock:
            self._status = evolve(self._status, state=state, problem=redact_text(problem))

    def not_seen(self, problem: str) -> None:
        """Note that the scheduler did not answer. The watcher is not necessarily blind yet."""
        with self._lock:
            self._status = evolve(self._status, problem=redact_text(problem))

    def note(self, doing: str, problem: BaseException, now: float) -> None:
        """Note a failure. Repeats are counted."""
        text = redact_text(describe_error(problem))
        with self._lock:
            last = self._notes[-1] if self._notes else None
            if last is not None and (last.doing, last.problem) == (doing, text):
                self._notes[-1] = evolve(last, last_at=now, count=last.count + 1)
            else:
                self._notes.append(WatcherNote(doing=doing, problem=text, first_at=now, last_at=now))
