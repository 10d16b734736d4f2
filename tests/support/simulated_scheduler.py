"""A scheduler made of plain objects that answers the watcher's feed, with or without the recorder."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from types import SimpleNamespace

import distributed  # noqa: F401  it keeps the clock that it finds, so import it before tests stop the clock

from support.death_records import NOW, decoded
from workerdiag.recorder.deaths import HANDLER, DeathRing, DeathWatch


class Topic:
    """Like a topic of the scheduler's broker."""

    def __init__(self, most):
        self.events, self.count = deque(maxlen=most), 0


class SimulatedScheduler:
    """A stand-in for the scheduler, as far as the recorder's watch and the feed use it.

    Attributes:
        is_up: Whether it answers.
        runs_functions: Whether it may run what a client sends.
        ran: Names of the functions that it has run.
        ring: The deaths that its recorder keeps; None: it does not record.
    """

    def __init__(self, *, id_="Scheduler-1", has_recorder=True, most_events=1000):
        self.id = id_
        self.is_up = self.runs_functions = True
        self.has_same_python = True
        self.workers, self.running, self.unrunnable, self.queued = {}, [], {}, []
        self.status = SimpleNamespace(name="running")
        self.handlers, self.plugins, self.ran = {}, {}, []
        self._broker = SimpleNamespace(_topics=defaultdict(lambda: Topic(most_events)))
        self.ring = self.watch = None
        if has_recorder:
            self.install()

    def install(self):
        """Install a recorder."""
        self.ring = DeathRing()
        self.watch = DeathWatch(self, self.ring, is_report_due=lambda _: False)
        self.handlers[HANDLER] = self.watch.answer

    def uninstall(self):
        """Remove the recorder."""
        self.ring = self.watch = None
        del self.handlers[HANDLER]

    def record(self, message):
        """Record a death, or more about it."""
        self.ring.add(decoded(message))
        self.watch.notify()

    def add_plugin(self, plugin, *, name):
        """Add a plugin."""
        self.plugins[name] = plugin

    def log_event(self, topic, message, *, when=NOW):
        """Note an event."""
        found = self._broker._topics[topic]
        found.events.append((when, message))
        found.count += 1

    def join(self, address, *, pid=7, nanny="tcp://10.0.0.4:9001", name="w", when=NOW - 100):
        """Let a worker join."""
        worker = SimpleNamespace(pid=pid, nanny=nanny, name=name, processing={}, executing={})
        self.workers[address] = worker
        self.running.append(worker)
        self.log_event("all", {"action": "add-worker", "worker": address}, when=when)
        for plugin in self.plugins.values():
            plugin.add_worker(self, address)

    def remove(self, address, *, expected=False, when=NOW, keys=()):
        """Remove a worker, as Dask does."""
        worker = self.workers.pop(address, None)
        if worker in self.running:
            self.running.remove(worker)
        stimulus = f"handle-worker-cleanup-{when}"
        message = {"action": "remove-worker", "processing-tasks": set(keys), "expected": expected}
        message["stimulus_id"] = stimulus
        self.log_event(address, message, when=when)
        self.log_event("all", {**message, "worker": address}, when=when)
        for plugin in self.plugins.values():
            plugin.remove_worker(self, address, stimulus_id=stimulus)


class SimulatedConnection:
    """A connection of the feed to the simulated scheduler at an address."""

    asynchronous = True
    status = "running"

    def __init__(self, schedulers, address):
        self.address = address
        self.scheduler = self
        self._schedulers = schedulers

    async def close(self):
        """Close the connection."""

    async def run_on_scheduler(self, function, *args):
        """Run a function and note it, as Dask does."""
        scheduler = self._reached()
        if not scheduler.runs_functions:
            raise ValueError("The 'run_function' handler has been explicitly disallowed in Scheduler")
        scheduler.ran.append(function.__name__)
        code = b"the code of " + function.__name__.encode()
        scheduler.log_event("all", {"action": "run-function", "function": code})
        answer = await function(*args, dask_scheduler=scheduler)
        self._reached()
        return answer

    async def workerdiag_look_3(self, **arguments):
        """Ask the question that the feed installed."""
        answer = await self._reached().handlers["workerdiag_look_3"](**arguments)
        self._reached()
        return answer.data

    async def workerdiag_watch(self, **arguments):
        """Ask the recorder; without a recorder there is no answer."""
        scheduler = self._reached()
        answer = None if scheduler.watch is None else await scheduler.watch.answer(**arguments)
        self._reached()
        return answer

    async def has_same_python(self):
        """Whether functions can run there."""
        return self._reached().has_same_python

    async def events(self, topic):
        """Return the events of a topic."""
        return tuple(self._reached()._broker._topics[topic].events)

    async def identity(self, n_workers):
        """Return its identity, and some of its workers."""
        scheduler = self._reached()
        some = list(scheduler.workers.items())[:n_workers]
        workers = {address: {"nanny": each.nanny, "name": each.name} for address, each in some}
        return {"id": scheduler.id, "n_workers": len(scheduler.workers), "workers": workers}

    async def get_task_prefix_states(self):
        """Return the number of tasks by state."""
        scheduler = self._reached()
        return {"load": {"no-worker": len(scheduler.unrunnable), "queued": len(scheduler.queued)}}

    def _reached(self):
        found = self._schedulers.get(self.address)
        if found is None or not found.is_up:
            raise OSError(f"cannot connect to {self.address}")
        return found


def polled(feed, after=None, *, wait_s=0.0):
    """Return one batch of a feed."""
    return asyncio.run(feed.poll(after, wait_s=wait_s))


def workers(deaths):
    """Return the workers that died."""
    return [each.identity.worker for each in deaths]
