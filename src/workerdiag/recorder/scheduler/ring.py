"""
The last deaths that a scheduler saw, in bounded memory: what it noted itself, and what nannies told it.

What is kept here outlives the scheduler's event topics, which hold a thousand events for an hour.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from workerdiag.wire.same_death import DeathIdentity, is_better_report, is_known_death

MAX_DEATHS = 1000
MAX_BYTES = 16 * 2**20
#: What nannies tell is at most 64 KiB; of what is longer the box is let go.
_MAX_MESSAGE_BYTES = 128 * 1024


class DeathEntry:
    """
    One death.

    Attributes:
        number: Counted from 1 by this scheduler.
        record: What the scheduler noted (`recorder.scheduler.removal_record`); None: it never knew that
            worker.
        report: What the nanny told, or who found the box; None: nobody did.
        identities: Those in record and report.
    """

    __slots__ = ("identities", "number", "record", "report", "size_bytes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.record: Mapping[str, Any] | None = None
        self.report: Mapping[str, Any] | None = None
        self.identities: tuple[DeathIdentity, ...] = ()
        self.size_bytes = 0

    def __getitem__(self, name: str) -> Any:
        value = (self.record or {}).get(name)
        return (self.report or {}).get(name) if value is None else value

    @property
    def is_unexpected(self) -> bool:
        """
        Whether nobody had announced it to the scheduler.
        """
        return not (self.record or {}).get("expected")

    def has_task(self, keys: Collection[str]) -> bool:
        """
        Whether one of these tasks was on the worker.
        """
        record, report = self.record or {}, self.report or {}
        ran = chain(record.get("executing", ()), record.get("gave_up", ()), report.get("executing", ()))
        return any(key in keys for key in record.get("assigned", ())) or any(
            each["key"] in keys for each in ran
        )

    def to_dict(self, *, box: bool = True) -> dict[str, Any]:
        """
        The death as plain values, with or without what the black box had beyond the running tasks.
        """
        report = self.report
        if report is not None and not box:
            report = {name: value for name, value in report.items() if name != "box"}
        return {"number": self.number, "record": self.record, "report": report}

    def refresh(self) -> int:
        """
        Update identities and size; returns the growth in bytes.
        """
        parts = [each for each in (self.record, self.report) if each is not None]
        self.identities = tuple(map(DeathIdentity.from_message, parts))
        before = self.size_bytes
        self.size_bytes = json_size(self.to_dict())
        return self.size_bytes - before


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
        self._entries: dict[int, DeathEntry] = {}
        self._bytes = 0
        self._count = 0
        #: The first entry that may still have a box.
        self._first_with_box = 1

    def __iter__(self) -> Iterator[DeathEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """
        What all of them take.
        """
        return self._bytes

    @property
    def dropped_count(self) -> int:
        """
        How many deaths had to go.
        """
        return self._count - len(self._entries)

    def add_removal(self, record: Mapping[str, Any]) -> DeathEntry:
        """
        Keep what the scheduler noted of a death, with what was told of it before, if that came first.
        """
        new = DeathIdentity.from_message(record)
        entry = next(
            (
                each
                for each in self._newest_first()
                if each.record is None and is_known_death(each.identities, new)
            ),
            None,
        )
        entry = entry or self._new()
        entry.record = record
        self._enforce_limits(entry)
        return entry

    def report(self, message: Mapping[str, Any]) -> DeathEntry | None:
        """
        Keep what a nanny, or a finder of a box, told of a death; None if that was told already.
        """
        message = _with_valid_tasks(message)
        if json_size(message) > _MAX_MESSAGE_BYTES:
            message = {name: value for name, value in message.items() if name != "box"}
            if json_size(message) > _MAX_MESSAGE_BYTES:
                return None
        new = DeathIdentity.from_message(message)
        found = next((each for each in self._newest_first() if is_known_death(each.identities, new)), None)
        if found is not None and found.report is not None and not is_better_report(message, found.report):
            return None
        entry = found or self._new()
        entry.report = message
        self._enforce_limits(entry)
        return entry

    def _newest_first(self) -> Iterator[DeathEntry]:
        return reversed(self._entries.values())

    def _new(self) -> DeathEntry:
        self._count += 1
        entry = self._entries[self._count] = DeathEntry(self._count)
        return entry

    def _enforce_limits(self, entry: DeathEntry) -> None:
        self._bytes += entry.refresh()
        while len(self._entries) > self._most:
            self._drop_oldest()
        while self._bytes > self._most_bytes and self._first_with_box <= self._count:
            self._drop_box(self._first_with_box)
            self._first_with_box += 1
        while self._bytes > self._most_bytes and len(self._entries) > 1:
            self._drop_oldest()

    def _drop_box(self, number: int) -> None:
        entry = self._entries.get(number)
        if entry is not None and entry.report is not None:
            entry.report = entry.to_dict(box=False)["report"]
            self._bytes += entry.refresh()

    def _drop_oldest(self) -> None:
        oldest = self._entries.pop(next(iter(self._entries)))
        self._bytes -= oldest.size_bytes


def _with_valid_tasks(message: Mapping[str, Any]) -> dict[str, Any]:
    """
    The message, whose running tasks are a list of what has a key, whoever wrote it.
    """
    running = message.get("executing")
    valid = {name: value for name, value in message.items() if name != "executing"}
    if isinstance(running, list | tuple):
        valid["executing"] = [
            each for each in running if isinstance(each, Mapping) and isinstance(each.get("key"), str)
        ]
    return valid


def json_size(value: Any) -> int:
    """
    Bytes as JSON; characters that are not ASCII count six.
    """
    return len(json.dumps(value, default=str))
