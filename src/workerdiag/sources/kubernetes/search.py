"""
Finding the pods of the dead: few questions, whether the cluster has three pods or three thousand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from attrs import evolve

from workerdiag.model.scene import Victim
from workerdiag.sources.kubernetes.api import KubernetesApi
from workerdiag.sources.kubernetes.attribution import VictimPod, match_deleted_pods, match_pods
from workerdiag.sources.kubernetes.events import KubernetesEvent
from workerdiag.sources.kubernetes.pods import Pod, parse_pod
from workerdiag.sources.kubernetes.target import KubernetesTarget, name_or_none

#: A cluster of so many pods is listed whole; of a larger one only the pods in question.
_MAX_PODS = 60
#: A difference of clocks that is smaller cannot be told: HTTP has whole seconds.
_MIN_APART_S = 2.0


class PodSearch:
    """
    Pods that were listed so far, and whose they are.

    Args:
        api: The API server, opened.
        target: Whom to look for.
    """

    def __init__(self, api: KubernetesApi, target: KubernetesTarget) -> None:
        self._api = api
        self._target = target
        self._pods: dict[str, Pod] = {}
        self.namespace = target.namespace or api.namespace

    @property
    def pods(self) -> list[Pod]:
        """
        All that were listed.
        """
        return list(self._pods.values())

    @property
    def victims(self) -> tuple[Victim, ...]:
        """
        The dead, with times by the API server's clock.
        """
        return tuple(map(self._on_api_clock, self._target.victims))

    async def list_pods(self) -> None:
        """
        Ask for the cluster's pods; of many, for those with victims' names and addresses and the unwell.

        Raises:
            UnansweredError: A question was not answered; what the others brought is kept.
        """
        if self._target.labels and await self._add_matching_pods(labels=self._target.labels):
            return
        hosts = sorted({each.identity.host for each in self._target.victims if each.identity.host})
        requests = [
            self._add_matching_pods(fields=f"status.podIP={each}")
            for each in hosts
            if _may_be_pod_address(each)
        ]
        unwell = "status.phase!=Running,status.phase!=Succeeded"
        requests.append(self._add_matching_pods(labels=self._target.labels, fields=unwell))
        requests += [self._add_pod(each) for each in self.names()]
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def names(self) -> list[str]:
        """
        Names that may be those of the victims' pods.
        """
        named = {name_or_none(each.identity.name) for each in self._target.victims}
        return sorted({each for each in (*named, *self._target.pods.values()) if each})

    def found(self) -> list[VictimPod]:
        """
        The victims whose pod was listed.
        """
        return match_pods(self.victims, self.pods, self._own_pods())

    def gone(self, found: Sequence[VictimPod], events: Sequence[KubernetesEvent]) -> list[VictimPod]:
        """
        Those of the other victims whose pod is gone, but has left events.
        """
        known = {each.victim for each in found}
        left = [each for each in self.victims if each not in known]
        return match_deleted_pods(left, events, self.pods, self._own_pods(), namespace=self.namespace)

    def to_api_clock(self, when: float | None) -> float | None:
        """
        A time of the scheduler's by the API server's clock, if these are known to differ.
        """
        apart_s = (self._api.ahead_s or 0.0) - self._target.scheduler_ahead_s
        return when if when is None or abs(apart_s) < _MIN_APART_S else when + apart_s

    def is_in_window(self, event: KubernetesEvent) -> bool:
        """
        Whether an event is of the time of interest.
        """
        since, until = self.to_api_clock(self._target.since), self.to_api_clock(self._target.until)
        last, first = event.last, event.first
        if last is None or first is None:
            return True
        return (since is None or last >= since) and (until is None or first <= until)

    def now(self) -> float:
        """
        Seconds since the epoch, by the API server's clock.
        """
        return time.time() + (self._api.ahead_s or 0.0)

    def _on_api_clock(self, victim: Victim) -> Victim:
        return evolve(victim, when=self.to_api_clock(victim.when), since=self.to_api_clock(victim.since))

    def _own_pods(self) -> dict[Victim, str]:
        return {self._on_api_clock(victim): pod for victim, pod in self._target.pods.items()}

    async def _add_matching_pods(self, *, labels: str = "", fields: str = "") -> bool:
        items, complete = await self._api.items(
            "pods", namespace=self.namespace, labels=labels, fields=fields, most=_MAX_PODS
        )
        self._pods |= {pod.uid: pod for pod in map(parse_pod, items)}
        return complete

    async def _add_pod(self, name: str) -> bool:
        item = await self._api.item("pods", name, namespace=self.namespace)
        if item is not None:
            pod = parse_pod(item)
            self._pods[pod.uid] = pod
        return item is not None


def _may_be_pod_address(host: str) -> bool:
    """
    Whether a host may be a pod's address: not this machine's own, and without a selector's signs.
    """
    return not host.startswith("127.") and not {",", "=", "!"}.intersection(host)
