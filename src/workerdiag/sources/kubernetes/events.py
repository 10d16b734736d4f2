"""
Events, which components of Kubernetes record of objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from workerdiag.sources.kubernetes.fields import part, seconds, text


@frozen
class KubernetesEvent:
    """
    An event that some component of Kubernetes recorded of an object.
    """

    raw: Mapping[str, Any] = field(repr=False)

    @property
    def kind(self) -> str:
        """
        Kind of the object.
        """
        return text(part(self.raw, "involvedObject"), "kind")

    @property
    def name(self) -> str:
        """
        Name of the object.
        """
        return text(part(self.raw, "involvedObject"), "name")

    @property
    def uid(self) -> str:
        """
        Uid of the object.
        """
        return text(part(self.raw, "involvedObject"), "uid")

    @property
    def container(self) -> str:
        """
        The container it is about, ``spec.containers{worker}``; empty if about none.
        """
        path = text(part(self.raw, "involvedObject"), "fieldPath")
        found = re.fullmatch(r"spec\.containers\{([\w.-]+)\}", path)
        return found[1] if found else ""

    @property
    def reason(self) -> str:
        """
        What happened, in a word.
        """
        return text(self.raw, "reason")

    @property
    def message(self) -> str:
        """
        What happened.
        """
        return text(self.raw, "message")

    @property
    def key(self) -> tuple[str, str]:
        """
        What no other event has.
        """
        metadata = part(self.raw, "metadata")
        return text(metadata, "uid"), text(metadata, "name")

    @property
    def node(self) -> str:
        """
        The node that a pod's event names: the kubelet's own, or the one the pod was given to.
        """
        assigned = re.match(r"Successfully assigned \S+ to (\S+)$", self.message)
        return assigned[1] if assigned else text(part(self.raw, "source"), "host")

    @property
    def count(self) -> int:
        """
        How often.
        """
        said = self.raw.get("count") or part(self.raw, "series").get("count")
        return said if isinstance(said, int) else 1

    @property
    def last(self) -> float | None:
        """
        When for the last time, seconds since the epoch.
        """
        said = (
            text(part(self.raw, "series"), "lastObservedTime"),
            text(self.raw, "lastTimestamp"),
            text(self.raw, "eventTime"),
            text(part(self.raw, "metadata"), "creationTimestamp"),
        )
        return next((when for each in said if (when := seconds(each)) is not None), None)

    @property
    def first(self) -> float | None:
        """
        When for the first time, seconds since the epoch.
        """
        said = (text(self.raw, "firstTimestamp"), text(self.raw, "eventTime"))
        return next((when for each in said if (when := seconds(each)) is not None), self.last)
