"""Deaths that Kubernetes has a hand in: each brought about for real, of a real Dask worker in a pod.

A death is a function that is given a client; it returns when the death is complete, with what the
client caught of it. What is left behind is for the caller to look at, then `cleared` removes it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from distributed import Client, Future

from support.kubernetes_api import CAUSES as RECORDED_CAUSES

from .binaries import build
from .node import HOME, NODE, kill, kubectl, start_kubelet
from .pods import SMALL, container_status, create, deployment, status, wait_for, worker_pod
from .recording import note_names

#: What each is told to be from the answers of Kubernetes alone, by its name here; several if releases differ.
CAUSES = RECORDED_CAUSES | {
    # Where the kernel's log can be read, it says more than the exit status does.
    "oom-under-nanny": "kubernetes.oom-killed kernel.oom-killer external.sigkill",
    "eviction-api": "kubernetes.deleted kubernetes.evicted",
    "crash-at-start": "exception.preload-failed exception.missing-module",
}


def carried(task: Callable[..., None]) -> Callable[..., None]:
    """Have Dask send the *task* itself, not its name: the pods do not have this module."""
    task.__module__ = "__main__"
    return task


@carried
def grow() -> None:
    """Take memory until somebody minds."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1)) * 2**23)


@carried
def leave(code: int) -> None:
    """End the process at once, without a word."""
    os._exit(code)


@carried
def crash() -> None:
    """Read at address zero."""
    ctypes.string_at(0)


@carried
def fill(folder: str) -> None:
    """Write 100 MB there."""
    Path(folder, "filled").write_bytes(os.urandom(100 * 2**20))
    time.sleep(600)


@carried
def hold() -> None:
    """Be busy for long."""
    time.sleep(600)


def _alive(client: Client, **changes: object) -> str:
    """A worker's pod whose worker has arrived."""
    pod = create(worker_pod(**changes))
    client.wait_for_workers(1, timeout=90)
    note_names(client)
    return pod


def _failed(future: Future) -> BaseException | None:
    return future.exception(timeout=120)


def oom_killed(client: Client) -> BaseException | None:
    """The worker is the container's first process, and grows beyond the container's limit."""
    pod = _alive(client, nanny=False, resources=SMALL)
    error = _failed(client.submit(grow, pure=False))
    wait_for(lambda: container_status(pod).get("restartCount") or "terminated" in container_status(pod)["state"])
    return error


def oom_under_nanny(client: Client) -> BaseException | None:
    """The same with a nanny, which lives on, and with it the container."""
    _alive(client, resources={"limits": {"memory": "500Mi"}})
    error = _failed(client.submit(grow, pure=False))
    time.sleep(3)
    return error


def exit_3(client: Client) -> BaseException | None:
    """The worker leaves by itself."""
    pod = _alive(client, nanny=False)
    error = _failed(client.submit(leave, 3, pure=False))
    wait_for(lambda: _ended(pod))
    return error


def segfault(client: Client) -> BaseException | None:
    """The worker reads where it may not."""
    pod = _alive(client, nanny=False)
    error = _failed(client.submit(crash, pure=False))
    wait_for(lambda: _ended(pod))
    return error


def killed_9(client: Client) -> BaseException | None:
    """Somebody on the node kills the worker."""
    pod = _alive(client, nanny=False)
    busy = client.submit(hold, pure=False)
    time.sleep(2)
    (worker,) = [each for each in psutil.process_iter(["cmdline"]) if _is_of(each, pod)]
    worker.send_signal(signal.SIGKILL)
    error = _failed(busy)
    wait_for(lambda: _ended(pod))
    return error


def evicted_scratch(client: Client) -> BaseException | None:
    """The worker writes more to its volume than it may."""
    pod = _alive(client, scratch={"sizeLimit": "50Mi"})
    busy = client.submit(fill, "/scratch", pure=False)
    wait_for(lambda: status(pod).get("reason") == "Evicted")
    return _failed(busy)


def eviction_api(client: Client) -> BaseException | None:
    """A drain, which asks for an eviction."""
    pod = _alive(client)
    busy = client.submit(hold, pure=False)
    time.sleep(2)
    eviction = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "default"},
    }
    kubectl(
        "create",
        "--raw",
        f"/api/v1/namespaces/default/pods/{pod}/eviction",
        "-f",
        "-",
        stdin=json.dumps(eviction),
    )
    error = _failed(busy)
    wait_for(lambda: not status(pod))
    return error


def preempted(client: Client) -> BaseException | None:
    """A pod of higher priority needs the room."""
    kubectl("create", "priorityclass", "urgent", "--value=1000", check=False)
    room = {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}
    pod = _alive(client, resources=room)
    busy = client.submit(hold, pure=False)
    time.sleep(1)
    urgent = worker_pod("urgent", resources=room, spec={"priorityClassName": "urgent"})
    urgent["metadata"]["labels"] = {"app": "api"}
    create(urgent)
    error = _failed(busy)
    wait_for(lambda: not status(pod))
    return error


def node_lost(client: Client) -> BaseException | None:
    """The node falls silent, and what ran on it is gone."""
    pod = _alive(client, nanny=False)
    busy = client.submit(hold, pure=False)
    time.sleep(1)
    kill("kubelet", "containerd")
    for process in psutil.process_iter(["cmdline"]):
        if _is_of(process, pod):
            process.kill()
    error = _failed(busy)
    wait_for(lambda: "NodeNotReady" in kubectl("get", "events", "--field-selector", f"involvedObject.name={pod}"))
    wait_for(lambda: "unreachable" in kubectl("get", "node", NODE, "-o", "jsonpath={.spec.taints}"))
    return error


def image_pull(client: Client) -> None:
    """There is no such image."""
    pod = create(worker_pod(container={"image": "registry.invalid/lab/dask:nope"}))
    wait_for(lambda: container_status(pod).get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff")


def unschedulable(client: Client) -> None:
    """No node has so much memory."""
    pod = create(worker_pod(resources={"requests": {"memory": "900Gi"}}))
    wait_for(lambda: "FailedScheduling" in kubectl("get", "events"))
    assert status(pod)


def deleted(client: Client) -> BaseException | None:
    """Somebody deletes the pod; its deployment makes another one."""
    name = create(deployment(worker_pod()))
    client.wait_for_workers(1, timeout=90)
    note_names(client)
    busy = client.submit(hold, pure=False)
    time.sleep(5)  # longer than clocks differ, so that the next pod is known by its age
    (pod,) = _pods(name)
    kubectl("delete", "pod", pod, "--wait=true")
    error = _failed(busy)
    wait_for(lambda: _pods(name) and container_status(_pods(name)[0]).get("state", {}).get("running"))
    return error


def liveness(client: Client) -> None:
    """A probe asks where nobody answers."""
    probe = {"tcpSocket": {"port": 9}, "periodSeconds": 2, "failureThreshold": 2, "initialDelaySeconds": 8}
    pod = _alive(client, container={"livenessProbe": probe})
    busy = client.submit(hold, pure=False)
    wait_for(lambda: container_status(pod).get("restartCount"))
    busy.cancel()


def sidecar_oom(client: Client) -> BaseException | None:
    """Another container of the pod grows too large; the worker lives, and is killed by somebody else."""
    python = worker_pod()["spec"]["containers"][0]["command"][0].replace("/dask", "/python")
    base = worker_pod()["spec"]["containers"][0]
    sidecar = {
        **base,
        "name": "shipper",
        "command": [
            python,
            "-c",
            "import time; time.sleep(20); x = []\nwhile True: x.append(bytearray(b'x') * 2**23)",
        ],
        "resources": {"limits": {"memory": "100Mi"}},
    }
    pod = _alive(client, nanny=False, sidecars=[sidecar])
    wait_for(lambda: "OOMKilled" in json.dumps(container_status(pod, "shipper")))
    busy = client.submit(leave, 3, pure=False)
    error = _failed(busy)
    wait_for(lambda: _ended(pod))
    return error


def quota(client: Client) -> None:
    """The namespace may not have so much."""
    kubectl("create", "quota", "team-a", "--hard=limits.memory=1Gi", check=False)
    create(deployment(worker_pod(resources={"limits": {"memory": "8Gi"}})))
    wait_for(lambda: "exceeded quota" in kubectl("get", "events"))


def command_missing(client: Client) -> None:
    """The image has no such program."""
    pod = create(worker_pod(container={"command": ["dask-wrker", "tcp://10.88.0.1:8786"]}))
    wait_for(lambda: container_status(pod).get("restartCount"))


def crash_at_start(client: Client) -> None:
    """A module that the worker is to load is not there, each time it is started."""
    command = worker_pod()["spec"]["containers"][0]["command"]
    pod = create(worker_pod(container={"command": [*command, "--preload", "no_such_module"]}))
    wait_for(lambda: container_status(pod).get("restartCount", 0) > 1)


def secret_missing(client: Client) -> None:
    """A secret that the pod wants is not there."""
    wanted = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s3-credentials", "key": "key"}}}]
    pod = create(worker_pod(container={"env": wanted}))
    wait_for(lambda: "CreateContainerConfigError" in json.dumps(container_status(pod)))


def deadline(client: Client) -> BaseException | None:
    """The pod may live for some seconds only."""
    pod = _alive(client, spec={"activeDeadlineSeconds": 15})
    busy = client.submit(hold, pure=False)
    wait_for(lambda: status(pod).get("reason") == "DeadlineExceeded")
    return _failed(busy)


def restarted_since(client: Client) -> BaseException | None:
    """A worker leaves; the next one in its container is killed for memory: two deaths, two reasons."""
    pod = _alive(client, nanny=False, resources=SMALL)
    _failed(client.submit(leave, 3, pure=False))
    wait_for(lambda: container_status(pod).get("restartCount") and client.scheduler_info()["workers"])
    note_names(client)
    error = _failed(client.submit(grow, pure=False))
    wait_for(
        lambda: container_status(pod).get("restartCount", 0) > 1 or "terminated" in container_status(pod)["state"]
    )
    return error


DEATHS: dict[str, Callable[[Client], BaseException | None]] = {
    name: globals()[name.replace("-", "_")] for name in CAUSES
}


@contextmanager
def cleared() -> Iterator[None]:
    """Nothing of other deaths before, and nothing left after."""
    _clear()
    try:
        yield
    finally:
        _clear()


def _clear() -> None:
    if not (HOME / "pid" / "kubelet.pid").exists():
        start_kubelet(build())
    for kind in ("deployments", "replicasets", "quota"):  # in this order: without a quota they make pods
        kubectl("delete", kind, "--all", "--wait=true")
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    wait_for(lambda: not _processes())
    kubectl("delete", "events", "--all")


def _processes() -> list[psutil.Process]:
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if "-default-worker-" in " ".join(each.info["cmdline"] or ())
    ]


def _is_of(process: psutil.Process, pod: str) -> bool:
    words = process.info["cmdline"] or []
    return "--name" in words and pod.startswith(words[words.index("--name") + 1])


def _ended(pod: str) -> bool:
    said = container_status(pod)
    return bool(said.get("restartCount")) or "terminated" in said.get("state", {})


def _pods(deployment_name: str) -> list[str]:
    names = kubectl("get", "pods", "-o", "name", "-l", f"worker={deployment_name}").split()
    return [each.removeprefix("pod/") for each in names]
