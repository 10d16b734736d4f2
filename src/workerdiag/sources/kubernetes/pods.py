"""Pods with the container that runs Dask, and events, parsed from the API server's JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from workerdiag.sources.kubernetes.fields import (
    mapping_at,
    mappings_at,
    parse_quantity,
    text_at,
    time_at,
)
from workerdiag.units import parse_timestamp

_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)$")
_CONTAINER_PATH = re.compile(r"spec\.containers\{([\w.-]+)\}")
#: Variables that hold a worker's name, set by the operator and by Dask Gateway.
WORKER_NAME_VARIABLES = ("DASK_WORKER_NAME", "DASK_GATEWAY_WORKER_NAME")
#: All spellings of commands that run a Dask worker or scheduler.
_RUNS_DASK = re.compile(
    r"\bdask[-_ ](?:cuda[-_ ])?(?:worker|scheduler|spec)\b|distributed\.cli\.dask_|dask_cuda"
)
_DASK_VARIABLES = (*WORKER_NAME_VARIABLES, "DASK_SCHEDULER_ADDRESS")
_USUAL_NAMES = ("worker", "dask-worker", "scheduler", "dask-scheduler", "dask", "dask-container")
#: Annotation that names kubectl's default container (Kubernetes documentation, "Well-Known Labels").
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
#: Default seconds between SIGTERM and SIGKILL (core/v1).
_GRACE_S = 30.0


@frozen(kw_only=True)
class KubernetesEvent:
    """An event that a component of Kubernetes recorded about an object."""

    #: ``Normal`` or ``Warning``.
    type: str
    #: What happened, in a word and in full.
    reason: str
    message: str
    #: The object.
    kind: str
    name: str
    uid: str
    #: The container that the event is about, or "".
    container: str
    #: The node in a pod's event: the kubelet's own, or the one that the pod was assigned to.
    node: str
    #: Uid and name of the event itself, which are unique.
    key: tuple[str, str]
    #: First and last occurrence, in seconds since the epoch.
    first: float | None
    last: float | None


def parse_event(raw: Mapping[str, object]) -> KubernetesEvent:
    """Parse an event of the API server."""
    metadata, about = mapping_at(raw, "metadata"), mapping_at(raw, "involvedObject")
    message = text_at(raw, "message")
    assigned = _ASSIGNED.match(message)
    container = _CONTAINER_PATH.fullmatch(text_at(about, "fieldPath"))
    at = text_at(raw, "eventTime")
    seen = text_at(mapping_at(raw, "series"), "lastObservedTime"), text_at(raw, "lastTimestamp")
    last = _first_time((*seen, at, text_at(metadata, "creationTimestamp")))
    first = _first_time((text_at(raw, "firstTimestamp"), at))
    return KubernetesEvent(
        type=text_at(raw, "type"),
        reason=text_at(raw, "reason"),
        message=message,
        kind=text_at(about, "kind"),
        name=text_at(about, "name"),
        uid=text_at(about, "uid"),
        container=container[1] if container else "",
        node=assigned[1] if assigned else text_at(mapping_at(raw, "source"), "host"),
        key=(text_at(metadata, "uid"), text_at(metadata, "name")),
        first=last if first is None else first,
        last=last,
    )


def _first_time(stamps: Iterable[str]) -> float | None:
    return next((when for each in stamps if (when := parse_timestamp(each)) is not None), None)


@frozen(kw_only=True)
class Termination:
    """The end of one run of a container."""

    #: The kubelet's reason, such as ``OOMKilled`` or ``Error``.
    reason: str
    #: The container's termination message; usually empty.
    message: str
    exit_code: int
    #: Seconds since the epoch, without fractions.
    started: float | None
    finished: float | None
    #: Whether the container has restarted since.
    earlier: bool = False


@frozen(kw_only=True)
class Pod:
    """A pod. Its container here is the one that runs Dask; times are in seconds since the epoch."""

    name: str
    namespace: str
    #: Distinguishes pods of the same name.
    uid: str
    created: float | None
    #: Whether its deletion has begun.
    is_deleted: bool
    #: The operator's worker group, or "".
    worker_group: str
    #: The pod's ``status`` in the API.
    status: dict[str, object]
    #: The node that it is assigned to, or "".
    node: str
    addresses: frozenset[str]
    #: Whether it uses the host network, and so shares its addresses with other pods.
    shares_its_address: bool
    #: Seconds between SIGTERM and SIGKILL.
    grace_s: float
    #: The name of its worker; "" if unknown.
    worker_name: str
    #: Specification and name of the container; empty if it is unclear which one runs Dask.
    container: dict[str, object]
    container_name: str
    #: The container's status; empty before it is created.
    container_status: dict[str, object]
    #: When the container started, if it is running.
    running_since: float | None
    #: The terminations that the API still reports: the last one, and the one before a restart.
    terminations: tuple[Termination, ...]
    #: Number of restarts of the container.
    restarts: int
    #: Memory limit of the container; None without one.
    memory_limit_bytes: int | None

    @property
    def failed(self) -> bool:
        """Whether the pod has failed for good and is only left over."""
        return self.status.get("phase") == "Failed"

    @property
    def changed(self) -> float | None:
        """The time of the last change in its status, or None."""
        times = [time_at(each, "lastTransitionTime") for each in mappings_at(self.status, "conditions")]
        times += [each.finished for each in self.terminations]
        return max((each for each in times if each is not None), default=None)

    def trouble(self, *, since: float | None) -> str:
        """Return the reason why it is unhealthy; "" if it is healthy, or was restarted before *since*."""
        if self.failed:
            return text_at(self.status, "reason") or "Failed"
        for key in ("containerStatuses", "initContainerStatuses"):
            for each in mappings_at(self.status, key):
                waiting = text_at(mapping_at(each, "state", "waiting"), "reason")
                if waiting not in ("", "ContainerCreating", "PodInitializing"):
                    return waiting
        for end in self.terminations:
            if end.exit_code and (since is None or end.finished is None or end.finished >= since):
                return end.reason or "Error"
        return "Pending" if self.status.get("phase") in ("Pending", "Unknown") else ""


def parse_pod(raw: Mapping[str, object]) -> Pod:
    """Parse a pod of the API server."""
    metadata, spec, status = (mapping_at(raw, key) for key in ("metadata", "spec", "status"))
    name, labels = text_at(metadata, "name"), mapping_at(metadata, "labels")
    default = text_at(mapping_at(metadata, "annotations"), _DEFAULT_CONTAINER)
    container = dask_container(mappings_at(spec, "containers"), default=default)
    container_name = text_at(container, "name")
    statuses = (each for each in mappings_at(status, "containerStatuses") if container_name)
    container_status = next((each for each in statuses if text_at(each, "name") == container_name), {})
    addresses = {text_at(status, "podIP"), *(text_at(each, "ip") for each in mappings_at(status, "podIPs"))}
    grace, restarts = spec.get("terminationGracePeriodSeconds"), container_status.get("restartCount")
    return Pod(
        name=name,
        namespace=text_at(metadata, "namespace"),
        uid=text_at(metadata, "uid"),
        created=time_at(metadata, "creationTimestamp"),
        is_deleted=bool(text_at(metadata, "deletionTimestamp")),
        worker_group=text_at(labels, "dask.org/workergroup-name"),
        status=status,
        node=text_at(spec, "nodeName"),
        addresses=frozenset(addresses - {""}),
        shares_its_address=spec.get("hostNetwork") is True,
        grace_s=float(grace) if isinstance(grace, int) else _GRACE_S,
        worker_name=_worker_name(container, name) or text_at(labels, "dask.org/worker-name"),
        container=container,
        container_name=container_name,
        container_status=container_status,
        running_since=time_at(mapping_at(container_status, "state", "running"), "startedAt"),
        terminations=tuple(_terminations(container_status)),
        restarts=restarts if isinstance(restarts, int) else 0,
        memory_limit_bytes=parse_quantity(mapping_at(container, "resources", "limits").get("memory")),
    )


def parse_termination(
    terminated: Mapping[str, object], *, exit_code: int, earlier: bool = False
) -> Termination:
    """Parse the termination of a container."""
    return Termination(
        reason=text_at(terminated, "reason"),
        message=text_at(terminated, "message"),
        exit_code=exit_code,
        started=time_at(terminated, "startedAt"),
        finished=time_at(terminated, "finishedAt"),
        earlier=earlier,
    )


def _worker_name(container: Mapping[str, object], pod: str) -> str:
    words = command_words(container)
    given = words[words.index("--name") + 1 : words.index("--name") + 2] if "--name" in words else []
    if given and "$" not in given[0]:
        return given[0]
    for variable in mappings_at(container, "env"):
        if text_at(variable, "name") in WORKER_NAME_VARIABLES:
            path = text_at(mapping_at(variable, "valueFrom", "fieldRef"), "fieldPath")
            return pod if path == "metadata.name" else text_at(variable, "value")
    return ""


def _terminations(container_status: Mapping[str, object]) -> Iterator[Termination]:
    for key in ("state", "lastState"):
        terminated = mapping_at(container_status, key, "terminated")
        code = terminated.get("exitCode")
        if isinstance(code, int) and not isinstance(code, bool):
            yield parse_termination(terminated, exit_code=code, earlier=key == "lastState")


def dask_container(containers: Sequence[dict[str, object]], *, default: str) -> dict[str, object]:
    """Return the container that runs Dask, by its command, variables or name, else *default*; empty if unclear."""
    choices = (
        [each for each in containers if _RUNS_DASK.search(" ".join(command_words(each)))],
        [each for each in containers if _variables(each).intersection(_DASK_VARIABLES)],
        [each for each in containers if text_at(each, "name") in _USUAL_NAMES],
        [each for each in containers if text_at(each, "name") == default],
        containers,
    )
    first = next((found for found in choices if found), [])
    return first[0] if len(first) == 1 else {}


def command_words(container: object) -> list[str]:
    """Return the command and arguments of a container."""
    lists = [container.get(key) for key in ("command", "args")] if isinstance(container, dict) else []
    return [str(word) for each in lists if isinstance(each, list) for word in each]


def _variables(container: object) -> set[str]:
    return {text_at(each, "name") for each in mappings_at(container, "env")}
