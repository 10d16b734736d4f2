"""
How the caller's cluster was brought up: by its cluster object's class, else by where its workers live.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from workerdiag.model.dask import Client, Method
from workerdiag.model.evidence import Event
from workerdiag.model.scene import Scene
from workerdiag.model.vocabulary import Deployment
from workerdiag.sources.addresses import host_of

#: Who reads it is `scoring.cluster_setup`.
SETUP_TOPIC = "cluster-setup"
#: Class, or package of classes, to the deployment; the more special ones first.
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
#: Environment variable of a worker's machine to the deployment, where there is no cluster object.
_DEPLOYMENT_OF_VARIABLE: Mapping[str, Deployment] = {
    "DASK_GATEWAY_CLUSTER_NAME": "gateway",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "SLURM_JOB_ID": "batch",
    "PBS_JOBID": "batch",
    "LSB_JOBID": "batch",
    "OAR_JOB_ID": "batch",
    "ECS_CONTAINER_METADATA_URI_V4": "cloud",
}


def setup_event(scene: Scene) -> Event | None:
    """
    What is known of the cluster of the scene's client; None without a client.

    Only attributes are read: nobody is asked.
    """
    if scene.client is None:
        return None
    link: str | None = None
    with suppress(Exception):  # objects of others: what cannot be read is not known
        link = _dashboard_link(scene.client)
    with suppress(Exception):
        return Event(
            topic=SETUP_TOPIC,
            fields={
                "deployment": deployment_of(scene),
                "dashboard": _without_query(_nonempty_text(link)),
                "cluster": _nonempty_text(getattr(scene.cluster, "name", None)),
            },
        )
    return None


def deployment_of(scene: Scene) -> Deployment:
    """
    By the class of the cluster object; a client that was given an address has none.
    """
    for name, deployment in _DEPLOYMENT_OF_CLASS.items():
        if scene.cluster_is(name):
            return deployment
    for name, deployment in _DEPLOYMENT_OF_VARIABLE.items():
        if scene.variable(name):
            return deployment
    return "command-line"


def _dashboard_link(client: Client) -> str | None:
    """
    The link of the cluster object, else by what the scheduler told the client when it connected.

    ``Client.dashboard_link`` asks the scheduler, and waits without end for one that is stopped.
    """
    if client.cluster is not None:
        return str(getattr(client.cluster, "dashboard_link"))  # noqa: B009  of any class
    from distributed import utils

    identity = getattr(client, "_scheduler_identity", {})
    format_link = cast("Method", utils.format_dashboard_link)
    return str(format_link(host_of(client.scheduler.address), identity["services"]["dashboard"]))


def _nonempty_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _without_query(link: str | None) -> str | None:
    """
    A link without its query: managers put a token there.
    """
    return link.partition("?")[0] if link else None
