"""Observes the clusters that this process has clients of, without a change to the program.

The scheduler's events name the lost workers. They are read on demand, and once more before a client or a
cluster closes, since nobody can be asked after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import Any, Final

from workerdiag.api.annotate import remembered
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import DEFAULT_RULEBOOK, ExplainArguments, answer, answer_async, explain, read_arguments
from workerdiag.deadline import Deadline, monotonic_s
from workerdiag.guard import guarded
from workerdiag.incidents import is_deliberate_stop
from workerdiag.integrations.diagnose import diagnose
from workerdiag.model.dask import Method
from workerdiag.model.diagnosis import Death
from workerdiag.model.identity import Identity
from workerdiag.recorder.internals import is_made_asynchronous, open_clients
from workerdiag.sources.cluster.losses import with_action
from workerdiag.sources.cluster.queries import answer_in_time, fetch_events
from workerdiag.values import define, evolve, field, frozen

#: Seconds to wait for the events of a scheduler. One that does not answer is not asked again.
_EVENTS_S: Final = 2.0
#: Minimum time for a diagnosis, in seconds; with less, it is not begun.
_LEAST_S: Final = 0.5


@frozen(kw_only=True)
class ObservedDeaths:
    """Workers that died unexpectedly, and why."""

    deaths: tuple[Death, ...]
    diagnosis: Diagnosis


@define(eq=False)
class ClusterObserver:
    """Collects unexpected deaths, with *timeout_s* seconds for one diagnosis. It never raises."""

    _timeout_s: float
    #: For all diagnoses of this process.
    _left_s: float = field(default=300.0, init=False)
    #: Earlier deaths do not count: a cluster may be older than this process.
    _removals: Removals = field(factory=lambda: Removals(since=time.time()), init=False)
    #: Ids of the clients whose scheduler did not answer.
    _silent: set[str] = field(factory=set, init=False)
    _observed: list[ObservedDeaths] = field(factory=list, init=False)
    #: Class, name, original method and replacement.
    _replaced: list[tuple[type, str, object, object]] = field(factory=list, init=False)

    def start(self) -> None:
        """Also look before each client or cluster closes."""
        from distributed import Client
        from distributed.deploy.cluster import Cluster

        self._replace(Client, "close", self._before)
        self._replace(Client, "shutdown", self._before)
        self._replace(Cluster, "close", self._before)
        self._replace(Client, "_close", self._before_async)

    def stop(self) -> None:
        """Undo `start`."""
        while self._replaced:
            owner, name, original, ours = self._replaced.pop()
            if vars(owner).get(name) is ours:  # another program may have replaced it since
                setattr(owner, name, original)

    def look(self, *, of: object = None, judge: bool = True) -> None:
        """Ask the schedulers of all open clients, or *of* one; without *judge*, deaths just count as known."""
        for client in open_clients():
            if (of is None or of is client or of is client.cluster) and client.id not in self._silent:
                with guarded("looking for deaths") as looking:
                    self._look(client, judge=judge)
                if looking.problem is not None:  # one that hangs would cost each test its time
                    self._silent.add(client.id)

    def take(self) -> tuple[ObservedDeaths, ...]:
        """Return the observations since the last call."""
        observed = tuple(self._observed)
        self._observed.clear()
        return observed

    def explain(self, exc: BaseException, observed: Sequence[ObservedDeaths]) -> Diagnosis | None:
        """Return why *exc* was raised after the *observed* deaths, if workers are the reason; else None."""
        diagnosis = None
        with suppress(Exception):
            diagnosis = self._diagnosis(exc, has_deaths=bool(observed))
        found = [each for each in (diagnosis, *(each.diagnosis for each in observed)) if each]
        wanted = [each for outcome in ("explained", "unknown") for each in found if each.outcome == outcome]
        return wanted[0] if wanted else None

    def _diagnosis(self, exc: BaseException, *, has_deaths: bool) -> Diagnosis | None:
        client = next(iter(open_clients()), None)
        timed_out = any(each.__name__ == "TimeoutError" for each in type(exc).__mro__)
        with self._spend() as timeout_s:
            if not timeout_s:
                return remembered(exc)
            if client is None or not (has_deaths or timed_out):
                return diagnose(exc, client=client, timeout_s=timeout_s)
            diagnosis: Diagnosis = explain(exc, client, timeout=timeout_s)
        return diagnosis if has_deaths or not diagnosis.deaths else None  # earlier deaths do not count

    def _look(self, client: Any, *, judge: bool = True) -> None:
        entries = client.sync(fetch_events, client, "all", callback_timeout=_EVENTS_S)
        workers = self._removals.take_new(entries)
        if workers and judge:
            with self._spend() as timeout_s:
                self._note(workers, answer(_arguments(client, workers, timeout_s)).diagnosis)

    async def _look_async(self, client: Any) -> None:
        fetch = partial(fetch_events, client, "all")
        workers = self._removals.take_new(await answer_in_time(fetch, Deadline.after(_EVENTS_S)))
        if workers:
            with self._spend() as timeout_s:
                self._note(workers, await answer_async(_arguments(client, workers, timeout_s)))

    def _note(self, workers: Sequence[str], diagnosis: Diagnosis) -> None:
        """Keep unexpected deaths, and those that could not be judged."""
        if diagnosis.outcome == "no-death":
            return
        book = DEFAULT_RULEBOOK.within(Deadline.after(_EVENTS_S))[0]
        found = {each.identity.worker: each for each in diagnosis.deaths}
        deaths = [found.get(each) or Death(identity=Identity(worker=each)) for each in workers]
        unasked = tuple(each for each in deaths if not is_deliberate_stop(each, book))
        if unasked:
            self._observed.append(ObservedDeaths(deaths=unasked, diagnosis=diagnosis))

    @contextmanager
    def _spend(self) -> Iterator[float]:
        """Yield the seconds for one diagnosis; 0 if the total time is used up."""
        begin = monotonic_s()
        try:
            yield min(self._timeout_s, self._left_s) if self._left_s > _LEAST_S else 0.0
        finally:
            self._left_s -= monotonic_s() - begin

    def _replace(self, owner: type, name: str, wrap: Callable[[Method], object]) -> None:
        original = vars(owner).get(name)
        if original is not None:
            ours = wrap(original)
            setattr(owner, name, ours)
            self._replaced.append((owner, name, original, ours))

    def _before(self, close: Method) -> Method:
        @wraps(close)
        def look_and_close(closing: object, *args: object, **kwargs: object) -> object:
            with suppress(Exception):
                self.look(of=closing)
            return close(closing, *args, **kwargs)

        return look_and_close

    def _before_async(self, close: Method) -> Method:
        @wraps(close)
        async def look_and_close(client: Any, *args: object, **kwargs: object) -> object:
            with suppress(Exception):
                if is_made_asynchronous(client):  # for any other it is known
                    await self._look_async(client)
            return await close(client, *args, **kwargs)

        return look_and_close


def _arguments(client: object, workers: Sequence[str], timeout_s: float) -> ExplainArguments:
    arguments = read_arguments(None, client, timeout=timeout_s)
    return evolve(arguments, about=tuple(Identity(worker=each) for each in workers))


@define(eq=False, kw_only=True)
class Removals:
    """Reports each removal once."""

    #: Earlier removals are not reported, in seconds since the epoch.
    _since: float
    #: Worker and stimulus of those that were reported.
    _known: set[tuple[str, str]] = field(factory=set, init=False)

    def take_new(self, entries: Sequence[tuple[float, object]]) -> list[str]:
        """Return the workers whose removal is new, was not announced, and is part of no restart or retirement.

        Suites restart their clusters for each test. Other requested stops can only be judged by all evidence.
        """
        workers = []
        for when, message in with_action(entries, "remove-worker"):
            removal = str(message.get("worker")), str(message.get("stimulus_id"))
            if when >= self._since and removal not in self._known and not message.get("expected"):
                self._known.add(removal)
                workers.append(removal[0])
        # what an order lists (scheduler.py, 2024.8.1 to 2026.8.0)
        orders = [message for _, message in with_action(entries, "restart-workers", "retire-workers")]
        ordered = {str(worker) for each in orders for worker in each.get("workers") or each.get("retired") or ()}
        return [each for each in workers if each not in ordered]
