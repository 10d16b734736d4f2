"""Builds the scene for platform sources: who died according to Dask, and how the cluster was set up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import cast

from attrs import evolve

from workerdiag.model.dask import Client, Method, removed_worker
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, LogChunk
from workerdiag.model.identity import Identity, host_of
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.model.stop_reasons import workers_of_restart
from workerdiag.model.vocabulary import Deployment
from workerdiag.sources.internals import scheduler_identity

#: Class or package of a cluster object -> deployment; the more specific ones first.
_DEPLOYMENT_OF_CLASS: Mapping[str, Deployment] = {
    "coiled": "coiled",
    "dask_jobqueue": "batch",
    "dask_kubernetes": "kubernetes",
    "dask_gateway": "gateway",
    "dask_yarn": "yarn",
    "dask_cloudprovider": "cloud",
    "dask_mpi": "mpi",
    "SSHCluster": "ssh",
    "LocalCluster": "local",
}
#: Environment variable on a worker's machine -> deployment, if there is no cluster object.
_DEPLOYMENT_OF_VARIABLE: Mapping[str, Deployment] = {
    "DASK_GATEWAY_CLUSTER_NAME": "gateway",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "SLURM_JOB_ID": "batch",
    "PBS_JOBID": "batch",
    "LSB_JOBID": "batch",
    "OAR_JOB_ID": "batch",
    "ECS_CONTAINER_METADATA_URI_V4": "cloud",
}
#: At most this many victims are queried; the others died of the same cause, or of these losses.
MAX_VICTIMS = 8


def setup_events(scene: Scene) -> Iterator[Event]:
    """Yield the setup of the client's cluster, read from attributes alone; nothing without a client."""
    if scene.client is None:
        return
    link: str | None = None
    with suppress(Exception):  # foreign objects: an unreadable attribute is unknown
        link = _dashboard_link(scene.client)
    with suppress(Exception):
        name = getattr(scene.cluster, "name", None)
        yield Event(
            topic="cluster-setup",
            fields={
                "deployment": deployment_of(scene),
                # Without the query, in which cluster managers put a token.
                "dashboard": link.partition("?")[0] if link else None,
                "cluster": name if isinstance(name, str) and name else None,
            },
        )


def deployment_of(scene: Scene) -> Deployment:
    """Return the deployment by the cluster object's class, or else by variables of the workers' machines."""
    by_class = (deployment for name, deployment in _DEPLOYMENT_OF_CLASS.items() if scene.cluster_is(name))
    by_variable = (deployment for name, deployment in _DEPLOYMENT_OF_VARIABLE.items() if scene.variable(name))
    return next(chain(by_class, by_variable), "command-line")


def _dashboard_link(client: Client) -> str | None:
    """Return the cluster object's link, or else the one in the identity that the scheduler sent on connection.

    ``Client.dashboard_link`` asks the scheduler, and waits forever for a stopped one.
    """
    if client.cluster is not None:
        return str(getattr(client.cluster, "dashboard_link"))  # noqa: B009  of any class
    from distributed import utils

    format_link = cast("Method", utils.format_dashboard_link)
    port = scheduler_identity(client)["services"]["dashboard"]
    return str(format_link(host_of(client.scheduler.address), port))


def workers_and_tasks_in_question(facts: Iterable[Evidence]) -> tuple[tuple[Identity, ...], tuple[str, ...]]:
    """Return the workers that an exception names, and the tasks that Dask gave up on."""
    facts_of_exceptions = [each for each in facts if isinstance(each, ExceptionFacts)]
    workers = tuple(each.identity for each in facts_of_exceptions if each.identity.worker)
    return workers, tuple(each.task for each in facts_of_exceptions if each.task)


def find_victims(pieces: Sequence[Evidence]) -> tuple[Victim, ...]:
    """Return the workers that an exception names, then those removed unexpectedly, the latest first.

    A retired or restarted worker is not a victim: a platform would report a deliberate stop.
    """
    named: dict[str, Identity] = {}
    removed: dict[str, Victim] = {}
    joined: dict[str, float | None] = {}
    expected: set[str] = set()
    for piece in pieces:
        if isinstance(piece, Event):
            expected |= workers_of_restart(piece.fields)
        worker = piece.identity.worker if isinstance(piece, ExceptionFacts | Event) else None
        if worker is None:
            continue
        if isinstance(piece, ExceptionFacts):
            named.setdefault(worker, piece.identity)
        elif isinstance(piece, Event) and piece.fields.get("action") == "add-worker":
            joined[worker] = piece.when
        elif isinstance(piece, Event) and piece.fields.get("action") == "remove-worker":
            before = removed.get(worker, Victim(identity=piece.identity))
            identity = before.identity.merged_with(piece.identity)
            removed[worker] = Victim(identity=identity, when=piece.when, since=joined.get(worker))
            expected |= {worker} if piece.fields.get("expected") else set()
    for worker, name in _names_of_removed(pieces):
        if worker in removed:
            identity = removed[worker].identity.merged_with(Identity(name=name))
            removed[worker] = evolve(removed[worker], identity=identity)
    unexpected = [each for each in removed if each not in expected or each in named]
    latest = sorted(unexpected, key=lambda each: -(removed[each].when or 0.0))
    found = {worker: Victim(identity=identity) for worker, identity in named.items()}
    for worker in latest:
        known = removed[worker].identity
        identity = named.get(worker, known).merged_with(known)
        found[worker] = evolve(removed[worker], identity=identity)
    return tuple(found.values())[:MAX_VICTIMS]


def without_unknown_nannies(victims: Iterable[Victim], pieces: Iterable[Evidence]) -> tuple[Victim, ...]:
    """Return the *victims* without nannies on hosts where *pieces* report no worker of the scheduler.

    Probing a nanny connects to its address, and an exception may name any address.
    """
    heard_from = (piece.identity.worker for piece in pieces if isinstance(piece, Event))
    hosts = {host_of(worker) for worker in heard_from} - {None}
    return tuple(
        each if host_of(each.identity.nanny) in hosts else evolve(each, identity=evolve(each.identity, nanny=None))
        for each in victims
    )


def _names_of_removed(pieces: Iterable[Evidence]) -> Iterator[tuple[str, str]]:
    """Yield addresses and names of removed workers from the scheduler's log, the only place with the names."""
    for piece in pieces:
        if isinstance(piece, LogChunk) and piece.stream == "scheduler":
            for line in piece.data.decode("utf-8", errors="replace").splitlines():
                if found := removed_worker(line):
                    yield found[0], found[1][:200]


def make_scene(
    victims: Sequence[Victim], places: Sequence[Location], client: object, pieces: Iterable[Evidence] = ()
) -> Scene:
    """Return the scene of *victims*; if no removal has a time, the last quarter of an hour is relevant."""
    times = [each.when for each in victims if each.when is not None] or [time.time()]
    states = (each for each in pieces if isinstance(each, Event) and each.topic == "worker-state")
    return Scene(
        victims=tuple(victims),
        paused=tuple(each.identity for each in states if each.fields.get("status") == "paused"),
        locations=tuple(places),
        since=min(times) - 900.0,  # platforms' records that may belong to a removal
        until=max(times) + 120.0,
        client=client,
    )
