"""The latest deaths on a scheduler in bounded memory, with its own records and the received reports.

The ring outlives the scheduler's event topics, which hold a thousand events for an hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile

from attrs import define, field

from workerdiag.recorder.death_report import json_size
from workerdiag.wire.messages import DeathMessage
from workerdiag.wire.plain import to_plain
from workerdiag.wire.recorded_death import RecordedDeath

MAX_DEATHS = 1000
MAX_BYTES = 16 * 2**20
#: At most this many dropped deaths are tracked as unread; older ones count as read.
_MAX_DROPPED = 100_000


@define
class RingEntry:
    """A death in the ring, with the numbers of its changes."""

    death: RecordedDeath
    size_bytes: int = field(init=False)
    #: Number of the change that added it.
    first_change: int
    #: Number of its last change; each message that adds to it is a change.
    last_change: int

    def __attrs_post_init__(self) -> None:
        self.replace(self.death)

    def replace(self, death: RecordedDeath) -> None:
        """Replace the death by a version of it with more or fewer facts."""
        self.death = death
        self.size_bytes = json_size(to_plain(death))


class DeathRing:
    """The latest deaths. At the limit, the oldest lose their black boxes first and are then dropped.

    Args:
        most: Largest number of deaths.
        most_bytes: Largest total size as JSON, in bytes.
    """

    def __init__(self, most: int = MAX_DEATHS, most_bytes: int = MAX_BYTES) -> None:
        self._most = max(1, most)
        self._most_bytes = most_bytes
        #: By number, counted from 1.
        self._deaths: dict[int, RingEntry] = {}
        self._count = 0
        #: The same deaths, in the order of their last changes.
        self._by_change: dict[int, RingEntry] = {}
        #: Number of the last change, counted from 1.
        self.change_count = 0
        #: For each dropped death, the change that added it.
        self._dropped: deque[int] = deque(maxlen=_MAX_DROPPED)
        #: The first death that may still have a box.
        self._first_with_box = 1
        #: Total size in bytes.
        self.size_bytes = 0

    def __iter__(self) -> Iterator[RecordedDeath]:
        return (kept.death for kept in self._deaths.values())

    def __len__(self) -> int:
        return len(self._deaths)

    @property
    def dropped_count(self) -> int:
        """The number of dropped deaths."""
        return self._count - len(self._deaths)

    def changed_since(self, change: int) -> list[RingEntry]:
        """The deaths added or changed after *change*, in the order of their last changes."""
        newest_first = takewhile(lambda kept: kept.last_change > change, reversed(self._by_change.values()))
        return list(newest_first)[::-1]

    def dropped_since(self, change: int) -> int:
        """The number of deaths that were added after *change* and dropped since."""
        return sum(1 for _ in takewhile(lambda first: first > change, reversed(self._dropped)))

    def add(self, message: DeathMessage) -> bool:
        """Add a message to its death; returns False if it adds nothing."""
        newest_first = reversed(self._deaths.items())
        found = next(((number, kept) for number, kept in newest_first if kept.death.is_of(message)), None)
        if found is None:
            self._add_death(RecordedDeath.of(message))
        else:
            number, kept = found
            new = kept.death.with_message(message)
            if new is kept.death:
                return False
            self.change_count += 1
            kept.last_change = self.change_count
            self._by_change[number] = self._by_change.pop(number)
            self._replace(kept, new)
        self._enforce_limits()
        return True

    def _add_death(self, death: RecordedDeath) -> None:
        self._count += 1
        self.change_count += 1
        kept = RingEntry(death, self.change_count, self.change_count)
        self._deaths[self._count] = self._by_change[self._count] = kept
        self.size_bytes += kept.size_bytes

    def _replace(self, kept: RingEntry, death: RecordedDeath) -> None:
        self.size_bytes -= kept.size_bytes
        kept.replace(death)
        self.size_bytes += kept.size_bytes

    def _enforce_limits(self) -> None:
        while len(self._deaths) > self._most:
            self._drop_oldest()
        while self.size_bytes > self._most_bytes and self._first_with_box <= self._count:
            if (kept := self._deaths.get(self._first_with_box)) is not None:
                self._replace(kept, kept.death.without_box())
            self._first_with_box += 1
        while self.size_bytes > self._most_bytes and len(self._deaths) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        number = next(iter(self._deaths))
        kept = self._deaths.pop(number)
        del self._by_change[number]
        self._dropped.append(kept.first_change)
        self.size_bytes -= kept.size_bytes
