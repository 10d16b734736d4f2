"""
A scheduler of plain objects that answers the watcher's feed, with the recorder or without.
"""

from __future__ import annotations

from types import SimpleNamespace

from support.death_records import decoded
from workerdiag.recorder.scheduler.death_watch import DeathWatch
from workerdiag.recorder.scheduler.ring import DeathRing


class SimulatedScheduler:
    """
    As the scheduler, as far as the recorder's watch looks at it, and how to reach it.

    Attributes:
        is_up: Whether it answers.
        ring: What its recorder keeps; None: it does not record.
    """

    def __init__(self, *, id_="Scheduler-1", has_recorder=True, journal=None):
        self.id = id_
        self.is_up = True
        self.workers, self.running, self.unrunnable, self.queued = {}, [], {}, []
        self.status = SimpleNamespace(name="running")
        self.ring = DeathRing() if has_recorder else None
        self.watch = (
            DeathWatch(self, self.ring, is_report_due=lambda _: False, journal=journal)
            if has_recorder
            else None
        )

    def lose(self, message):
        """
        Record a death, or more of it.
        """
        self.ring.add(decoded(message))
        self.watch.notify()


class SimulatedConnection:
    """
    A connection of the feed to whichever simulated scheduler has the address.
    """

    asynchronous = True
    status = "running"

    def __init__(self, schedulers, address):
        self.address = address
        self.is_closed = False
        self.scheduler = SimpleNamespace(address=address, workerdiag_watch=self._watch)
        self._schedulers = schedulers

    async def close(self):
        """
        Let go.
        """
        self.is_closed = True

    def _reached(self):
        found = self._schedulers.get(self.address)
        if found is None or not found.is_up:
            raise OSError(f"cannot connect to {self.address}")
        return found

    async def _watch(self, **arguments):
        scheduler = self._reached()
        answer = None if scheduler.watch is None else await scheduler.watch.answer(**arguments)
        self._reached()
        return answer
