"""Evidence from the Kubernetes API about dead workers' pods, containers and nodes, the most short-lived first."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import error_text
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.kubernetes import kubectl_text
from workerdiag.sources.kubernetes.api import SOURCE_NAME, KubernetesApi, UnansweredError
from workerdiag.sources.kubernetes.pods import (
    END_REASONS,
    KubernetesEvent,
    KubernetesTarget,
    Pod,
    PodSearch,
    VictimPod,
    name_or_none,
    parse_event,
    target_of,
)


class KubernetesSource:
    """Queries the API server about the victims' pods, their events, nodes and logs; changes nothing."""

    name: ClassVar[str] = SOURCE_NAME
    terms: ClassVar[Terms] = Terms(
        lasts_s=300.0,
        permission="get and list pods, events; get pods/log, nodes",
        extra="kubernetes",
        cost="five to thirty small requests to the API server, four at a time, at most 4 MiB",
    )

    def __init__(self, target: KubernetesTarget) -> None:
        self._target = target

    @classmethod
    def of(cls, scene: Scene) -> KubernetesSource | None:
        """Return the source for *scene*; None without a sign of Kubernetes."""
        target = target_of(scene)
        return None if target is None else cls(target)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the API server's evidence, pods first, within *budget_s* seconds."""
        deadline, asking = Deadline.after(0.95 * budget_s), Deadline.of_budget(budget_s)
        found: list[Evidence] = []
        try:
            # An abandoned DNS look-up may hang for long.
            call_in_time("workerdiag-kubernetes", partial(self._run_session, found, asking), deadline)
        except TimeoutError:
            detail = "the API server did not answer in time"
            found.append(_source_gap("timed-out", detail, "kubectl get --raw /readyz"))
        except CALL_FAILURES as problem:
            detail = f"the answers could not be read: {error_text(problem)}"[:500]
            found.append(_source_gap("malformed", detail, "kubectl version"))
        yield from tuple(found)

    def _run_session(self, found: list[Evidence], deadline: Deadline) -> None:
        async def ask() -> None:
            async with asyncio.timeout(deadline.left_s):
                await KubernetesSession(self._target, found, deadline).ask_all()

        try:
            asyncio.run(ask())
        except TimeoutError:
            detail = "the time was up before all requests were sent"
            found.append(_source_gap("timed-out", detail, "give it more time: timeout='60s'"))


def _source_gap(reason: GapReason, detail: str, remedy: str) -> Gap:
    return Gap(source=SOURCE_NAME, reason=reason, detail=detail, remedy=remedy)


#: Wait in seconds for a status: the kubelet checks its containers once a second and then reports to the API.
_KUBELET_S = 1.5


class KubernetesSession:
    """One round of requests; evidence is added to *found* at once, so none is lost at the deadline."""

    def __init__(self, target: KubernetesTarget, found: list[Evidence], deadline: Deadline) -> None:
        self._target = target
        self._evidence = found
        self._deadline = deadline
        self._api = KubernetesApi(found.append, deadline)
        self._search: PodSearch

    async def ask_all(self) -> None:
        """Send every request, until the time is up."""
        try:
            await self._api.open()
        except UnansweredError:
            return  # the gap is noted
        self._search = PodSearch(self._api, self._target)
        pods_known = await self._is_answered(self._search.list_pods())
        found = self._search.found()
        if any(self._is_fresh(each) for each in found) and self._deadline.left_s > 2 * _KUBELET_S:
            await asyncio.sleep(_KUBELET_S)
            await self._is_answered(self._search.list_pods())
            found = self._search.found()
        for each in found:
            self._evidence += kubectl_text.container_evidence(each)
        listed: list[KubernetesEvent] | None = None
        try:
            listed = await self._events()
        finally:  # even when the time is up
            found += self._search.gone(found, listed or ())
            for each in found:
                self._evidence += kubectl_text.pod_evidence(each, found, listed, now=self._search.now())
        self._emit_missing_pods(found, listed, complete=pods_known and listed is not None)
        nodes = self._nodes(found, listed or ()).items()
        of_node = (self._ask_conditions, self._ask_node_events)
        await asyncio.gather(
            *(self._is_answered(self._ask_log(each)) for each in found),
            *(self._is_answered(self._ask_log_of_unhealthy(each)) for each in self._unhealthy()),
            *(self._is_answered(ask(*node)) for node in nodes for ask in of_node),
        )

    async def _is_answered(self, question: Awaitable[None]) -> bool:
        try:
            await question
        except UnansweredError:
            return False
        return True

    async def _events(self) -> list[KubernetesEvent] | None:
        """Return the namespace's events, or the relevant ones of many; None without an answer."""
        try:
            items, complete = await self._list_events()
            if not complete:
                items += await self._events_in_question()
        except UnansweredError:
            return None
        unique = {event.key: event for event in map(parse_event, items)}
        return [each for each in unique.values() if self._search.is_in_window(each)]

    async def _list_events(self, fields: str = "", namespace: str = "") -> tuple[list[dict[str, object]], bool]:
        namespace = namespace or self._search.namespace
        return await self._api.items("events", namespace=namespace, fields=fields, most=300)

    async def _events_in_question(self) -> list[dict[str, object]]:
        found = {each.name for each in self._search.found()}
        names = sorted({*self._search.names(), *found, *(each.name for each in self._unhealthy())})
        fields = [f"involvedObject.kind=Pod,involvedObject.name={each}" for each in names]
        fields += [f"reason={each}" for each in (*END_REASONS, "FailedCreate")]
        answers = await asyncio.gather(*map(self._list_events, fields), return_exceptions=True)
        return [item for answer in answers if not isinstance(answer, BaseException) for item in answer[0]]

    def _nodes(self, found: Iterable[VictimPod], listed: Sequence[KubernetesEvent]) -> dict[str, list[VictimPod]]:
        nodes: dict[str, list[VictimPod]] = {}
        for each in found:
            events = (event.node for event in listed if event.uid == each.uid)
            name = each.pod.node if each.pod is not None else next(filter(None, events), "")
            if name_or_none(name) and (name in nodes or len(nodes) < 3):
                nodes.setdefault(name, []).append(each)
        return nodes

    async def _ask_conditions(self, name: str, found: Sequence[VictimPod]) -> None:
        node = await self._api.item("nodes", name)
        description = f'Error from server (NotFound): nodes "{name}" not found\n'
        if node is not None:
            description = kubectl_text.describe_node(node, until=self._search.to_api_clock(self._target.until))
        for each in found:
            self._evidence += kubectl_text.text_chunks(f"kubectl describe node {name}", description, each.identity)
            self._evidence.append(Inspected(identity=each.identity))

    async def _ask_node_events(self, name: str, found: Sequence[VictimPod]) -> None:
        fields = f"involvedObject.kind=Node,involvedObject.name={name}"
        items, _ = await self._list_events(fields, "default")
        events = [each for each in map(parse_event, items) if self._search.is_in_window(each)]
        for each in found:
            description = kubectl_text.describe_node_events(events, each, now=self._search.now())
            origin = f"kubectl get events --field-selector {fields}"
            self._evidence += kubectl_text.text_chunks(origin, description, each.identity)

    async def _ask_log(self, found: VictimPod) -> None:
        pod, end = found.pod, found.end
        if pod is None or found.is_end_expired or (end is None and pod.running_since is None):
            return
        params = {}
        if end is None and found.victim.when is not None:
            params["sinceSeconds"] = str(max(1, int(self._search.now() - found.victim.when + 300.0)))
        previous = end is not None and end.earlier
        await self._read_log(pod, kubectl_text.log_identity(found), params, previous=previous)

    async def _ask_log_of_unhealthy(self, pod: Pod) -> None:
        if pod.terminations:
            identity = kubectl_text.pod_identity(pod)
            await self._read_log(pod, identity, {}, previous=pod.running_since is not None)

    async def _read_log(self, pod: Pod, identity: Identity, params: dict[str, str], *, previous: bool) -> None:
        if not pod.container_name:
            return
        params |= {"container": pod.container_name, "tailLines": "300"}
        params |= {"previous": "true"} if previous else {}
        data = await self._api.log(pod.name, namespace=pod.namespace, params=params, most_bytes=256 * 1024)
        if data:
            origin = kubectl_text.logs_command(pod) + (" --previous" if previous else "")
            self._evidence.append(LogChunk(origin=origin, data=data, identity=identity))

    def _emit_missing_pods(
        self, found: Sequence[VictimPod], listed: Sequence[KubernetesEvent] | None, *, complete: bool
    ) -> None:
        """Emit the unhealthy pods if there are no victims, else gaps for the victims without a pod."""
        if not self._target.victims:
            self._emit_unhealthy(listed or ())
            return
        with_pod = {each.victim for each in found if each.pod is not None}
        without = [each for each in self._search.victims if each not in with_pod]
        if without and complete:
            named = ", ".join(each.identity.name or each.identity.worker or "?" for each in without[:3])
            where = f"in namespace {self._search.namespace}"
            detail = f"no pod {where} belongs to {named}: it is gone, and its status with it"
            now = self._search.now()
            old = all(each.when is not None and now - each.when > 3600.0 for each in without)  # --event-ttl
            remedy = f"kubectl -n {shlex.quote(self._search.namespace)} get events --sort-by=.lastTimestamp"
            self._pods_gap("expired", detail, "keep the pods' logs and events elsewhere" if old else remedy)

    def _emit_unhealthy(self, listed: Sequence[KubernetesEvent]) -> None:
        if not self._target.labels:
            detail = "no worker is known to have died, and it is unknown which pods belong to this cluster"
            remedy = f"kubectl -n {shlex.quote(self._search.namespace)} get pods"
            self._pods_gap("never-recorded", detail, remedy)
            return
        pods, now = self._search.pods, self._search.now()
        self._evidence += kubectl_text.unhealthy_evidence(self._unhealthy(), listed, now=now)
        cluster, namespace = self._target.cluster, self._search.namespace
        self._evidence += kubectl_text.owner_evidence(cluster, pods, listed, namespace=namespace, now=now)

    def _unhealthy(self) -> list[Pod]:
        if self._target.victims or not self._target.labels:
            return []
        return kubectl_text.unhealthy_pods(self._search.pods, since=self._search.to_api_clock(self._target.since))

    def _pods_gap(self, reason: GapReason, detail: str, remedy: str) -> None:
        self._evidence.append(Gap(source=f"{SOURCE_NAME} pods", reason=reason, detail=detail, remedy=remedy))

    def _is_fresh(self, found: VictimPod) -> bool:
        when = found.victim.when
        return found.end is None and when is not None and self._search.now() - when < 10.0
