"""Decides whether a provider's record of a machine belongs to a dead worker and precedes its death.

Times are in seconds since the epoch; *missed* is always when the worker was noticed to be gone.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve

from workerdiag.model.evidence import LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Victim

#: A worker is missed at most this many seconds after its machine ended: ``distributed.scheduler.worker-ttl``
#: is 5 minutes (distributed/distributed.yaml, 2026.8.0), and closing may take a while.
MISSED_S = 900.0
#: Maximum difference of a provider's and a scheduler's clock. It must stay below 15 s, after which
#: ``SpecCluster`` itself stops the machine of a lost worker (deploy/spec.py, 2026.8.0).
SKEW_S = 10.0
#: A worker may leave this many seconds before its spot machine is reclaimed: AWS's notice is two minutes
#: (Amazon EC2 user guide, "Spot Instance interruption notices"), and reclaiming takes a while.
NOTICE_S = 180.0

_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
#: ``printk`` prefixes each line with the seconds since boot (man 1 dmesg).
_STAMP = re.compile(r"\[ *(?P<seconds>\d{1,9}\.\d{6})\]")
#: Maximum characters from the end of a console.
_MAX_CHARACTERS = 256 * 1024
#: Seconds of the console around the death; a machine's kernel starts up to a minute after the machine.
_BEFORE_S = 150.0
_AFTER_S = 90.0


def to_timestamp(value: object) -> float | None:
    """Return seconds since the epoch of a datetime, an ISO 8601 text or a number; the default zone is UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    return None


def timestamp_in(text: str | None) -> float | None:
    """Return the first UTC time in *text*, such as ``User initiated (2026-05-04 11:22:33 GMT)``."""
    found = _UTC_TIME.search(text or "")
    return to_timestamp(found.group()) if found else None


def missed_at(scene: Scene, victim: Victim, *, provider_ahead_s: float = 0.0) -> float | None:
    """Return when the *victim* was noticed to be gone, by the provider's clock; None if unknown."""
    if victim.when is None:
        return None
    return victim.when - scheduler_ahead_s(scene) + provider_ahead_s


def scheduler_ahead_s(scene: Scene) -> float:
    """Return by how many seconds the scheduler's clock is ahead of the caller's; 0 if not measured."""
    ahead = (each.clock_ahead_s for each in scene.locations if each.role == "scheduler")
    return next((each for each in ahead if each is not None), 0.0)


def may_be_workers_machine(missed: float | None, *, began: float | None, ended: float | None = None) -> bool:
    """Whether a machine that ran from *began* to *ended* can be that of a worker *missed* then.

    Addresses are reused: a machine started after the death, or gone long before it, is another one.
    """
    if missed is None:
        return True
    if began is not None and began > missed + SKEW_S:
        return False
    return ended is None or ended > missed - MISSED_S


def may_be_reason(missed: float | None, happened: float | None, *, notice_s: float = 0.0) -> bool:
    """Whether what *happened* to a machine can be the reason why its worker was *missed*, not a consequence.

    The worker may have left *notice_s* earlier. An unknown time (None) excludes nothing.
    """
    if missed is None or happened is None:
        return True
    return missed - MISSED_S <= happened <= missed + SKEW_S + notice_s


def without_pid(identity: Identity) -> Identity:
    """Return the identity without its pid, which differs between a container and its host."""
    return evolve(identity, pid=None)


def scene_of_lost_machines(scene: Scene) -> Scene | None:
    """Return the *scene* with only the victims on whose host no process answers, or None without any.

    A machine that answers is probed itself, not through its provider.
    """
    living = {each.identity.host for each in scene.locations}
    lost = tuple(each for each in scene.victims if each.identity.host not in living)
    return None if scene.victims and not lost else evolve(scene, victims=lost)


def victim_hosts(scene: Scene) -> Iterator[str]:
    """Yield the names and addresses of the victims' machines, as Dask knows them."""
    yield from (each.identity.host for each in scene.victims if each.identity.host)


def known_machine_names(scene: Scene) -> Iterator[str]:
    """Yield those, and the hostnames of machines that answered."""
    yield from victim_hosts(scene)
    yield from (each.hostname for each in scene.locations if each.hostname)


def provider_chunk(
    origin: str, record: Mapping[str, object], identity: Identity, *, keys: Iterable[str] | None = None
) -> LogChunk:
    """Return a record, or some *keys* of it, as the provider's command line prints it: JSON, ISO 8601 times."""
    text = json.dumps(pick_keys(record, keys), indent=4, default=_json_default, ensure_ascii=False)
    return LogChunk(origin=origin, data=f"{text}\n".encode(), identity=identity)


def _json_default(value: object) -> object:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def pick_keys(record: Mapping[str, object], keys: Iterable[str] | None = None) -> dict[str, object]:
    """Return the *keys* of a record that have a value, in this order; None stands for all keys."""
    wanted = record if keys is None else keys
    return {key: record[key] for key in wanted if record.get(key) not in (None, "", [], {})}


def console_excerpt(console: str, *, started: float | None, missed: float | None) -> bytes:
    """Return the console lines with a kernel time stamp near the death; empty if times are unknown."""
    if started is None or missed is None:
        return b""
    uptime_s = missed - started
    excerpt = []
    for line in console[-_MAX_CHARACTERS:].splitlines():
        stamp = _STAMP.search(line)
        if stamp and -_BEFORE_S <= float(stamp["seconds"]) - uptime_s <= _AFTER_S:
            excerpt.append(line[stamp.start() :])
    return "".join(f"{line}\n" for line in excerpt).encode()


def console_chunks(origin: str, excerpt: bytes, identity: Identity) -> Iterator[LogChunk]:
    """Yield a console excerpt, if there is one, without the pid: the kernel's and a container's pids differ."""
    if excerpt:
        yield LogChunk(origin=origin, data=excerpt, stream="kernel", identity=without_pid(identity))
