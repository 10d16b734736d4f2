"""
Whether what a provider says of a machine belongs to a dead worker, and came before its death.

Times are seconds since the epoch; *missed* is always when the worker was found to be gone.
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

#: This long after its machine a worker is missed at the latest: ``distributed.scheduler.worker-ttl``
#: is 5 minutes (distributed/distributed.yaml, 2026.8.0), and closing may take a while.
MISSED_S = 900.0
#: Clocks of providers and of schedulers agree about so well; it must stay below 15 s, after which
#: ``SpecCluster`` itself stops the machine of a worker that is lost (deploy/spec.py, 2026.8.0).
SKEW_S = 10.0
#: A worker may leave this long before its spot machine is taken: the notice of AWS is two minutes (Amazon
#: EC2 user guide, "Spot Instance interruption notices"), and the taking takes a while.
NOTICE_S = 180.0

_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
#: ``printk`` puts the seconds since the start before each line (man 1 dmesg).
_STAMP = re.compile(r"\[ *(?P<seconds>\d{1,9}\.\d{6})\]")
#: Only the end of a console is of interest.
_MAX_CHARACTERS = 256 * 1024
#: Around the death; machines take up to a minute from their start to the kernel's.
_BEFORE_S = 150.0
_AFTER_S = 90.0


def to_timestamp(value: object) -> float | None:
    """
    Seconds since the epoch of a datetime, an ISO 8601 text or a number; UTC where no zone is given.
    """
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
    """
    The first time of UTC in *text*, such as ``User initiated (2026-05-04 11:22:33 GMT)``.
    """
    found = _UTC_TIME.search(text or "")
    return to_timestamp(found.group()) if found else None


def missed_at(scene: Scene, victim: Victim, *, provider_ahead_s: float = 0.0) -> float | None:
    """
    When the *victim* was found to be gone, by the provider's clock; None if not known.
    """
    if victim.when is None:
        return None
    return victim.when - scheduler_ahead_s(scene) + provider_ahead_s


def scheduler_ahead_s(scene: Scene) -> float:
    """
    How far the scheduler's clock is ahead of the caller's, in seconds; 0 if it was not measured.
    """
    ahead = (each.clock_ahead_s for each in scene.locations if each.role == "scheduler")
    return next((each for each in ahead if each is not None), 0.0)


def may_be_workers_machine(missed: float | None, *, began: float | None, ended: float | None = None) -> bool:
    """
    Whether a machine that ran from *began* to *ended* can be that of a worker *missed* then.

    Addresses are given out again: a machine started after the death, or gone long before it, is another one.
    """
    if missed is None:
        return True
    if began is not None and began > missed + SKEW_S:
        return False
    return ended is None or ended > missed - MISSED_S


def may_be_reason(missed: float | None, happened: float | None, *, notice_s: float = 0.0) -> bool:
    """
    Whether what *happened* to a machine can be why its worker was *missed*, not a consequence.

    The worker may have gone *notice_s* before it; a time that is None is not known and excludes nothing.
    """
    if missed is None or happened is None:
        return True
    return missed - MISSED_S <= happened <= missed + SKEW_S + notice_s


def without_pid(identity: Identity) -> Identity:
    """
    The same worker without its pid, which differs between a container and its host.
    """
    return evolve(identity, pid=None)


def scene_of_lost_machines(scene: Scene) -> Scene | None:
    """
    The *scene* with only those dead from whose host nobody answers, or None if there are none.

    A machine that answers still lives and is asked itself, not its provider.
    """
    living = {each.identity.host for each in scene.locations}
    lost = tuple(each for each in scene.victims if each.identity.host not in living)
    return None if scene.victims and not lost else evolve(scene, victims=lost)


def victim_hosts(scene: Scene) -> Iterator[str]:
    """
    Names and addresses of the machines of the dead, as Dask has them.
    """
    yield from (each.identity.host for each in scene.victims if each.identity.host)


def known_machine_names(scene: Scene) -> Iterator[str]:
    """
    These, and the names that living machines have for themselves.
    """
    yield from victim_hosts(scene)
    yield from (each.hostname for each in scene.locations if each.hostname)


def provider_chunk(
    origin: str, record: Mapping[str, object], identity: Identity, *, keys: Iterable[str] | None = None
) -> LogChunk:
    """
    A record, or some *keys* of it, as the provider's command line prints it: JSON, times in ISO 8601.
    """
    text = json.dumps(pick_keys(record, keys), indent=4, default=_json_default, ensure_ascii=False)
    return LogChunk(origin=origin, data=f"{text}\n".encode(), identity=identity)


def _json_default(value: object) -> object:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def pick_keys(record: Mapping[str, object], keys: Iterable[str] | None = None) -> dict[str, object]:
    """
    The *keys* of a record that have a value, in this order; None: all keys.
    """
    wanted = record if keys is None else keys
    return {key: record[key] for key in wanted if record.get(key) not in (None, "", [], {})}


def console_excerpt(console: str, *, started: float | None, missed: float | None) -> bytes:
    """
    The lines of a serial console with a kernel time stamp near the death; empty if times are unknown.
    """
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
    """
    A console excerpt, if there is one; pids of the kernel and of a container differ.
    """
    if excerpt:
        yield LogChunk(origin=origin, data=excerpt, stream="kernel", identity=without_pid(identity))
