"""Converts pods, their events and nodes to evidence, for victims and for unhealthy pods.

They are formatted like ``kubectl describe`` and ``kubectl get events`` (kubectl 1.20 to 1.34): people paste that
output, so the rules match it, and live answers use the same rules. Commands, arguments and environment
variables, which may hold secrets, are left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk, MemoryReading, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.sources.kubernetes.api import SOURCE_NAME, mapping_at, mappings_at, text_at, time_at
from workerdiag.sources.kubernetes.pods import KubernetesEvent, Pod, Termination, VictimPod, parse_termination

#: Reasons of node events that report health or a kubelet's start.
_HARMLESS_REASONS = ("Starting", "Registered", "NodeHasSufficient", "NodeHasNo", "NodeAllocatable", "InvalidDisk")


def container_evidence(found: VictimPod) -> Iterator[Evidence]:
    """Yield the exit of the victim's container and its memory limit."""
    end, pod = found.end, found.pod
    # With a nanny only a kill of the container is the worker's exit: it ends all processes.
    if end is not None and (found.victim.identity.nanny is None or end.exit_code == 137):
        who, when = found.identity, end.finished
        yield ProcessExit.of_container(end.exit_code, identity=who, when=when, reporter="Kubernetes")
    if end is not None and pod is not None and end.reason == "OOMKilled" and pod.memory_limit_bytes:
        yield MemoryReading(identity=found.identity, limit_bytes=pod.memory_limit_bytes, when=end.finished)
    if pod is not None and found.is_end_expired:
        source, remedy = f"{SOURCE_NAME} container status", f"{logs_command(pod)} --previous"
        detail = f"{pod.container_name} of {pod.name} was started again since: only its last end is kept"
        yield Gap(source=source, reason="expired", detail=detail, remedy=remedy)
    elif pod is not None and pod.container_status:
        yield Inspected(identity=found.identity)


def pod_evidence(
    found: VictimPod, among: Sequence[VictimPod], listed: Sequence[KubernetesEvent] | None, *, now: float
) -> Iterator[Evidence]:
    """Yield the victim's pod as kubectl describes it, with the *listed* events of this death.

    *among* has all victims that were found; *now* is by the API server's clock.
    """
    rivals = [each for each in among if each.uid == found.uid]
    own = (each for each in listed or () if _is_event_of_pod(each, found))
    mine = [each for each in own if _nearest_victim(each, rivals) is found]
    description = "" if found.pod is None else describe_pod(found.pod, found.end)
    of = f"  # {found.victim.identity.worker}" if len(rivals) > 1 else ""
    origin = f"kubectl -n {found.namespace} describe pod {found.name}{of}"
    yield from text_chunks(origin, description + describe_events(mine, now=now), found.identity)
    if listed:
        yield Inspected(identity=found.identity)


def describe_node_events(events: Sequence[KubernetesEvent], found: VictimPod, *, now: float) -> str:
    """Return a node's events that may concern this death, as ``kubectl get events`` prints them."""
    return describe_events((each for each in events if _may_concern(each, found)), now=now)


def text_chunks(origin: str, text: str, identity: Identity) -> Iterator[LogChunk]:
    """Yield one Kubernetes text, unless it is empty."""
    if text:
        yield LogChunk(origin=origin, data=text.encode(), stream="kubernetes", identity=identity)


def logs_command(pod: Pod) -> str:
    """Return the command for the log of the container that runs Dask."""
    return shlex.join(["kubectl", "-n", pod.namespace, "logs", pod.name, "-c", pod.container_name])


def pod_identity(pod: Pod) -> Identity:
    """Return the identity of a pod without a known worker."""
    return Identity(container=f"{pod.namespace}/{pod.name}")


def log_identity(found: VictimPod) -> Identity:
    """Return the identity for a container's log: the victim, or the whole container if it still runs."""
    known = found.identity
    of_container = Identity(nanny=known.nanny, host=known.host, container=known.container)
    return known if found.end is not None else of_container


def _is_event_of_pod(event: KubernetesEvent, found: VictimPod) -> bool:
    if (event.kind, event.name) != ("Pod", found.name):
        return False
    if event.uid and found.uid and event.uid != found.uid:
        return False
    container = found.pod.container_name if found.pod is not None else ""
    return not container or event.container in ("", container)


def _nearest_victim(event: KubernetesEvent, rivals: Sequence[VictimPod]) -> VictimPod:
    if event.last is None:
        return rivals[0]
    last = event.last
    return min(rivals, key=lambda each: abs(last - each.victim.when) if each.victim.when else 0.0)


def _may_concern(event: KubernetesEvent, found: VictimPod) -> bool:
    """Whether a node's event may concern this death; an OOM kill only at the same moment."""
    if event.reason not in ("SystemOOM", "OOMKilling"):
        return not event.reason.startswith(_HARMLESS_REASONS)
    when = found.end.finished if found.end is not None else found.victim.when
    return when is None or event.last is None or abs(event.last - when) <= 5.0


def unhealthy_pods(pods: Iterable[Pod], *, since: float | None) -> list[Pod]:
    """Return the latest pod with each kind of failure, at most three, without those healthy after *since*."""
    found: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda each: -(each.created or 0.0)):
        if trouble := pod.trouble(since=since):
            found.setdefault(trouble, pod)
    return list(found.values())[:3]


def unhealthy_evidence(pods: Iterable[Pod], listed: Sequence[KubernetesEvent], *, now: float) -> Iterator[Evidence]:
    """Yield unhealthy *pods* as kubectl describes them, with their events."""
    for pod in pods:
        events = describe_events((each for each in listed if each.uid == pod.uid), now=now)
        origin = f"kubectl -n {pod.namespace} describe pod {pod.name}"
        yield from text_chunks(origin, describe_pod(pod, None, all_ends=True) + events, pod_identity(pod))


def owner_evidence(
    cluster: str, pods: Iterable[Pod], listed: Iterable[KubernetesEvent], *, namespace: str, now: float
) -> Iterator[Evidence]:
    """Yield the events of the deployments, replica sets and worker groups that own a cluster's pods.

    *cluster* is its name in the operator; if empty, nothing is yielded.
    """
    groups = {pod.worker_group for pod in pods} - {""}
    owners = (f"{cluster}-scheduler", f"{cluster}-default", *groups)
    names, beginnings = {cluster, *owners}, tuple(f"{owner}-" for owner in owners)
    others = (each for each in listed if cluster and each.kind != "Pod")
    mine = [each for each in others if each.name in names or each.name.startswith(beginnings)]
    identity = Identity(container=f"{namespace}/{cluster}")  # the pods may not exist
    yield from text_chunks(f"kubectl -n {namespace} get events", describe_events(mine, now=now), identity)


#: A container's message, which may hold the end of its log, is cut to this.
_MESSAGE_CHARS = 1000
#: Reasons that add nothing to their condition.
_PLAIN_REASONS = ("ContainersNotReady", "ContainersNotInitialized", "PodCompleted", "PodFailed")

#: Taints of Kubernetes, the cluster autoscaler, Karpenter, the AWS node termination handler, GKE and AKS.
_TAINTS_OF_TROUBLE = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupt",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/",
)


def describe_pod(pod: Pod, end: Termination | None, *, all_ends: bool = False) -> str:
    """Return the pod and its container that runs Dask, as ``kubectl describe pod`` prints them.

    It describes the termination *end*, or with *all_ends* all terminations and failed init containers.
    """
    return "\n".join(_pod_lines(pod, end, all_ends=all_ends)) + "\n"


def describe_events(events: Iterable[KubernetesEvent], *, now: float) -> str:
    """Return the events as ``kubectl get events`` prints them, the oldest first; empty without any."""
    lines = []
    for event in sorted(events, key=lambda each: each.last or 0.0):
        age = _format_age(now - event.last) if event.last is not None else "<unknown>"
        about = f"{event.kind.lower()}/{event.name}"
        message = " ".join(event.message.split())
        lines.append(f"{age:<11} {event.type:<9} {event.reason:<25} {about:<12} {message}\n")
    head = "LAST SEEN   TYPE      REASON                    OBJECT       MESSAGE\n"
    return "".join((head, *lines)) if lines else ""


def describe_node(node: dict[str, object], *, until: float | None) -> str:
    """Return a node's bad conditions and taints up to *until*, as ``kubectl describe node`` prints them."""
    conditions = mappings_at(mapping_at(node, "status"), "conditions")
    bad = [each for each in conditions if _is_bad_condition(each, until)]
    taints = mappings_at(mapping_at(node, "spec"), "taints")
    taints = [each for each in taints if _is_trouble_taint(each, until)]
    if not bad and not taints:
        return ""
    lines = [f"Name:               {text_at(mapping_at(node, 'metadata'), 'name')}"]
    lines += [f"Taints:             {_format_taint(each)}" for each in taints]
    lines += ["Conditions:", "  Type             Status  LastHeartbeatTime   LastTransitionTime   Reason   Message"]
    for each in bad:
        times = [_format_time(time_at(each, key)) for key in ("lastHeartbeatTime", "lastTransitionTime")]
        values = [text_at(each, key) for key in ("type", "status")]
        lines.append("   ".join(["", *values, *times, text_at(each, "reason"), text_at(each, "message")]))
    return "\n".join(lines) + "\n"


def _pod_lines(pod: Pod, end: Termination | None, *, all_ends: bool) -> Iterator[str]:
    status = pod.status
    yield f"Name:         {pod.name}"
    yield f"Namespace:    {pod.namespace}"
    yield f"Node:         {pod.node or '<none>'}"
    yield f"Start Time:   {_format_time(time_at(status, 'startTime'))}"
    phase = text_at(status, "phase") or "Unknown"
    yield f"Status:       {'Terminating' if pod.is_deleted else phase}"
    for key in ("reason", "message"):
        if value := text_at(status, key):
            yield f"{key.capitalize() + ':':<13} {value}"
    yield f"IP:           {text_at(status, 'podIP')}"
    if all_ends:
        yield from _init_container_lines(pod)
    yield "Containers:"
    yield from _container_lines(pod, end, all_ends=all_ends)
    yield from _condition_lines(mappings_at(status, "conditions"))


def _init_container_lines(pod: Pod) -> Iterator[str]:
    failing = [
        each
        for each in mappings_at(pod.status, "initContainerStatuses")
        if mapping_at(each, "state", "waiting") or mapping_at(each, "state", "terminated").get("exitCode")
    ]
    if failing:
        yield "Init Containers:"
    for each in failing:
        yield f"  {text_at(each, 'name')}:"
        yield f"    Image:          {text_at(each, 'image')}"
        yield from _both_states(each)


def _container_lines(pod: Pod, end: Termination | None, *, all_ends: bool) -> Iterator[str]:
    status = pod.container_status
    yield f"  {pod.container_name or '<unknown>'}:"
    yield f"    Image:          {text_at(status, 'image') or text_at(pod.container, 'image')}"
    if all_ends:
        yield from _both_states(status)
    elif end is None:
        yield from _state_lines("State", {"running": mapping_at(status, "state", "running")})
    else:
        yield from _termination_lines("Last State" if end.earlier else "State", end)
    yield f"    Restart Count:  {status.get('restartCount', 0)}"
    for title, key in (("Limits", "limits"), ("Requests", "requests")):
        amounts = mapping_at(pod.container, "resources", key)
        if amounts:
            yield f"    {title}:"
            yield from (f"      {name}:  {amount}" for name, amount in sorted(amounts.items()))


def _both_states(status: dict[str, object]) -> Iterator[str]:
    yield from _state_lines("State", mapping_at(status, "state"))
    yield from _state_lines("Last State", mapping_at(status, "lastState"))


def _state_lines(title: str, state: Mapping[str, object]) -> Iterator[str]:
    if waiting := mapping_at(state, "waiting"):
        yield f"    {title + ':':<15} Waiting"
        yield f"      Reason:       {text_at(waiting, 'reason')}"
        if message := text_at(waiting, "message"):
            yield f"      Message:      {message[-_MESSAGE_CHARS:]}"
    elif running := mapping_at(state, "running"):
        yield f"    {title + ':':<15} Running"
        yield f"      Started:      {_format_time(time_at(running, 'startedAt'))}"
    elif terminated := mapping_at(state, "terminated"):
        code = terminated.get("exitCode")
        end = parse_termination(terminated, exit_code=code if isinstance(code, int) else 0)
        yield from _termination_lines(title, end)


def _termination_lines(title: str, end: Termination) -> Iterator[str]:
    yield f"    {title + ':':<15} Terminated"
    yield f"      Reason:       {end.reason}"
    if end.message:
        yield f"      Message:      {end.message[-_MESSAGE_CHARS:]}"
    yield f"      Exit Code:    {end.exit_code}"
    yield f"      Started:      {_format_time(end.started)}"
    yield f"      Finished:     {_format_time(end.finished)}"


def _condition_lines(conditions: list[dict[str, object]]) -> Iterator[str]:
    """Yield the table of conditions, then the reasons that it omits, as in ``kubectl get pod -o yaml``."""
    if conditions:
        yield "Conditions:"
        yield "  Type              Status"
    for each in conditions:
        yield f"  {text_at(each, 'type'):<17} {text_at(each, 'status')} "
    for each in conditions:
        disrupted = text_at(each, "type") == "DisruptionTarget"
        is_plain = text_at(each, "reason") in ("", *_PLAIN_REASONS)
        if (text_at(each, "status") == "True") == disrupted and not is_plain:
            yield from (f"    {key}: {text_at(each, key)}" for key in ("message", "reason", "type"))


def _is_bad_condition(condition: dict[str, object], until: float | None) -> bool:
    is_true = text_at(condition, "status") == "True"
    bad = not is_true if text_at(condition, "type") == "Ready" else is_true
    return bad and _began_by(time_at(condition, "lastTransitionTime"), until)


def _is_trouble_taint(taint: dict[str, object], until: float | None) -> bool:
    """Whether a taint marks an unhealthy or departing node; others reserve nodes for some pods."""
    is_trouble = text_at(taint, "key").startswith(_TAINTS_OF_TROUBLE)
    return is_trouble and _began_by(time_at(taint, "timeAdded"), until)


def _began_by(came: float | None, until: float | None) -> bool:
    return came is None or until is None or came <= until


def _format_taint(taint: dict[str, object]) -> str:
    key, value = text_at(taint, "key"), text_at(taint, "value")
    return f"{f'{key}={value}' if value else key}:{text_at(taint, 'effect')}"


def _format_time(when: float | None) -> str:
    if when is None:
        return "<unknown>"
    return datetime.fromtimestamp(when, tz=UTC).strftime("%a, %d %b %Y %H:%M:%S %z")


def _format_age(elapsed_s: float) -> str:
    for least_s, size_s, unit in ((86400, 86400, "d"), (3600, 3600, "h"), (120, 60, "m")):
        if elapsed_s >= least_s:
            return f"{int(elapsed_s // size_s)}{unit}"
    return f"{max(0, int(elapsed_s))}s"
