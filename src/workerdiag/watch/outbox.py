"""
Notices on their way: at least once to every sink, in order for each case, whatever dies in between.

A notice is in the outbox from the transaction that decided on it until its sink took it, so none is lost. One
goes out twice only if the watcher was killed, or the answer was lost, between sending and noting: then with
the same `Delivery.id`, by which a receiver can drop it.
"""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable, Sequence

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.watch.deliveries import OnDoubt, RetrySettings, SinkStatus, StoredDelivery
from workerdiag.watch.sink_thread import SinkThread
from workerdiag.watch.sinks.sink import Sink, SinkSetupError
from workerdiag.watch.store import Store


class Outbox:
    """
    Delivers what is put into the outbox of *store*; only one at a time, so take the `Lease` first.

    Args:
        store: Where the deliveries are.
        sinks: Each has a name of its own, and gets a thread.
        retry: When a delivery that failed is tried again, and when it is given up.
        on_doubt: What becomes of a delivery that a kill cut off, so that it may have arrived.
        clock: Seconds since the epoch.
        random: A number from 0 to 1, another one at each call.
    """

    def __init__(
        self,
        store: Store,
        sinks: Sequence[Sink],
        *,
        retry: RetrySettings | None = None,
        on_doubt: OnDoubt = "resend",
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        names = [each.name for each in sinks]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise SinkSetupError(doubles[0], "there are several of this name", "give each a name of its own")
        self._table = store.outbox
        self._retry = retry or RetrySettings()
        self._on_doubt = on_doubt
        self._threads = [
            SinkThread(each, self._table, retry=self._retry, clock=clock, random=random) for each in sinks
        ]

    def start(self) -> None:
        """
        Begin to deliver: also what is there from before, and what a kill cut off.

        Raises:
            StateFileError: The state cannot be read or written.
            StateInUseError: Another watcher has it.
            RuntimeError: The system cannot start another thread.
        """
        for each in self._threads:
            self._table.recover(
                each.name, on_doubt=self._on_doubt, longest_wait_s=self._retry.longest_retry_after_s
            )
        for each in self._threads:
            each.start()

    def wake(self) -> None:
        """
        Deliver now what was just put in; without it, that waits for some seconds.
        """
        for each in self._threads:
            each.wake()

    def status(self) -> tuple[SinkStatus, ...]:
        """
        How each sink is doing; also those of before that still have deliveries.
        """
        found = {each.name: each for each in self._table.sinks()}
        for each in self._threads:
            known = found.get(each.name) or SinkStatus(name=each.name)
            found[each.name] = evolve(known, problem=each.problem or known.problem)
        return tuple(found.values())

    def is_waiting(self, sink: str) -> bool:
        """
        Whether anything for that sink is not sent yet.
        """
        counts = self._table.counts(sink)
        return counts["pending"] + counts["sending"] > 0

    def close(self, timeout_s: float, *, noting_s: float = 0.0) -> tuple[StoredDelivery, ...]:
        """
        Deliver what can be delivered within *timeout_s* seconds, then stop.

        Args:
            timeout_s: Nothing is begun later than that.
            noting_s: What a sink has taken by then is noted within this many seconds.

        Returns:
            What is not sent, of these sinks. It is sent after the next start, if the state is in a file.
        """
        deadline, noted_by = Deadline.after(timeout_s), Deadline.after(max(timeout_s, noting_s))
        for each in self._threads:
            each.finish(deadline)
        for each in self._threads:
            each.join(noted_by)
        unsent = (*self._table.stored("sending"), *self._table.stored("pending"))
        names = {each.name for each in self._threads}
        return tuple(each for each in unsent if each.sink in names)
