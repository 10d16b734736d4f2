"""Dask in pods: a scheduler beside the node, workers in it, named and labelled as dask-kubernetes does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from .node import ADDRESS, DASK, kubectl, until

SCHEDULER = f"tcp://{ADDRESS}:8786"
CLUSTER = "lab"
#: A worker of this lab takes about 150 MiB before it does anything.
SMALL = {"limits": {"memory": "350Mi"}}
_PATIENCE_S = 90.0


@contextmanager
def scheduler() -> Iterator[Client]:
    """A scheduler in the node's network that gives up on a task at the first death, and a client of it."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", ADDRESS, "--port", "8786"]
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with subprocess.Popen([*command, "--no-dashboard"], env={**os.environ, **settings}) as process:
        try:
            with Client(SCHEDULER, timeout=_PATIENCE_S, set_as_default=False) as client:
                yield client
        finally:
            process.kill()


def worker_pod(name: str = "", **changes: Any) -> dict[str, Any]:
    """The manifest of a worker's pod.

    Args:
        name: Of the worker; a new one is made up.
        changes: ``nanny``, ``resources``, ``container`` and ``spec`` (merged in), ``sidecars``, ``scratch``.
    """
    name = name or f"{CLUSTER}-default-worker-{uuid.uuid4().hex[:10]}"
    command = ["dask", "worker", SCHEDULER, "--nthreads", "1", "--memory-limit", "0", "--name", name]
    container = {
        "name": "worker",
        "image": DASK,
        "imagePullPolicy": "IfNotPresent",
        "command": [str(Path(sys.prefix, "bin", command[0])), *command[1:], "--local-directory", "/scratch"],
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}, {"name": "HOME", "value": "/tmp"}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}, *_mounts()],
        "resources": changes.get("resources", {}),
        **changes.get("container", {}),
    }
    if not changes.get("nanny", True):
        container["command"].append("--no-nanny")
    labels = {"dask.org/cluster-name": CLUSTER, "dask.org/component": "worker"}
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 5,
        "containers": [container, *changes.get("sidecars", ())],
        "volumes": [{"name": "scratch", "emptyDir": changes.get("scratch", {})}, *_volumes()],
        **changes.get("spec", {}),
    }
    metadata = {"name": f"{name}-5d9c7d6f5b-{uuid.uuid4().hex[:5]}", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The deployment of one *pod*, as the operator makes one for each worker."""
    name = pod["metadata"]["name"].rsplit("-", 2)[0]
    labels = {**pod["metadata"]["labels"], "dask.org/workergroup-name": f"{CLUSTER}-default", "worker": name}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def create(manifest: Mapping[str, Any]) -> str:
    """Create what *manifest* says; its name."""
    kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    return str(manifest["metadata"]["name"])


def status(pod: str) -> dict[str, Any]:
    """The status of a pod; empty when it is gone."""
    said = kubectl("get", "pod", pod, "-o", "json", check=False)
    return json.loads(said)["status"] if said else {}


def container_status(pod: str, name: str = "worker") -> dict[str, Any]:
    """The status of one container of a pod; empty before there is one."""
    states = status(pod).get("containerStatuses", ())
    return next((each for each in states if each["name"] == name), {})


def wait_for(true: Callable[[], object]) -> None:
    """Wait until *true* is true, as long as a busy machine may need."""
    until(true, within_s=_PATIENCE_S)


def _host_folders() -> list[str]:
    return sorted({"/usr", sys.base_prefix, sys.prefix})


def _mounts() -> list[dict[str, Any]]:
    return [
        {"name": f"host{number}", "mountPath": folder, "readOnly": True}
        for number, folder in enumerate(_host_folders())
    ]


def _volumes() -> list[dict[str, Any]]:
    return [
        {"name": f"host{number}", "hostPath": {"path": folder}} for number, folder in enumerate(_host_folders())
    ]
