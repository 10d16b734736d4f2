"""How long `explain` takes when all sources fail, each way in turn: goal is the budget plus a tenth."""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

import dask
from distributed import Client, KilledWorker, LocalCluster
from rows import Row, publish

import workerdiag
from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.scene import Scene
from workerdiag.sources import registry
from workerdiag.testing import HOSTILE_BEHAVIOURS, hostile_server

TIMEOUT_S = 2.0
Collect = Callable[[Scene], Iterator[Evidence]]
#: As many as apply to one cluster at most.
COUNT = 8
#: A line that many rules look at twice: the dearest text there is to search.
_DENSE = b"2026-05-04 11:22:33,444 - distributed.nanny - WARNING - Worker process 7 was killed by signal 9\n"


def rows() -> Iterator[Row]:
    """One for each way to fail, all sources at once."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        exc = death(client)
        workerdiag.explain(exc, client)  # loads the rules
        for what, collect, is_silent in ways():
            taken_s, unnamed = explained_in_s(exc, client, collect)
            assert is_silent or not unnamed, f"sources that {what} and are not named: {unnamed}"
            yield Row(
                what=f"explain, {COUNT} sources that {what}, timeout {TIMEOUT_S:g} s",
                measured=taken_s,
                unit="s",
                goal=TIMEOUT_S * 1.1,
            )


def death(client: Client) -> KilledWorker:
    """The exception of a worker that a task ended."""
    try:
        client.submit(os._exit, 3).result(timeout=60)
    except KilledWorker as exc:
        return exc
    raise AssertionError("the worker lives")


def ways() -> Iterator[tuple[str, Collect, bool]]:
    """What a source may do, with a name, and whether nobody can tell that it is wrong."""
    for behaviour in HOSTILE_BEHAVIOURS:
        with hostile_server(behaviour) as url:
            yield f"ask a server that {behaviour}", partial(believing, url), behaviour == "garbage"
    yield "hang", hanging, False
    yield "raise", raising, False
    yield "flood with text", flooding, False
    yield "flood with what many rules look at", partial(flooding, block=_DENSE * 10_000), False


def hanging(_: Scene) -> Iterator[Evidence]:
    """A source that waits for ever."""
    threading.Event().wait()
    yield from ()


def raising(scene: Scene) -> Iterator[Evidence]:
    """A source with a mistake in it."""
    raise KeyError(scene)


def believing(url: str, scene: Scene) -> Iterator[Evidence]:
    """A source that reads all that a server sends, without a limit."""
    with urllib.request.urlopen(url) as answer:
        yield LogChunk(origin=url, data=answer.read(), identity=scene.victims[0].identity)


def flooding(scene: Scene, block: bytes = b"x" * 2**20) -> Iterator[Evidence]:
    """A source that does not end."""
    while True:
        yield LogChunk(origin="flood", data=block, identity=scene.victims[0].identity)


def explained_in_s(exc: KilledWorker, client: Client, collect: Collect) -> tuple[float, set[str]]:
    """Seconds for an explanation while every source does the same wrong thing, and those not named in it."""

    class Source:
        def __init__(self, scene: Scene, name: str) -> None:
            self.scene = scene
            self.name = name

        def collect(self, *, budget_s: float) -> Iterator[Evidence]:
            assert budget_s > 0
            yield from collect(self.scene)

    names = [f"source {number}" for number in range(COUNT)]
    shipped = registry.factories
    registry.factories = lambda: ((name, lambda scene, name=name: Source(scene, name)) for name in names)
    try:
        began = time.perf_counter()
        diagnosis = workerdiag.explain(exc, client, timeout=TIMEOUT_S)
        taken_s = time.perf_counter() - began
    finally:
        registry.factories = shipped
    assert diagnosis.top is not None, "Dask's own evidence was lost"
    return taken_s, set(names) - {gap.source for gap in diagnosis.gaps} - _flooded(diagnosis, names)


def _flooded(diagnosis: workerdiag.Diagnosis, names: list[str]) -> set[str]:
    """All of them, where it is said that text was not searched: that names origins."""
    return set(names) if any("were not searched" in gap.detail for gap in diagnosis.gaps) else set()


if __name__ == "__main__":
    publish(rows())
