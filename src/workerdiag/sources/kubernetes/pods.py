"""Finds the Kubernetes cluster of a scene, and matches victims to its pods and their containers' terminations.

Pods are matched by name and address, terminations by time, with few requests however many pods exist.

The dask-kubernetes operator (2026.3.0, ``controller.py``) labels pods with ``dask.org/cluster-name``,
names workers after their deployment, and gives them the scheduler address
``tcp://CLUSTER-scheduler.NAMESPACE.svc.cluster.local:8786``. Dask Gateway
(``backends/kubernetes/controller.py``) labels pods with ``gateway.dask.org/cluster``, names workers
after their pods, and gives them the cluster as ``NAMESPACE.CLUSTER``. Dask's Helm chart labels pods with
``release``.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import product

from workerdiag.model.identity import Identity, is_ip_address
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.kubernetes.api import (
    KubernetesApi,
    mapping_at,
    mappings_at,
    parse_quantity,
    text_at,
    time_at,
)
from workerdiag.sources.machine import scheduler_ahead_s
from workerdiag.units import parse_timestamp
from workerdiag.values import evolve, field, frozen

_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)$")
_CONTAINER_PATH = re.compile(r"spec\.containers\{([\w.-]+)\}")
#: Variables that hold a worker's name, set by the operator and by Dask Gateway.
WORKER_NAME_VARIABLES = ("DASK_WORKER_NAME", "DASK_GATEWAY_WORKER_NAME")
#: All spellings of commands that run a Dask worker or scheduler.
_RUNS_DASK = re.compile(r"\bdask[-_ ](?:cuda[-_ ])?(?:worker|scheduler|spec)\b|distributed\.cli\.dask_|dask_cuda")
_DASK_VARIABLES = (*WORKER_NAME_VARIABLES, "DASK_SCHEDULER_ADDRESS")
_USUAL_NAMES = ("worker", "dask-worker", "scheduler", "dask-scheduler", "dask", "dask-container")
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
    is_deleted: bool
    #: The operator's worker group, or "".
    worker_group: str
    status: dict[str, object]
    #: The node that it is assigned to, or "".
    node: str
    addresses: frozenset[str]
    #: Whether it uses the host network, and so shares its addresses with other pods.
    shares_its_address: bool
    grace_s: float
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
    restarts: int
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
    default = text_at(mapping_at(metadata, "annotations"), "kubectl.kubernetes.io/default-container")
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


def parse_termination(terminated: Mapping[str, object], *, exit_code: int, earlier: bool = False) -> Termination:
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


def command_words(container: Mapping[str, object]) -> list[str]:
    """Return the command and arguments of a container."""
    lists = (container.get(key) for key in ("command", "args"))
    return [str(word) for each in lists if isinstance(each, list) for word in each]


def _variables(container: object) -> set[str]:
    return {text_at(each, "name") for each in mappings_at(container, "env")}


#: A container may end this many seconds before its worker's removal: the scheduler gives up a silent worker
#: after ``distributed.scheduler.worker-ttl``, 5 minutes (distributed.yaml, 2026.8.0).
SILENT_S = 330.0
#: Maximum remaining difference of a scheduler's and a node's clock after correction, in seconds.
SKEW_S = 3.0
#: Times of containers are whole seconds, rounded down.
SECOND_S = 1.0
#: Reasons of events that report the end of a pod.
END_REASONS = ("Killing", "Evicted", "Preempted", "Preempting", "TaintManagerEviction", "ScaleDown", "NodeNotReady")
#: Suffix that a deployment adds to its name for a pod: two words of the safe alphabet.
_SUFFIX = re.compile(r"-[a-z0-9]{1,10}-[a-z0-9]{5}")


@frozen(kw_only=True)
class VictimPod:
    """A victim, its pod, and the termination of its container."""

    victim: Victim
    namespace: str
    name: str
    uid: str
    #: None if the pod is gone and only its events are left.
    pod: Pod | None = None
    #: None if its container did not end, or its termination is no longer reported.
    end: Termination | None = None
    #: Whether its termination is no longer reported because the container ended again.
    is_end_expired: bool = False

    @property
    def identity(self) -> Identity:
        """The victim without its pid: the container's exit is that of its first process."""
        known = self.victim.identity
        container = Identity(container=f"{self.namespace}/{self.name}")
        return (evolve(known, pid=None) if known.worker else known).merged_with(container)


def match_pods(victims: Sequence[Victim], pods: Sequence[Pod], own: Mapping[Identity, str]) -> list[VictimPod]:
    """Return the victims whose pod is among *pods*, each with its container's termination if reported.

    *own* holds the pods that nannies report for their workers.
    """
    pairs = [
        (victim, pod)
        for victim, pod in product(victims, pods)
        if is_victims_pod(pod, victim, own.get(victim.identity))
    ]
    ends = _assign_terminations(pairs)
    found: dict[Victim, VictimPod] = {}

    def rank(pair: tuple[Victim, Pod]) -> tuple[bool, bool, bool]:
        """Return a sort key, lower for a likelier pod: it ended then, has the address, and is not a left-over."""
        victim, pod = pair
        return (victim, pod.uid) not in ends, victim.identity.host not in pod.addresses, pod.failed

    for victim, pod in sorted(pairs, key=rank):
        end = ends.get((victim, pod.uid))
        if victim not in found and (end is not None or _existed_then(pod, victim)):
            found[victim] = VictimPod(
                victim=victim,
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                pod=pod,
                end=end,
                is_end_expired=end is None and _started_after(pod, victim),
            )
    return list(found.values())


def match_deleted_pods(
    victims: Iterable[Victim],
    events: Sequence[KubernetesEvent],
    there: Iterable[Pod],
    own: Mapping[Identity, str],
    *,
    namespace: str,
) -> list[VictimPod]:
    """Return the victims whose pod is gone but has events that report its end."""
    uids = {pod.uid for pod in there}
    gone = [each for each in events if each.kind == "Pod" and each.uid not in uids]
    ending = [each for each in gone if each.reason in END_REASONS]
    found = []
    for victim in victims:
        fitting = (each for each in ending if _is_named_for(each.name, victim, own.get(victim.identity)))
        late_s = {
            each: each.last - victim.when if each.last is not None and victim.when is not None else 0.0
            for each in fitting
        }
        nearest = min(late_s, key=lambda each: abs(late_s[each]), default=None)
        if nearest is not None and -SILENT_S < late_s[nearest] < 30.0:
            found.append(VictimPod(victim=victim, namespace=namespace, name=nearest.name, uid=nearest.uid))
    return found


def is_victims_pod(pod: Pod, victim: Victim, own: str | None) -> bool:
    """Whether the victim ran in *pod*, by names and addresses."""
    if own is not None:
        return pod.name == own
    identity, named = victim.identity, pod.worker_name
    if identity.name and named and named != identity.name:
        return False
    here = identity.host in pod.addresses
    if pod.addresses and identity.host and is_ip_address(identity.host) and not here:
        return False
    if _is_named_for(pod.name, victim, None) or (identity.name and named == identity.name):
        return True
    return here and not pod.shares_its_address and bool(pod.container)


def _is_named_for(pod: str, victim: Victim, own: str | None) -> bool:
    if own is not None:
        return pod == own
    name = victim.identity.name or ""
    has_suffix = pod.startswith(name) and _SUFFIX.fullmatch(pod[len(name) :]) is not None
    return bool(name) and (pod == name or has_suffix)


def _assign_terminations(pairs: Iterable[tuple[Victim, Pod]]) -> dict[tuple[Victim, str], Termination]:
    """Assign each termination to the victim nearest in time, and one termination to each victim.

    Of equally near ones the last victim gets the last termination: earlier ones soon expire.
    """
    fitting = sorted(
        (
            (_seconds_from_end(end, victim), -(victim.when or 0.0), end.earlier, number, victim, pod, end)
            for number, (victim, pod) in enumerate(pairs)
            for end in pod.terminations
            if _may_be_victims_end(end, pod, victim)
        ),
        key=lambda each: each[:4],
    )
    ends: dict[tuple[Victim, str], Termination] = {}
    used: set[tuple[str, Termination]] = set()
    for *_, victim, pod, end in fitting:
        if (pod.uid, end) not in used and victim not in {each for each, _ in ends}:
            ends[victim, pod.uid] = end
            used.add((pod.uid, end))
    return ends


def _seconds_from_end(end: Termination, victim: Victim) -> float:
    if end.finished is None or victim.when is None:
        return 0.0
    return max(0.0, end.finished - victim.when, victim.when - (end.finished + SECOND_S))


def _may_be_victims_end(end: Termination, pod: Pod, victim: Victim) -> bool:
    if victim.when is None:
        return not end.earlier or not any(not each.earlier for each in pod.terminations)
    if end.finished is None or end.finished > victim.when + pod.grace_s + SKEW_S:
        return False
    if end.started is not None and end.started > victim.when + SKEW_S:
        return False
    next_run = _next_run_started(end, pod)
    if next_run is not None and next_run < victim.when - SKEW_S:
        return False  # the victim ran in the container's next run
    return end.finished > victim.when - SILENT_S


def _next_run_started(end: Termination, pod: Pod) -> float | None:
    if not end.earlier:
        return None
    current = next((each.started for each in pod.terminations if not each.earlier), None)
    return current if current is not None else pod.running_since


def _existed_then(pod: Pod, victim: Victim) -> bool:
    """Whether the pod existed when the victim joined and died, and had not failed long before.

    A deployment creates the next pod while the last one is terminating, with the same address on a host
    network.
    """
    if victim.since is not None and pod.created is not None and pod.created > victim.since + SKEW_S:
        return False
    if victim.when is None:
        return True
    if pod.failed and pod.changed is not None and abs(pod.changed - victim.when) > SILENT_S:
        return False
    if pod.created is not None and pod.created > victim.when:
        return False
    return not _started_after(pod, victim) or pod.restarts > 0


def _started_after(pod: Pod, victim: Victim) -> bool:
    began = pod.running_since
    if began is None:
        began = max((each.started for each in pod.terminations if each.started is not None), default=None)
    return began is not None and victim.when is not None and began > victim.when - SECOND_S


#: Valid Kubernetes names (RFC 1123); nothing else gets into a request.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SERVICE = re.compile(r"://(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)(?P<svc>\.svc\b)?")
_GATEWAY = "DASK_GATEWAY_CLUSTER_NAME"


@frozen(kw_only=True)
class KubernetesTarget:
    """The cluster and the victims to query Kubernetes about."""

    victims: tuple[Victim, ...] = ()
    #: None stands for the namespace of the credentials.
    namespace: str | None = None
    #: Label selector of the cluster's pods; "" if unknown.
    labels: str = ""
    #: The cluster's name, with which the operator's object names begin; "" if unknown.
    cluster: str = ""
    #: The pods that victims' nannies report.
    pods: dict[Identity, str] = field(factory=dict, eq=False)
    #: Seconds by which the scheduler's clock is ahead of ours.
    scheduler_ahead_s: float = 0.0
    #: The relevant time, in seconds since the epoch by the scheduler's clock.
    since: float | None = None
    until: float | None = None


def target_of(scene: Scene) -> KubernetesTarget | None:
    """Return the target of the queries, or None without a sign of Kubernetes."""
    address = _service_address(scene)
    object_ = scene.cluster if scene.cluster_is("dask_kubernetes", "KubeCluster", "HelmCluster") else None
    if object_ is None and address is None and not _ran_in_pods(scene):
        return None
    cluster, labels = _cluster_and_labels(object_, address, scene)
    namespaces = [
        getattr(object_, "namespace", None),
        *(scene.variable(each) for each in ("POD_NAMESPACE", "MY_POD_NAMESPACE")),
        (scene.variable(_GATEWAY) or "").rpartition(".")[0],
        address and address["namespace"],
    ]
    return KubernetesTarget(
        victims=scene.victims,
        namespace=next((each for each in map(name_or_none, namespaces) if each), None),
        labels=labels,
        cluster=cluster,
        pods={each.identity: pod for each in scene.victims if (pod := _own_pod(each.identity, scene.locations))},
        scheduler_ahead_s=scheduler_ahead_s(scene),
        since=scene.since,
        until=scene.until,
    )


def name_or_none(name: object) -> str | None:
    """Return *name* if it is a valid Kubernetes name, else None."""
    return name if isinstance(name, str) and _NAME.fullmatch(name) else None


def _ran_in_pods(scene: Scene) -> bool:
    """Whether the victims ran in pods; without a surviving process near them, whether this one does."""
    near = [each for each in scene.locations if each.role in ("worker", "nanny", "neighbour")]
    return any(
        each.environment.get("KUBERNETES_SERVICE_HOST") or any("kubepods" in path for path in each.cgroups.values())
        for each in near or scene.locations
    )


def _service_address(scene: Scene) -> re.Match[str] | None:
    scheduler = getattr(scene.client, "scheduler", None)
    addresses = (getattr(scheduler, "address", None), scene.variable("DASK_SCHEDULER_ADDRESS"))
    for address in addresses:
        found = _SERVICE.search(address) if isinstance(address, str) else None
        if found and (found["svc"] or found["service"].endswith("-scheduler")):
            return found
    return None


def _cluster_and_labels(object_: object, address: re.Match[str] | None, scene: Scene) -> tuple[str, str]:
    release = name_or_none(getattr(object_, "release_name", None))
    if release:
        return "", f"release={release}"
    gateway = name_or_none(scene.variable(_GATEWAY))
    if gateway:
        return "", f"gateway.dask.org/cluster={gateway.rpartition('.')[2]}"
    of_service = address["service"].removesuffix("-scheduler") if address else None
    cluster = name_or_none(getattr(object_, "name", None)) or of_service
    return (cluster, f"dask.org/cluster-name={cluster}") if cluster else ("", "")


def _own_pod(identity: Identity, places: tuple[Location, ...]) -> str | None:
    """Return the pod that the victim's nanny, or another process that speaks for it, reports."""
    place = next((each for each in places if each.is_of(identity)), None)
    if place is None:
        return None
    names = map(place.environment.get, ("POD_NAME", "MY_POD_NAME", "HOSTNAME"))
    return next((each for each in map(name_or_none, (*names, place.hostname)) if each), None)


class PodSearch:
    """The pods listed so far, matched to victims."""

    def __init__(self, api: KubernetesApi, target: KubernetesTarget) -> None:
        self._api = api
        self._target = target
        self._pods: dict[str, Pod] = {}
        self.namespace = target.namespace or api.namespace

    @property
    def pods(self) -> list[Pod]:
        """All listed pods."""
        return list(self._pods.values())

    @property
    def victims(self) -> tuple[Victim, ...]:
        """The victims, with times by the API server's clock."""
        return tuple(
            evolve(each, when=self.to_api_clock(each.when), since=self.to_api_clock(each.since))
            for each in self._target.victims
        )

    async def list_pods(self) -> None:
        """List the cluster's pods; of many, those with the victims' names or addresses and unhealthy ones.

        Raises UnansweredError if a request was not answered; the other answers are kept.
        """
        if self._target.labels and await self._add_matching_pods(labels=self._target.labels):
            return
        hosts = sorted({each.identity.host for each in self._target.victims if each.identity.host})
        # No loopback address, and none with a selector's special characters.
        addresses = [each for each in hosts if not each.startswith("127.") and not {*",=!"} & {*each}]
        requests: list[Awaitable[object]] = [
            self._add_matching_pods(fields=f"status.podIP={each}") for each in addresses
        ]
        unwell = "status.phase!=Running,status.phase!=Succeeded"
        requests.append(self._add_matching_pods(labels=self._target.labels, fields=unwell))
        requests += [self._add_pod(each) for each in self.names()]
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def names(self) -> list[str]:
        """Possible names of the victims' pods."""
        named = {name_or_none(each.identity.name) for each in self._target.victims}
        return sorted({each for each in (*named, *self._target.pods.values()) if each})

    def found(self) -> list[VictimPod]:
        """Return the victims whose pod was listed."""
        return match_pods(self.victims, self.pods, self._target.pods)

    def gone(self, found: Sequence[VictimPod], events: Sequence[KubernetesEvent]) -> list[VictimPod]:
        """Return the other victims whose pod is gone but has events."""
        known = {each.victim for each in found}
        left = [each for each in self.victims if each not in known]
        return match_deleted_pods(left, events, self.pods, self._target.pods, namespace=self.namespace)

    def to_api_clock(self, when: float | None) -> float | None:
        """Convert a scheduler's time to the API server's clock, if the two are known to differ."""
        apart_s = (self._api.ahead_s or 0.0) - self._target.scheduler_ahead_s
        return when if when is None or abs(apart_s) < 2.0 else when + apart_s  # HTTP has seconds

    def is_in_window(self, event: KubernetesEvent) -> bool:
        """Whether an event is within the relevant time."""
        since, until = self.to_api_clock(self._target.since), self.to_api_clock(self._target.until)
        last, first = event.last, event.first
        if last is None or first is None:
            return True
        return (since is None or last >= since) and (until is None or first <= until)

    def now(self) -> float:
        """Return seconds since the epoch by the API server's clock."""
        return time.time() + (self._api.ahead_s or 0.0)

    async def _add_matching_pods(self, *, labels: str = "", fields: str = "") -> bool:
        items, complete = await self._api.items(
            "pods", namespace=self.namespace, labels=labels, fields=fields, most=60
        )
        self._pods |= {pod.uid: pod for pod in map(parse_pod, items)}
        return complete

    async def _add_pod(self, name: str) -> None:
        item = await self._api.item("pods", name, namespace=self.namespace)
        if item is not None:
            pod = parse_pod(item)
            self._pods[pod.uid] = pod
