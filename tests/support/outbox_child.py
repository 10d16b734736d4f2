"""A watcher in a separate process, to be killed: it writes deaths, cases and notices, and delivers them.

Run as a program: ``outbox_child.py WAY STATE JOURNAL URL MOST``. It resumes from the state of its
predecessor, up to death number MOST, and ends when all notices are delivered. Run without arguments it serves a
`ForkingProgram`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request

from support.alerts import incident, sure_of
from support.forking_program import serve
from support.watch_values import make_notice, watched_case, watched_death
from workerdiag.watch.case import WatchSettings, case_id
from workerdiag.watch.casebook import Casebook
from workerdiag.watch.feed.events import Cursor, FeedBatch
from workerdiag.watch.loop import WatcherProgress, WatchLoop
from workerdiag.watch.outbox import Outbox
from workerdiag.watch.sinks.base import DeliveryError
from workerdiag.watch.store import RetrySettings, Store

CLUSTER = "prod"
CASES = "abc"
SINKS = ("one", "two")
#: Time-out of the sender, in seconds; shorter than the longest delay of the receiver.
TIMEOUT_S = 0.1
#: Average seconds between two deaths.
PAUSE_S = 0.05
#: Seconds until it checks whether all is delivered.
CLOSE_S = 10.0
RETRY = RetrySettings(first_s=0.01, longest_s=0.1, max_attempts=10_000)


def trouble_of(death_id: str) -> str:
    """Return the cause that the judge of the rounds names."""
    return f"trouble.{death_id}"


def notice_id(way: str, number: int) -> str:
    """Return the id of the notice about the death with that number."""
    if way == "rounds":
        case = case_id(CLUSTER, sure_of(trouble_of(f"epoch-{number}")).fingerprint)
        return f"{case}-{watched_death(number).when:.0f}-1"
    return f"{CASES[number % len(CASES)]}-{number}"


class Journal:
    """A file with one line per event, which survives a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


class HttpSink:
    """Sends a notice as JSON, with its id as the idempotency key."""

    def __init__(self, name: str, url: str, journal: Journal) -> None:
        self.name = name
        self._url = url
        self._journal = journal

    def deliver(self, delivery):
        body = json.dumps(
            {
                "delivery": delivery.id,
                "notice": delivery.notice.notice_id,
                "sink": self.name,
                "attempt": delivery.attempt,
                "process": os.getpid(),
                "last": delivery.receipt.get("last", ""),
            }
        ).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self._url, body), timeout=TIMEOUT_S):
                self._journal.write(f"answered {delivery.id} {os.getpid()}")
                return {"last": delivery.notice.notice_id}
        except urllib.error.HTTPError as problem:
            asked = problem.headers.get("Retry-After")
            raise DeliveryError(str(problem), retry_after_s=float(asked) if asked else None) from problem


class EndlessFeed:
    """A cluster on which workers die one by one, each of another trouble, up to number *most*."""

    cluster = CLUSTER

    def __init__(self, most: int) -> None:
        self._most = most
        #: Called before each answer.
        self.look = lambda: None

    async def poll(self, after, **_):
        self.look()
        await asyncio.sleep(random.expovariate(1 / PAUSE_S))
        last = after.position if after else 0
        position = max(last, min(last + random.randint(1, 3), self._most))
        deaths = tuple(watched_death(number) for number in range(last + 1, position + 1))
        cursor = Cursor(epoch="e", position=position)
        return FeedBatch(cursor=cursor, now=time.time(), deaths=deaths)

    async def stored(self, _):
        return (), 0

    async def close(self):
        pass


def write_directly(store: Store, journal: Journal, most: int, wake) -> None:
    """Write the effects of each death in one transaction, one death after the other."""
    cursor = store.cursor(CLUSTER)
    for number in range(cursor.position + 1 if cursor else 1, most + 1):
        case = CASES[number % len(CASES)]
        with store.transaction():
            store.add_deaths(CLUSTER, [watched_death(number)])
            store.set_cursor(CLUSTER, Cursor(epoch="e", position=number))
            store.assign([f"epoch-{number}"], case)
            store.put_case(watched_case(case, sequence=number))
            store.outbox.enqueue(make_notice(case, number), SINKS)
        journal.write(f"committed {number}")
        wake()
        time.sleep(random.expovariate(1 / PAUSE_S))


def write_in_rounds(store: Store, journal: Journal, most: int, wake) -> None:
    """Run the watcher's rounds, with a judge that knows each death's trouble; then deliver the rest."""

    def judge(deaths, **_):
        return [incident(each, diagnosis=sure_of(trouble_of(each.id))) for each in deaths]

    feed = EndlessFeed(most)
    loop = WatchLoop(
        feed=feed,
        book=Casebook(
            store=store,
            settings=WatchSettings(settle_s=0.02),
            sink_names=lambda: SINKS,
            wake=wake,
            cluster=CLUSTER,
        ),
        judge=judge,
        judge_standstill=lambda *_, **__: None,
        progress=WatcherProgress(),
        clock=time.time,
    )
    feed.look = lambda: None if most or store.pending_deaths() else loop.stop()
    asyncio.run(loop.run())


def main(way: str, state: str, journal_path: str, url: str, most: str) -> None:
    journal = Journal(journal_path)
    store = Store(state)
    store.file.take()

    def deliver() -> Outbox:
        started = Outbox(store, [HttpSink(name, url, journal) for name in SINKS], retry=RETRY)
        started.start()
        return started

    outbox = deliver()
    print("ready", flush=True)  # noqa: T201  it is a program
    write = write_in_rounds if way == "rounds" else write_directly
    write(store, journal, int(most), outbox.wake)
    outbox.close(CLOSE_S)
    while store.outbox.stored("sending") or store.outbox.stored("pending"):
        deliver().close(CLOSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else serve(main)
