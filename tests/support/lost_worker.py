"""A worker that was lost with its machine, and the evidence of sources about it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

from attrs import frozen

from workerdiag.model.evidence import Evidence, Gap, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.rules import Rulebook
from workerdiag.model.scene import Scene, Victim
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook

#: The loss time: now, in whole seconds, so that the clocks of local servers fit.
NOW = float(int(time.time()))
#: Name of the worker and its machine, as dask-cloudprovider (2025.9.0) makes them, and its cluster.
MACHINE, CLUSTER = "dask-1f2e3d4c-worker-0a1b2c3d", "1f2e3d4c"


@frozen
class Client:
    """A client, as far as sources use it."""

    cluster: Any = None


def victim(address: str, *, name: str | None = MACHINE, when: float | None = NOW) -> Victim:
    """Return a worker that listened at *address*, such as ``tcp://10.0.1.2:34937``."""
    host = address.partition("://")[2].rpartition(":")[0]
    return Victim(identity=Identity(worker=address, pid=77, name=name, host=host), when=when)


def scene(*victims: Victim, cluster: object = None, **more: Any) -> Scene:
    """Return the scene: the dead workers, some minutes around now, and the *cluster* object if given."""
    client = None if cluster is None else Client(cluster)
    return Scene(client=client, victims=victims, since=NOW - 900, until=NOW + 120, **more)


def evidence_from(source: Any, budget_s: float = 60.0) -> list[Evidence]:
    """Return the evidence of a source, which must apply."""
    assert source is not None
    return list(source.collect(budget_s=budget_s))


def chunks(pieces: Iterable[Evidence]) -> list[LogChunk]:
    """Return the pieces that are text."""
    return [each for each in pieces if isinstance(each, LogChunk)]


def text_in(pieces: Iterable[Evidence]) -> bytes:
    """Return all text of the pieces."""
    return b"".join(each.data for each in chunks(pieces))


def gaps(pieces: Iterable[Evidence]) -> list[Gap]:
    """Return the pieces that say what could not be inspected."""
    return [each for each in pieces if isinstance(each, Gap)]


def cause_of(pieces: Iterable[Evidence]) -> str | None:
    """Return the likeliest cause from these pieces alone."""
    top = diagnose(list(pieces), _rulebook()).top
    return None if top is None else top.id


@cache
def _rulebook() -> Rulebook:
    return load_rulebook()


def utc(seconds_ago: float, form: str = "%Y-%m-%dT%H:%M:%S.000Z") -> str:
    """Return the time *seconds_ago* before `NOW`."""
    return dt.datetime.fromtimestamp(NOW - seconds_ago, dt.UTC).strftime(form)


def oom_kill(uptime_s: float, pid: int) -> str:
    """Return the kernel log of an out-of-memory kill."""
    return f"[ {uptime_s:.6f}] Out of memory: Killed process {pid} (python) total-vm:9000000kB, anon-rss:7900000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:16000kB oom_score_adj:0"
