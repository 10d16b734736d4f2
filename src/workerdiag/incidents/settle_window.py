"""
When deaths are judged: once their evidence had time to arrive, and however long more of them die.
"""

from __future__ import annotations

from attrs import define

#: Deaths that go on arriving hold the judgement up for at most this many times the settling time.
MOST_TIMES = 3


@define
class SettleWindow:
    """
    The deaths that arrived and are not judged yet: since when, and until when they wait.
    """

    #: Seconds from the first death until it is judged, if no other follows.
    settle_s: float
    #: When the first and the last one arrived, by the clock of whoever collects them; None: none waits.
    _first_at: float | None = None
    _last_at: float | None = None

    def arrived(self, now: float) -> None:
        """
        Note that deaths arrived.
        """
        if self._first_at is None:
            self._first_at = now
        self._last_at = now

    @property
    def due_at(self) -> float | None:
        """
        When to judge: half the settling time after the last death, within its bounds; None: nothing waits.
        """
        if self._first_at is None or self._last_at is None:
            return None
        wanted = max(self._first_at + self.settle_s, self._last_at + self.settle_s / 2)
        return min(wanted, self._first_at + MOST_TIMES * self.settle_s)

    def is_due(self, now: float) -> bool:
        """
        Whether it is time to judge; also where the clock was set back.
        """
        due_at, first_at = self.due_at, self._first_at
        return due_at is not None and first_at is not None and not first_at <= now < due_at

    def judged(self) -> None:
        """
        Nothing waits any more.
        """
        self._first_at = self._last_at = None
