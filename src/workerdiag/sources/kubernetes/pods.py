"""
Pods, and what is said of the container in them that runs Dask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from workerdiag.sources.kubernetes.containers import WORKER_NAME_VARIABLES, command_words, dask_container
from workerdiag.sources.kubernetes.fields import (
    mapping_at,
    mappings_at,
    parse_quantity,
    text_at,
)
from workerdiag.units import parse_timestamp

#: Annotation: of which container kubectl shows the log (Kubernetes documentation, "Well-Known Labels").
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@frozen(kw_only=True)
class Termination:
    """
    The end of one run of a container.
    """

    #: Of the kubelet, in a word: ``OOMKilled``, ``Error``.
    reason: str
    #: What the container left as its last words; mostly empty.
    message: str
    exit_code: int
    #: Seconds since the epoch, without fractions.
    started: float | None
    finished: float | None
    #: Whether the container has been started again since.
    earlier: bool = False


@frozen
class Pod:
    """
    A pod, and what is said of the container in it that runs Dask.
    """

    raw: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """
        Its name.
        """
        return text_at(mapping_at(self.raw, "metadata"), "name")

    @property
    def namespace(self) -> str:
        """
        Its namespace.
        """
        return text_at(mapping_at(self.raw, "metadata"), "namespace")

    @property
    def uid(self) -> str:
        """
        What no other pod of that name has.
        """
        return text_at(mapping_at(self.raw, "metadata"), "uid")

    @property
    def labels(self) -> dict[str, Any]:
        """
        Its labels.
        """
        return mapping_at(self.raw, "metadata", "labels")

    @property
    def created(self) -> float | None:
        """
        When it was created, seconds since the epoch.
        """
        return parse_timestamp(text_at(mapping_at(self.raw, "metadata"), "creationTimestamp"))

    @property
    def spec(self) -> dict[str, Any]:
        """
        What was asked for.
        """
        return mapping_at(self.raw, "spec")

    @property
    def status(self) -> dict[str, Any]:
        """
        What has become of it.
        """
        return mapping_at(self.raw, "status")

    @property
    def node(self) -> str:
        """
        The node it was given to; empty before.
        """
        return text_at(self.spec, "nodeName")

    @property
    def addresses(self) -> frozenset[str]:
        """
        Its IP addresses.
        """
        listed = [text_at(each, "ip") for each in mappings_at(self.status, "podIPs")]
        return frozenset({text_at(self.status, "podIP"), *listed} - {""})

    @property
    def shares_its_address(self) -> bool:
        """
        Whether its addresses are the node's, and so of other pods too.
        """
        return self.spec.get("hostNetwork") is True

    @property
    def grace_s(self) -> float:
        """
        Seconds between being asked to stop and SIGKILL; 30 unless the pod says otherwise (core/v1).
        """
        grace = self.spec.get("terminationGracePeriodSeconds")
        return float(grace) if isinstance(grace, int) else 30.0

    @property
    def worker_name(self) -> str:
        """
        The name its worker was given; empty if it is not told.
        """
        container = self.container
        words = command_words(container)
        given = words[words.index("--name") + 1 : words.index("--name") + 2] if "--name" in words else []
        if given and "$" not in given[0]:
            return given[0]
        for variable in mappings_at(container, "env"):
            if text_at(variable, "name") in WORKER_NAME_VARIABLES:
                of_pod = (
                    text_at(mapping_at(variable, "valueFrom", "fieldRef"), "fieldPath") == "metadata.name"
                )
                return self.name if of_pod else text_at(variable, "value")
        return text_at(self.labels, "dask.org/worker-name")

    @property
    def container(self) -> dict[str, Any]:
        """
        What is asked for of the container that runs Dask; empty where that is not clear.
        """
        default = text_at(mapping_at(self.raw, "metadata", "annotations"), _DEFAULT_CONTAINER)
        return dask_container(mappings_at(self.spec, "containers"), default=default)

    @property
    def container_name(self) -> str:
        """
        The name of that container; empty where it is not clear which one it is.
        """
        return text_at(self.container, "name")

    @property
    def container_status(self) -> dict[str, Any]:
        """
        What has become of that container; empty before there is one.
        """
        return next(
            (
                each
                for each in mappings_at(self.status, "containerStatuses")
                if self.container_name and text_at(each, "name") == self.container_name
            ),
            {},
        )

    @property
    def running_since(self) -> float | None:
        """
        When that container was started, if it runs; seconds since the epoch.
        """
        return parse_timestamp(text_at(mapping_at(self.container_status, "state", "running"), "startedAt"))

    @property
    def terminations(self) -> tuple[Termination, ...]:
        """
        The ends of that container that are still told: the last one, and the one before a restart.
        """
        return tuple(self._terminations())

    def _terminations(self) -> Iterator[Termination]:
        for key in ("state", "lastState"):
            terminated = mapping_at(self.container_status, key, "terminated")
            code = terminated.get("exitCode")
            if isinstance(code, int) and not isinstance(code, bool):
                yield Termination(
                    reason=text_at(terminated, "reason"),
                    message=text_at(terminated, "message"),
                    exit_code=code,
                    started=parse_timestamp(text_at(terminated, "startedAt")),
                    finished=parse_timestamp(text_at(terminated, "finishedAt")),
                    earlier=key == "lastState",
                )

    @property
    def restarts(self) -> int:
        """
        How often that container was started again.
        """
        count = self.container_status.get("restartCount")
        return count if isinstance(count, int) else 0

    @property
    def failed(self) -> bool:
        """
        Whether it has ended badly for good, and is only left over.
        """
        return self.status.get("phase") == "Failed"

    @property
    def changed(self) -> float | None:
        """
        When its status last changed, so far as that is told; seconds since the epoch.
        """
        conditions = mappings_at(self.status, "conditions")
        times = [parse_timestamp(text_at(each, "lastTransitionTime")) for each in conditions]
        times += [each.finished for each in self.terminations]
        return max((each for each in times if each is not None), default=None)

    @property
    def memory_limit_bytes(self) -> int | None:
        """
        What that container may use, in bytes; None without a limit.
        """
        limit = mapping_at(self.container, "resources", "limits").get("memory")
        return parse_quantity(limit) if limit is not None else None

    def trouble(self, *, since: float | None) -> str:
        """
        Why it is unwell, in a word; empty while it is well.

        Args:
            since: A container that was started again before then is well; seconds since the epoch.
        """
        if self.failed:
            return text_at(self.status, "reason") or "Failed"
        for each in (
            *mappings_at(self.status, "containerStatuses"),
            *mappings_at(self.status, "initContainerStatuses"),
        ):
            waiting = text_at(mapping_at(each, "state", "waiting"), "reason")
            if waiting not in ("", "ContainerCreating", "PodInitializing"):
                return waiting
        for end in self.terminations:
            if end.exit_code and (since is None or end.finished is None or end.finished >= since):
                return end.reason or "Error"
        return "Pending" if self.status.get("phase") in ("Pending", "Unknown") else ""
