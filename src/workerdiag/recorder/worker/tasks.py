"""Which tasks run now: containers that a worker enters its running tasks in, and that note it in the box.

This is the hot path: it runs in the worker's threads, twice for each task.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread
from threading import enumerate as enumerate_threads

from workerdiag.recorder.box.writer import BoxWriter

#: Distributed says of a task only that it ended, not how.
_ENDED = "ended"


class TaskSlots:
    """Where in the box each running task stands. Taken and given back by any thread, without a lock.

    Args:
        box: What the tasks are noted in.
        count: How many tasks can run at once; of more, the box says only that there were more.
    """

    __slots__ = ("_box", "_free", "_taken")

    def __init__(self, box: BoxWriter, count: int) -> None:
        self._box: BoxWriter | None = box
        self._free = list(range(count - 1, -1, -1))  # pop and append of a list are one step each
        self._taken: dict[object, int] = {}

    def begin(self, holder: object, key: object, thread: int, name: str) -> None:
        """Note that a task begins. *holder* identifies it until it ends.

        A method of an actor that raises never says that it ended; it is taken to have, when the next begins.
        """
        box = self._box
        if box is None:
            return
        if holder in self._taken:
            self.end(holder)
        try:
            slot = self._taken[holder] = self._free.pop()
            box.started(slot, key if type(key) is str else str(key), thread, name)
        except IndexError:
            self.note_missed()
        except Exception:  # noqa: BLE001, S110  a task must not fail because of us
            pass

    def end(self, holder: object) -> None:
        """Note that the task of *holder* ended."""
        slot = self._taken.pop(holder, None)
        if slot is None:
            return
        try:
            if self._box is not None:
                self._box.finished(slot, _ENDED)
        except Exception:  # noqa: BLE001, S110  as above
            pass
        self._free.append(slot)

    def note_missed(self) -> None:
        """Note that a task may run that is not noted."""
        if self._box is not None:
            self._box.missed()

    def stop(self) -> None:
        """Note nothing more."""
        self._box = None


class ThreadTasks(dict[int, object]):
    """For the place of ``Worker.active_threads``: the key of the running task, by thread.

    A thread enters itself and removes itself, so the thread found at that moment is the task's.

    Args:
        earlier: What was in that place before. A task that was handed to a thread before still enters
            there, and may ask here for its key.
    """

    __slots__ = ("_earlier", "_slots")

    def __init__(self, slots: TaskSlots, earlier: dict[int, object]) -> None:
        super().__init__()
        self._slots = slots
        self._earlier = earlier

    def __setitem__(self, thread: int, key: object) -> None:
        super().__setitem__(thread, key)
        self._slots.begin(thread, key, thread, current_thread().name)

    def __delitem__(self, thread: int) -> None:
        super().__delitem__(thread)
        self._slots.end(thread)

    def __missing__(self, thread: int) -> object:
        return self._earlier[thread]


class EarlierTasks:
    """The tasks that run since before they could be watched: noted when looked at.

    Args:
        threads: Key of the task by thread; what was ``Worker.active_threads``.
    """

    def __init__(self, slots: TaskSlots, threads: dict[int, object]) -> None:
        self._slots = slots
        self._threads = threads
        self._known: dict[int, object] = {}

    def refresh(self) -> None:
        """Note those that began or ended since the last look."""
        running = dict(self._threads)
        for thread, key in list(self._known.items()):
            if running.get(thread) is not key:
                self._slots.end(("earlier", thread))
                del self._known[thread]
        for thread, key in running.items():
            if thread not in self._known:
                self._known[thread] = key
                self._slots.begin(("earlier", thread), key, thread, _thread_name(thread))


def _thread_name(thread: int) -> str:
    return next((each.name for each in enumerate_threads() if each.ident == thread), "")


class OffThreadTasks(set[object]):
    """Replaces ``Worker.active_keys``: keys of all running tasks, and notes those without a thread.

    Args:
        where: Returns thread and name of a task that is in no `ThreadTasks`; None for all others.
    """

    __slots__ = ("_slots", "_where")

    def __init__(self, slots: TaskSlots, where: Callable[[object], tuple[int, str] | None]) -> None:
        super().__init__()
        self._slots = slots
        self._where = where

    def add(self, key: object) -> None:
        """As of any set."""
        super().add(key)
        try:
            place = self._where(key)
        except Exception:  # noqa: BLE001  a task must not fail for us
            return self._slots.note_missed()
        if place is not None:
            self._slots.begin(("elsewhere", key), key, *place)
        return None

    def discard(self, key: object) -> None:
        """As of any set."""
        super().discard(key)
        self._slots.end(("elsewhere", key))
