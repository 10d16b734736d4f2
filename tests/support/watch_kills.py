"""Kill a program that watches a cluster repeatedly, while workers die and the receiver fails.

The scheduler is real, with a recorder's ring of deaths to which this adds; no worker runs.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen
from distributed import LocalCluster

from support import watched_program
from support.bad_receiver import BadReceiver, is_taken
from support.death_records import decoded, nanny_report, scheduler_record
from support.forking_program import ForkingProgram, moment_of
from workerdiag.recorder.deaths import HANDLER, DeathRing, DeathWatch
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.webhook import verify_signature
from workerdiag.watch.store import Store

#: The behaviours of the receiver, by how often of 20 times. It takes all requests but ``error`` and
#: ``limit``.
BEHAVIOURS = ("take",) * 12 + ("late",) * 2 + ("too-late",) * 1 + ("cut",) * 2 + ("error",) * 2 + ("limit",) * 1


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


def kill_the_watcher(folder: Path, kills: int) -> WatchKillResult:
    """Kill a watcher at a random moment *kills* times, every tenth a new process; then let one finish."""
    state, cluster = folder / "state.db", DyingCluster()
    receiver = BadReceiver(
        read=read_request, behaviours=BEHAVIOURS, timeout_s=watched_program.TIMEOUT_S, retry_after="1"
    )
    with (
        closing(cluster),
        receiver.serving(),
        ForkingProgram(watched_program.__file__, cluster.address, str(state), receiver.url) as watchers,
    ):
        with cluster.dying():
            for number in range(kills):
                watchers.kill_one(moment_of(receiver), is_new=number % 10 == 0)
        cluster.die()
        receiver.is_kind = True
        watchers.finish("finish")
    return _result(state, cluster.count, receiver.requests, kills)


def _result(state: Path, death_count: int, requests: Sequence[Request], kills: int) -> WatchKillResult:
    with closing(sqlite3.connect(state)) as connection:
        in_cases = connection.execute("SELECT count(*) FROM death WHERE case_id IS NOT NULL").fetchone()[0]
    with closing(Store(state)) as store:
        stored, cases = store.outbox.stored(), store.cases()
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
