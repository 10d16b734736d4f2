"""
How a watcher is doing, as `Watcher.status` tells it.
"""

from __future__ import annotations

import threading
from collections import deque

from attrs import define, evolve, field, frozen

from workerdiag.errors import describe_error
from workerdiag.model.vocabulary import WatcherState
from workerdiag.redaction.secrets import redact_text
from workerdiag.watch.deliveries import SinkStatus

#: The newest notes are kept.
_MAX_NOTES = 20


@frozen(kw_only=True)
class WatcherNote:
    """
    Something that failed in the watcher, which went on.
    """

    #: What it was doing: ``judge deaths``.
    doing: str
    #: What was wrong, for a person, without secrets.
    problem: str
    #: Seconds since the epoch, of the first and the last time.
    first_at: float
    last_at: float
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"could not {self.doing}: {self.problem}{times}"


@frozen(kw_only=True)
class WatcherStatus:
    """
    How a watcher is doing.
    """

    state: WatcherState
    #: Name of the cluster; empty until it was seen.
    cluster: str = ""
    #: When the scheduler answered last, in seconds since the epoch; None: never.
    seen_at: float | None = None
    #: Why it is blind, or not connected; empty: it sees.
    problem: str = ""
    #: Deaths that this watcher read, deliberate stops included.
    death_count: int = 0
    sinks: tuple[SinkStatus, ...] = ()
    #: What failed, the newest last.
    notes: tuple[WatcherNote, ...] = ()


@define(eq=False)
class WatcherProgress:
    """
    The status as the watcher's thread changes it and others read it.
    """

    _status: WatcherStatus = field(factory=lambda: WatcherStatus(state="connecting"), init=False)
    _notes: deque[WatcherNote] = field(factory=lambda: deque(maxlen=_MAX_NOTES), init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def status(self) -> WatcherStatus:
        """
        The status now.
        """
        with self._lock:
            return evolve(self._status, notes=tuple(self._notes))

    def seen(self, now: float, cluster: str, death_count: int) -> None:
        """
        The scheduler answered, with this many new deaths.
        """
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
        """
        It is in another state.
        """
        with self._lock:
            self._status = evolve(self._status, state=state, problem=redact_text(problem))

    def not_seen(self, problem: str) -> None:
        """
        The scheduler did not answer; it may be too early to call the watcher blind.
        """
        with self._lock:
            self._status = evolve(self._status, problem=redact_text(problem))

    def note(self, doing: str, problem: BaseException, now: float) -> None:
        """
        Something failed; the same again is counted.
        """
        text = redact_text(describe_error(problem))
        with self._lock:
            last = self._notes[-1] if self._notes else None
            if last is not None and (last.doing, last.problem) == (doing, text):
                self._notes[-1] = evolve(last, last_at=now, count=last.count + 1)
            else:
                self._notes.append(WatcherNote(doing=doing, problem=text, first_at=now, last_at=now))
