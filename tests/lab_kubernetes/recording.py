"""What the API server says after a death, and who died by Dask's account: for tests without a cluster."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import asdict, evolve
from distributed import Client

from workerdiag.model.identity import Identity
from workerdiag.model.scene import Victim
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.exception import exception_facts
from workerdiag.sources.scene import find_victims

from .node import ask, kubectl

#: Says nothing that a diagnosis could use, and most of the bytes.
_BULK = ("managedFields", "selfLink")
#: Of the machine that is recorded on, and nobody's business.
_OWN = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "volumes", "volumeMounts", "images")
#: Worker address to name, of workers of this process's clusters.
_NAMES: dict[str, str] = {}
_ADDRESS = re.compile(r"\b(?!10\.88\.0\.|127\.|10\.96\.)\d{1,3}(?:\.\d{1,3}){3}\b")


def note_names(client: Client) -> None:
    """Note how workers are named while they live: pods that share the node's address are told apart by that alone."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    _NAMES.update({address: str(each["name"]) for address, each in workers.items()})


def who_died(client: Client, error: BaseException | None) -> tuple[Victim, ...]:
    """The workers that are gone, as workerdiag learns of them from what the client caught and from the scheduler."""
    facts = [] if error is None else exception_facts(error)
    victims = find_victims([*facts, *ClusterSource(client).collect(budget_s=20)])
    return tuple(
        evolve(each, identity=each.identity.merged_with(Identity(name=_NAMES.get(each.identity.worker or ""))))
        for each in victims
    )


def record(path: Path, *, name: str, victims: Iterable[Victim]) -> None:
    """Write everything of the namespace to *path*: pods, events, nodes, logs."""
    pods = _items("/api/v1/namespaces/default/pods")
    content = {
        "about": f"{name}: bodies of kube-apiserver 1.20.2, kubelet 1.20.2 and containerd, without managedFields",
        "victims": [asdict(each) for each in victims],
        "version": json.loads(ask("/version")),
        "pods": pods,
        "events": _items("/api/v1/namespaces/default/events"),
        "nodes": _items("/api/v1/nodes"),
        "logs": {key: text for pod in pods for key, text in _logs(pod)},
    }
    path.write_text(_anonymous(json.dumps(_without_own(content), indent=1, sort_keys=True)) + "\n")


def _items(path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(ask(path))["items"]
    for item in items:
        for key in _BULK:
            item["metadata"].pop(key, None)
    return items


def _without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_own(each) for key, each in value.items() if key not in _OWN}
    return [_without_own(each) for each in value] if isinstance(value, list) else value


def _anonymous(text: str) -> str:
    """Without the folders of this machine, and without addresses outside the lab."""
    for folder, shown in ((sys.prefix, "/opt/venv"), (sys.base_prefix, "/opt/python")):
        text = text.replace(folder, shown)
    return _ADDRESS.sub("192.0.2.53", text)


def _logs(pod: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """By ``pod/container`` and ``pod/container/previous``."""
    name = pod["metadata"]["name"]
    for container in pod["spec"]["containers"]:
        for more, suffix in (([], ""), (["--previous"], "/previous")):
            said = kubectl("logs", name, "-c", container["name"], "--tail=200", *more, check=False)
            if said:
                yield f"{name}/{container['name']}{suffix}", said
