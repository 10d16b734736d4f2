"""The settle window: when deaths are judged, after their evidence had time to arrive."""

from __future__ import annotations

from attrs import define

#: Further deaths delay the judgement by at most this multiple of the settling time.
MOST_TIMES = 3


@define
class SettleWindow:
    """The waiting time of deaths that have arrived and are not judged yet."""

    #: Seconds from the first death until its judgement, if no other follows.
    settle_s: float
    #: Arrival of the first and the last one, by the clock of the collector; None: none waits.
    _first_at: float | None = None
    _last_at: float | None = None

    def arrived(self, now: float) -> None:
        """Note that deaths arrived."""
        if self._first_at is None:
            self._first_at = now
        self._last_at = now

    @property
    def due_at(self) -> float | None:
        """Return when to judge: half the settling time after the last death, within bounds; None if none waits."""
        if self._first_at is None or self._last_at is None:
            return None
        wanted = max(self._first_at + self.settle_s, self._last_at + self.settle_s / 2)
        return min(wanted, self._first_at + MOST_TIMES * self.settle_s)

    def is_due(self, now: float) -> bool:
        """Whether it is time to judge, or the clock was set back."""
        due_at, first_at = self.due_at, self._first_at
        return due_at is not None and first_at is not None and not first_at <= now < due_at

    def judged(self) -> None:
        """Note that all deaths are judged."""
        self._first_at = self._last_at = None
