"""Kill a program that watches a cluster repeatedly, while workers die and the receiver fails.

The scheduler is real, with a recorder's ring of deaths to which this adds; no worker runs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from attrs import field, frozen
from distributed import LocalCluster

from support import watched_program
from support.bad_receiver import BadReceiver, is_taken
from support.death_records import decoded, nanny_report, scheduler_record
from workerdiag.recorder.deaths import HANDLER, DeathRing, DeathWatch
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.webhook import verify_signature
from workerdiag.watch.store import Store

#: The behaviours of the receiver, by how often of 20 times. It takes all requests but ``error`` and
#: ``limit``.
BEHAVIOURS = ("take",) * 12 + ("late",) * 2 + ("too-late",) * 1 + ("cut",) * 2 + ("error",) * 2 + ("limit",) * 1
LONG_S = 900.0
#: Seconds until a new watcher sends its first notice: it first loads the rules and judges.
FIRST_WORD_S = 60.0


@frozen
class Request:
    """A notice, as the receiver read it."""

    delivery: str
    key: str
    notice: Mapping[str, Any] = field(eq=False)
    is_genuine: bool
    behaviour: str


def read_request(body: bytes, headers: Mapping[str, str], behaviour: str) -> Request:
    """Return the notice, and whether its signature is ours."""
    content = json.loads(body)
    return Request(
        delivery=content["delivery_id"],
        key=headers["Idempotency-Key"],
        notice=content["notice"],
        is_genuine=verify_signature(body, headers, watched_program.SECRET),
        behaviour=behaviour,
    )


class Receiver(Protocol):
    """Somebody who keeps what was received."""

    @property
    def requests(self) -> Sequence[object]:
        """Everything until now."""


class DyingCluster:
    """A scheduler whose recorder has ever more deaths, of three causes."""

    def __init__(self) -> None:
        self.count = 0
        self._cluster = LocalCluster(n_workers=0, dashboard_address=":0")
        self.address = self._cluster.scheduler_address
        self._ring = DeathRing(most=2000, most_bytes=2**26)
        self._watch = DeathWatch(self._cluster.scheduler, self._ring, is_report_due=lambda _: False)
        self._cluster.scheduler.handlers[HANDLER] = self._watch.answer

    def die(self) -> None:
        """Add one more death."""
        self.count += 1
        messages = _messages_of(self.count)

        def add() -> None:
            for each in messages:
                self._ring.add(decoded(each))
            self._watch.notify()

        self._cluster.loop.add_callback(add)

    @contextmanager
    def dying(self) -> Iterator[None]:
        """Add deaths one or two at a time until the block ends, with pauses in which a case can be resolved."""
        is_over = threading.Event()

        def go_on() -> None:
            while not is_over.wait(random.choice((0.05, 0.3, 2.5))):
                self.die()

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def close(self) -> None:
        """End the scheduler."""
        self._cluster.close()


def _messages_of(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the messages of scheduler and nanny about a death: memory limit, segmentation fault or exit."""
    now, who = time.time(), {"worker_address": f"tcp://10.0.{number >> 8}.{number & 255}:4000", "pid": number}
    record = scheduler_record(number, **who, noticed_at=now, stimulus_id=f"handle-worker-cleanup-{number}")
    box = {"stage": "running", "written_at": now, "samples": ()}
    kinds: Sequence[dict[str, Any]] = (
        {
            "exit": {"signal": 9, "known_by": "nanny"},
            "is_memory_terminated": True,
            "terminate_fraction": 0.95,
        },
        {"exit": {"signal": 11, "known_by": "nanny"}},
        {"exit": {"status": 3, "known_by": "nanny"}},
    )
    return record, nanny_report(number, **who, noticed_at=now, box=box, **kinds[number % 3])


@frozen(kw_only=True)
class WatchKillResult:
    """The result of the kills."""

    deaths: int
    notices: int
    kills: int
    #: Deaths without a case, and notices that never arrived: there must be none.
    lost: list[str]
    #: Deliveries that arrived but are not in the state, or are not signed: there must be none.
    unknown: list[str]
    #: Number of requests taken although one with that id had been taken before.
    repeats: int
    #: Duplicates at a receiver that drops known ids: there must be none.
    idempotent_repeats: list[str]
    #: Cases with notices out of order, or resolved twice: there must be none.
    disordered: list[str]
    behaviours: Counter[str]


class Watchers:
    """Processes that watch: new, which takes seconds, or forked from a process that has imported everything."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._forking = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._forking.stdin is not None
        self._forking.stdin.close()
        assert self._forking.wait(LONG_S) == 0

    def finish(self) -> None:
        """Run a watcher that ends when nothing is left to send."""
        assert self._started(*self._arguments, "finish").wait(LONG_S) == 0

    def kill_one(self, receiver: Receiver, *, is_new: bool) -> None:
        """Start a watcher, and kill it at a random moment."""
        if is_new:
            with self._started(*self._arguments) as child:
                _wait_for_a_moment(child, receiver)
                child.kill()
            return
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        self._forking.stdin.write(f"{' '.join(self._arguments)}\n")
        self._forking.stdin.flush()
        pid = int(self._forking.stdout.readline())
        _wait_for_a_moment(self._forking, receiver)
        os.kill(pid, signal.SIGKILL)
        while self._forking.stdout.readline() != "ended\n":
            pass

    @staticmethod
    def _started(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, watched_program.__file__, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def kill_the_watcher(folder: Path, kills: int) -> WatchKillResult:
    """Kill a watcher at a random moment *kills* times, every tenth a new process; then let one finish."""
    state, cluster = folder / "state.db", DyingCluster()
    receiver = BadReceiver(
        read=read_request, behaviours=BEHAVIOURS, timeout_s=watched_program.TIMEOUT_S, retry_after="1"
    )
    with (
        closing(cluster),
        receiver.serving(),
        Watchers(cluster.address, str(state), receiver.url) as watchers,
    ):
        with cluster.dying():
            for number in range(kills):
                watchers.kill_one(receiver, is_new=number % 10 == 0)
        cluster.die()
        receiver.is_kind = True
        watchers.finish()
    return _result(state, cluster.count, receiver.requests, kills)


def _wait_for_a_moment(child: subprocess.Popen[str], receiver: Receiver) -> None:
    """Wait, mostly until it sends; sometimes only until it imports, opens the file, takes it or judges."""
    said_before, dice = len(receiver.requests), random.random()
    if dice < 0.9:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    end = time.monotonic() + FIRST_WORD_S
    while dice < 0.7 and len(receiver.requests) == said_before and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.7 if dice < 0.7 else 3.0))


def _result(state: Path, death_count: int, requests: Sequence[Request], kills: int) -> WatchKillResult:
    with closing(sqlite3.connect(state)) as connection:
        in_cases = connection.execute("SELECT count(*) FROM death WHERE case_id IS NOT NULL").fetchone()[0]
    with closing(Store.open(state)) as store:
        stored, cases = store.deliveries(), store.cases()
    effects: dict[str, Request] = {}
    taken = [each for each in requests if is_taken(each.behaviour)]
    for each in taken:
        effects.setdefault(each.delivery, each)
    arrived = Counter(each.notice["notice_id"] for each in effects.values())
    known = {each.id for each in stored}
    lost = [f"{death_count - in_cases} deaths"] if in_cases != death_count else []
    return WatchKillResult(
        deaths=death_count,
        notices=len(stored),
        kills=kills,
        lost=[
            *lost,
            *(each.id for each in stored if each.state != "sent" or each.id not in effects),
            *(case.id for case in cases if case.sequence != _count_of(case, effects)),
        ],
        unknown=[
            each.delivery
            for each in requests
            if each.delivery not in known or each.key != each.delivery or not each.is_genuine
        ],
        repeats=len(taken) - len(effects),
        idempotent_repeats=[name for name, count in arrived.items() if count > 1],
        disordered=[problem for case in cases for problem in _disorder(case, list(effects.values()))],
        behaviours=Counter(each.behaviour for each in requests),
    )


def _count_of(case: WatchedCase, effects: Mapping[str, Request]) -> int:
    return sum(each.notice["id"] == case.id for each in effects.values())


def _disorder(case: WatchedCase, effects: Sequence[Request]) -> Iterator[str]:
    own = [each.notice for each in effects if each.notice["id"] == case.id]
    numbers = [int(each["notice_id"].rpartition("-")[2]) for each in own]
    if numbers != list(range(1, len(own) + 1)):
        yield f"{case.id}: {numbers}"
    lives = [each["reason"] for each in own if each["reason"] in {"new", "recurring", "resolved"}]
    expected = [("recurring", "resolved")[number % 2] for number in range(len(lives))]
    if lives != ["new", *expected[1:]]:
        yield f"{case.id}: {lives}"
