"""
The last deaths that a scheduler saw, in bounded memory: its own records, and the reports that it received.

What is kept here outlives the scheduler's event topics, which hold a thousand events for an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from workerdiag.recorder.messages import json_size
from workerdiag.wire.messages import DeathMessage
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import RecordedDeath

MAX_DEATHS = 1000
MAX_BYTES = 16 * 2**20


class DeathRing:
    """
    The last deaths, of which the oldest go first; before that, their black boxes.

    Args:
        most: How many deaths.
        most_bytes: How many bytes they may take, as JSON.
    """

    def __init__(self, most: int = MAX_DEATHS, most_bytes: int = MAX_BYTES) -> None:
        self._most = max(1, most)
        self._most_bytes = most_bytes
        #: By number, counted from 1: death and size.
        self._deaths: dict[int, tuple[RecordedDeath, int]] = {}
        self._count = 0
        #: The first death that may still have a box.
        self._first_with_box = 1
        #: What all of them take.
        self.size_bytes = 0

    def __iter__(self) -> Iterator[RecordedDeath]:
        return (death for death, _ in self._deaths.values())

    def __len__(self) -> int:
        return len(self._deaths)

    @property
    def dropped_count(self) -> int:
        """
        Deaths that had to go.
        """
        return self._count - len(self._deaths)

    def add(self, message: DeathMessage) -> bool:
        """
        Keep a message with what is known of its death; returns False if it adds nothing.
        """
        known = reversed(self._deaths.items())
        number, death = next(
            ((number, death) for number, (death, _) in known if death.is_of(message)), (0, RecordedDeath())
        )
        new = death.with_message(message)
        if new is death:
            return False
        if not number:
            number = self._count = self._count + 1
        self._keep(number, new)
        self._enforce_limits()
        return True

    def _keep(self, number: int, death: RecordedDeath) -> None:
        size = json_size(to_plain(death))
        self.size_bytes += size - self._deaths.get(number, (None, 0))[1]
        self._deaths[number] = death, size

    def _enforce_limits(self) -> None:
        while len(self._deaths) > self._most:
            self._drop_oldest()
        while self.size_bytes > self._most_bytes and self._first_with_box <= self._count:
            if self._first_with_box in self._deaths:
                self._keep(self._first_with_box, self._deaths[self._first_with_box][0].without_box())
            self._first_with_box += 1
        while self.size_bytes > self._most_bytes and len(self._deaths) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.size_bytes -= self._deaths.pop(next(iter(self._deaths)))[1]
