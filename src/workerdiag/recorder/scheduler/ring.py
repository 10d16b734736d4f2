"""
The last deaths that a scheduler saw, in bounded memory: what it noted itself, and what nannies told it.

What is kept here outlives the scheduler's event topics, which hold a thousand events for an hour.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

MOST_DEATHS = 1000
MOST_BYTES = 16 * 2**20
#: What nannies tell is at most 64 KiB; of what is longer the box is let go.
_MOST_MESSAGE_BYTES = 128 * 1024
#: Scheduler and nanny notice one death within so many seconds of each other, whatever their clocks.
_SAME_S = 60.0


class Entry:
    """
    One death.

    Attributes:
        number: Counted from 1 by this scheduler.
        record: What the scheduler noted (`recorder.scheduler.removal_record`); None: it never knew that
            worker.
        told: What the nanny told, or who found the box; None: nobody did.
    """

    __slots__ = ("number", "record", "size_bytes", "told")

    def __init__(self, number: int) -> None:
        self.number = number
        self.record: Mapping[str, Any] | None = None
        self.told: Mapping[str, Any] | None = None
        self.size_bytes = 0

    def __getitem__(self, name: str) -> Any:
        said = (self.record or {}).get(name)
        return (self.told or {}).get(name) if said is None else said

    @property
    def unexpected(self) -> bool:
        """
        Whether nobody had announced it to the scheduler.
        """
        return not (self.record or {}).get("expected")

    def has_task(self, keys: Collection[str]) -> bool:
        """
        Whether one of these tasks was on the worker.
        """
        record, told = self.record or {}, self.told or {}
        ran = chain(record.get("executing", ()), record.get("gave_up", ()), told.get("executing", ()))
        return any(key in keys for key in record.get("assigned", ())) or any(
            each["key"] in keys for each in ran
        )

    def plain(self, *, box: bool = True) -> dict[str, Any]:
        """
        The death as plain values, with or without what the black box had beyond the running tasks.
        """
        told = self.told
        if told is not None and not box:
            told = {name: value for name, value in told.items() if name != "box"}
        return {"number": self.number, "record": self.record, "told": told}

    def measure(self) -> int:
        """
        Measure it again; how many bytes it has more than before.
        """
        before = self.size_bytes
        self.size_bytes = size_of(self.plain())
        return self.size_bytes - before

    def is_of(self, message: Mapping[str, Any], *, at_any_time: bool) -> bool:
        """
        Whether a message tells of this very process.

        A nanny may not yet have learned the address of a worker that dies right after its start; it then
        gives the one before. Its own address and the process id are one process's all the same.
        """
        pid = message.get("pid")
        same_pid = pid is not None and pid == self["pid"]
        if not _equal(message.get("worker"), self["worker"]):
            same = same_pid and _equal(message.get("nanny"), self["nanny"])
        else:
            same = same_pid or pid is None or self["pid"] is None
        soon = abs(_number(message.get("when")) - _number(self["when"])) <= _SAME_S
        return same and (soon or (at_any_time and same_pid))


class Ring:
    """
    The last deaths, of which the oldest go first; before that, their black boxes.

    Args:
        most: How many deaths.
        most_bytes: How many bytes they may take, as JSON.
    """

    def __init__(self, most: int = MOST_DEATHS, most_bytes: int = MOST_BYTES) -> None:
        self._most = max(1, most)
        self._most_bytes = most_bytes
        self._entries: dict[int, Entry] = {}
        self._bytes = 0
        self._count = 0
        #: The first entry that may still have a box.
        self._with_boxes = 1

    def __iter__(self) -> Iterator[Entry]:
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
    def gone(self) -> int:
        """
        How many deaths had to go.
        """
        return self._count - len(self._entries)

    def removed(self, record: Mapping[str, Any]) -> Entry:
        """
        Keep what the scheduler noted of a death, with what was told of it before, if that came first.
        """
        entry = next((each for each in self._newest() if each.record is None and _same(each, record)), None)
        entry = entry or self._new()
        entry.record = record
        self._fit(entry)
        return entry

    def told(self, message: Mapping[str, Any]) -> Entry | None:
        """
        Keep what a nanny, or a finder of a box, told of a death; None if that was told already.
        """
        message = _with_sound_tasks(message)
        if size_of(message) > _MOST_MESSAGE_BYTES:
            message = {name: value for name, value in message.items() if name != "box"}
            if size_of(message) > _MOST_MESSAGE_BYTES:
                return None
        found = next((each for each in self._newest() if _same(each, message)), None)
        if found is not None and found.told is not None and not _knows_better(message, found.told):
            return None
        entry = found or self._new()
        entry.told = message
        self._fit(entry)
        return entry

    def _newest(self) -> Iterator[Entry]:
        return reversed(self._entries.values())

    def _new(self) -> Entry:
        self._count += 1
        entry = self._entries[self._count] = Entry(self._count)
        return entry

    def _fit(self, entry: Entry) -> None:
        self._bytes += entry.measure()
        while len(self._entries) > self._most:
            self._drop_oldest()
        while self._bytes > self._most_bytes and self._with_boxes <= self._count:
            self._strip(self._with_boxes)
            self._with_boxes += 1
        while self._bytes > self._most_bytes and len(self._entries) > 1:
            self._drop_oldest()

    def _strip(self, number: int) -> None:
        entry = self._entries.get(number)
        if entry is not None and entry.told is not None:
            entry.told = entry.plain(box=False)["told"]
            self._bytes += entry.measure()

    def _drop_oldest(self) -> None:
        oldest = self._entries.pop(next(iter(self._entries)))
        self._bytes -= oldest.size_bytes


def _with_sound_tasks(message: Mapping[str, Any]) -> dict[str, Any]:
    """
    The message, whose running tasks are a list of what has a key, whoever wrote it.
    """
    running = message.get("executing")
    sound = {name: value for name, value in message.items() if name != "executing"}
    if isinstance(running, list | tuple):
        sound["executing"] = [
            each for each in running if isinstance(each, Mapping) and isinstance(each.get("key"), str)
        ]
    return sound


def _same(entry: Entry, message: Mapping[str, Any]) -> bool:
    found_later = message.get("source") == "orphan" or bool(message.get("late"))
    return entry.is_of(message, at_any_time=found_later)


def _knows_better(message: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """
    A nanny knows the exit status; whoever finds a box later does not.
    """
    return message.get("source") == "nanny" and than.get("source") != "nanny"


def size_of(value: Any) -> int:
    """
    Bytes as JSON; characters that are not ASCII count six.
    """
    return len(json.dumps(value, default=str))


def _equal(one: object, other: object) -> bool:
    return bool(one) and one == other


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
