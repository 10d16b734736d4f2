"""
A watcher in a process of its own, to be killed: it writes deaths, cases and notices, and delivers them.

Run as a program: ``outbox_child.py STATE JOURNAL URL MOST``. It goes on where the state says that the
last one was, up to the death with number MOST, and ends when all notices are delivered.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import urllib.error
import urllib.request

from support.watch_values import alert_case, make_notice, watched_death
from workerdiag.watch.deaths import Cursor
from workerdiag.watch.lease import Lease
from workerdiag.watch.outbox import Outbox
from workerdiag.watch.retry import RetrySettings
from workerdiag.watch.sinks.sink import DeliveryError
from workerdiag.watch.store import Store

CASES = "abc"
SINKS = ("one", "two")
#: Shorter than the longest that the receiver lets wait.
TIMEOUT_S = 0.1
#: Between two deaths, on average.
PAUSE_S = 0.05
#: After that it is looked whether all is delivered.
CLOSE_S = 10.0
RETRY = RetrySettings(first_s=0.01, longest_s=0.1, max_attempts=10_000)


class Journal:
    """
    What happened so far, a line each, which a kill cannot take back.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


class HttpSink:
    """
    Sends a notice as JSON, with its id for idempotency.
    """

    def __init__(self, name: str, url: str, journal: Journal) -> None:
        self.name = name
        self._url = url
        self._journal = journal

    def deliver(self, delivery):
        body = json.dumps(
            {
                "delivery": delivery.id,
                "notice": delivery.notice.id,
                "sink": self.name,
                "attempt": delivery.attempt,
                "process": os.getpid(),
                "last": delivery.receipt.get("last", ""),
            }
        ).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self._url, body), timeout=TIMEOUT_S):
                self._journal.write(f"answered {delivery.id} {os.getpid()}")
                return {"last": delivery.notice.id}
        except urllib.error.HTTPError as problem:
            asked = problem.headers.get("Retry-After")
            raise DeliveryError(str(problem), retry_after_s=float(asked) if asked else None) from problem


def write_next(store: Store, number: int) -> None:
    """
    What one death causes, in one transaction.
    """
    case = CASES[number % len(CASES)]
    with store.transaction():
        store.add_deaths("prod", [watched_death(number)])
        store.set_cursor("prod", Cursor(epoch="e", position=number))
        store.assign([f"epoch-{number}"], case)
        store.put_case(alert_case(case, sequence=number))
        store.enqueue(make_notice(case, number), SINKS)


def main(state: str, journal_path: str, url: str, most: str) -> None:
    journal = Journal(journal_path)
    store = Store.open(state)
    Lease(store.file).acquire()

    def deliver() -> Outbox:
        started = Outbox(store, [HttpSink(name, url, journal) for name in SINKS], retry=RETRY)
        started.start()
        return started

    outbox = deliver()
    print("ready", flush=True)  # noqa: T201  it is a program
    cursor = store.cursor("prod")
    for number in range(cursor.position + 1 if cursor else 1, int(most) + 1):
        write_next(store, number)
        journal.write(f"committed {number}")
        outbox.wake()
        time.sleep(random.expovariate(1 / PAUSE_S))
    while outbox.close(CLOSE_S):
        outbox = deliver()


if __name__ == "__main__":
    main(*sys.argv[1:])
