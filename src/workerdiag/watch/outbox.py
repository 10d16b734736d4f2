"""The outbox: delivers notices at least once to every sink, in order for each case, across kills.

A notice is in the outbox from the transaction that decided on it until its sink has taken it, so none is
lost. It is sent twice only if the watcher was killed, or the answer was lost, between sending and noting.
Then it has the same `Delivery.id`, and a receiver can drop the repeat.
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
    """Delivers the notices in the outbox of *store*. Acquire the `Lease` first: only one may run at a time.

    Args:
        store: The store with the deliveries.
        sinks: The sinks, with distinct names. Each gets a thread.
        retry: When to retry a failed delivery, and when to give it up.
        on_doubt: How to treat a delivery interrupted by a kill, which may have arrived.
        clock: Returns seconds since the epoch.
        random: Returns a random number from 0 to 1.
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
        """Begin to deliver, including earlier notices and interrupted deliveries.

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
        """Deliver new notices now; otherwise they wait for some seconds."""
        for each in self._threads:
            each.wake()

    def status(self) -> tuple[SinkStatus, ...]:
        """Return the status of each sink, including earlier ones that still have deliveries."""
        found = {each.name: each for each in self._table.sinks()}
        for each in self._threads:
            known = found.get(each.name) or SinkStatus(name=each.name)
            found[each.name] = evolve(known, problem=each.problem or known.problem)
        return tuple(found.values())

    def is_waiting(self, sink: str) -> bool:
        """Whether that sink has unsent notices."""
        counts = self._table.counts(sink)
        return counts["pending"] + counts["sending"] > 0

    def close(self, timeout_s: float, *, noting_s: float = 0.0) -> tuple[StoredDelivery, ...]:
        """Deliver what is possible within *timeout_s* seconds, then stop.

        Args:
            timeout_s: No delivery begins later than this.
            noting_s: Additional seconds for noting what a sink has taken.

        Returns:
            The unsent deliveries of these sinks. They are sent after the next start if the state is in a
            file.
        """
        deadline, noted_by = Deadline.after(timeout_s), Deadline.after(max(timeout_s, noting_s))
        for each in self._threads:
            each.finish(deadline)
        for each in self._threads:
            each.join(noted_by)
        unsent = (*self._table.stored("sending"), *self._table.stored("pending"))
        names = {each.name for each in self._threads}
        return tuple(each for each in unsent if each.sink in names)
