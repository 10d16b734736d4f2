"""Coiled: the states of workers and instances with their reasons, and the logs of the dead ones.

The queries use the cluster object's connection (``Cluster.cloud``, public in coiled 1.135.6): a new log-in
without a token would open a browser.
"""

from __future__ import annotations

import datetime as dt
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine
from workerdiag.sources.machine import ProviderQuery, ProviderSource
from workerdiag.values import frozen

#: Coiled's labels of what has a state (coiled/v2/states.py, 1.135.6).
_KINDS = {
    "cluster": "Cluster",
    "scheduler": "Scheduler Process",
    "scheduler_instance": "Scheduler Instance",
    "cluster_infra": "Network Infrastructure",
    "worker": "Worker Process",
    "worker_instance": "Worker Instance",
}
#: The client library returns nothing within a second of its last request
#: (``coiled.cluster-state-check-interval``).
_RETRY_S = 1.1
#: Suffix that makes an instance's name of its worker's.
_INSTANCE = "-instance"
#: A worker, or one change of its state, as Coiled's API returns it.
_CoiledState = Mapping[str, Any]


@frozen(kw_only=True)
class _CoiledWorker:
    victim: Victim
    missed: float | None
    instance_id: int | None
    name: str


@frozen
class CoiledSource(ProviderSource):
    """Reads state changes, with reasons, and logs of the dead workers and their instances."""

    name: ClassVar[str] = "Coiled"
    terms: ClassVar[Terms] = Terms(
        lasts_s=30 * 86400.0,
        permission="membership in the cluster's workspace",
        cost="two calls, and one for the logs of each of at most eight workers",
    )

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for a ``coiled.Cluster`` that has been created, else None."""
        known = scene.cluster_is("coiled") and getattr(scene.cluster, "cluster_id", None)
        return cls(scene) if known else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        found: list[_CoiledWorker] = []
        status = f"coiled cluster status {self._name}"
        logs = f"coiled cluster logs {self._name} --combined"
        yield ProviderQuery("cluster details", status, lambda: self._match(found))
        yield ProviderQuery("cluster states", status, lambda: self._states(found, deadline))
        yield ProviderQuery("cluster logs", logs, lambda: self._logs(found))

    @property
    def _name(self) -> str:
        return shlex.quote(str(self.scene.cluster.name))

    def _cluster_arguments(self) -> dict[str, object]:
        return {"cluster_id": self.scene.cluster.cluster_id, "workspace": self.scene.cluster.workspace}

    def _match(self, found: list[_CoiledWorker]) -> Iterator[Evidence]:
        details = self.scene.cluster.cloud.cluster_details(**self._cluster_arguments())
        for victim in self.scene.victims:
            missed = self._missed(victim)
            own = (each for each in details["workers"] if _is_victims_worker(each, victim, missed))
            worker = next(own, None)
            if worker is None:
                detail = f"Coiled lists no worker named {victim.identity.name or victim.identity.worker}"
                yield self._gap("expired", detail, f"coiled cluster logs {self._name} --combined")
                continue
            id_ = (worker.get("instance") or {}).get("id")
            name = str(worker["name"])
            found.append(_CoiledWorker(victim=victim, missed=missed, instance_id=id_, name=name))

    def _states(self, found: Sequence[_CoiledWorker], deadline: Deadline) -> Iterator[Evidence]:
        cloud = self.scene.cluster.cloud
        states = cloud.get_cluster_states(**self._cluster_arguments())
        if not states and deadline.left_s > 2 * _RETRY_S:
            time.sleep(_RETRY_S)
            states = cloud.get_cluster_states(**self._cluster_arguments())
        if not states:
            detail = "the client library requests states at most once a second, and another caller just did"
            yield self._gap("timed-out", detail, f"coiled cluster status {self._name}")
            return
        for worker in found:
            lines = _state_lines(states, worker)
            if lines:
                yield _states_chunk(worker.name, lines, worker.victim.identity)
            yield Inspected(identity=worker.victim.identity)
        if not self.scene.victims:
            yield from self._failed_starts(states)

    def _failed_starts(self, states: _CoiledState) -> Iterator[Evidence]:
        for kind, changes in states.items():
            for change in changes:
                if change["state"] == "error" and self._is_recent(change["updated"]):
                    name = str(change["stateful_object"]["name"] or "")
                    identity = Identity(name=name.removesuffix(_INSTANCE) or None)
                    yield _states_chunk(name, [_state_line(kind, change)], identity)

    def _logs(self, found: Sequence[_CoiledWorker]) -> Iterator[Evidence]:
        for worker in found:
            if worker.instance_id is None:
                continue
            missed = worker.missed or self.scene.until or time.time()
            events = self.scene.cluster.cloud.better_cluster_logs(
                instance_ids=[worker.instance_id],
                dask=True,
                system=True,
                since_ms=int((missed - 600.0) * 1000),
                until_ms=int((missed + 60.0) * 1000),
                **self._cluster_arguments(),
            )
            own = [each for each in events if each.get("instance_id") in (None, worker.instance_id)]
            text = "".join(f"{each['message']}\n" for each in own).encode()[-(2**20) :]
            if text:
                identity = machine.without_pid(worker.victim.identity)
                yield LogChunk(origin=f"coiled cluster logs ({worker.name})", data=text, identity=identity)


def _is_victims_worker(worker: _CoiledState | None, victim: Victim, missed: float | None) -> bool:
    """Whether a listed worker has the victim's name, or else its private address, and was alive then."""
    if not worker:
        return False
    began = machine.to_timestamp(worker.get("created"))
    if not machine.may_be_workers_machine(missed, began=began):
        return False
    if victim.identity.name is not None:
        return bool(worker["name"] == victim.identity.name)
    address = (worker.get("instance") or {}).get("private_ip_address")
    return address is not None and address == victim.identity.host


def _state_lines(states: _CoiledState, worker: _CoiledWorker) -> list[str]:
    """Return the state changes of a worker and its instance up to the death; later ones are Coiled's reaction."""
    names = {worker.name, f"{worker.name}{_INSTANCE}"}
    last = inf if worker.missed is None else worker.missed + machine.SKEW_S
    changes = [
        (machine.to_timestamp(change["updated"]) or 0.0, _state_line(kind, change))
        for kind in ("worker", "worker_instance")
        for change in states.get(kind, ())
        if change["stateful_object"]["name"] in names
    ]
    return [line for when, line in sorted(changes) if when <= last]


def _state_line(kind: str, change: _CoiledState) -> str:
    when = machine.to_timestamp(change["updated"])
    at = dt.datetime.fromtimestamp(when, dt.UTC).strftime("%H:%M:%S (UTC)") if when is not None else "?"
    name = change["stateful_object"]["name"] or ""
    label = _KINDS.get(kind, kind)
    return f"   | {label:22} | {name:46} | {change['state']:10} at {at} | {change['reason']}"


def _states_chunk(name: str, lines: Sequence[str], identity: Identity) -> LogChunk:
    data = "".join(f"{line}\n" for line in lines).encode()
    return LogChunk(origin=f"coiled cluster states ({name})", data=data, identity=identity)
