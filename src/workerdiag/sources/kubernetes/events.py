"""
Events, which components of Kubernetes record of objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from workerdiag.sources.kubernetes.fields import mapping_at, text_at
from workerdiag.units import parse_timestamp


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
        return text_at(mapping_at(self.raw, "involvedObject"), "kind")

    @property
    def name(self) -> str:
        """
        Name of the object.
        """
        return text_at(mapping_at(self.raw, "involvedObject"), "name")

    @property
    def uid(self) -> str:
        """
        Uid of the object.
        """
        return text_at(mapping_at(self.raw, "involvedObject"), "uid")

    @property
    def container(self) -> str:
        """
        The container it is about, ``spec.containers{worker}``; empty if about none.
        """
        path = text_at(mapping_at(self.raw, "involvedObject"), "fieldPath")
        found = re.fullmatch(r"spec\.containers\{([\w.-]+)\}", path)
        return found[1] if found else ""

    @property
    def reason(self) -> str:
        """
        What happened, in a word.
        """
        return text_at(self.raw, "reason")

    @property
    def message(self) -> str:
        """
        What happened.
        """
        return text_at(self.raw, "message")

    @property
    def key(self) -> tuple[str, str]:
        """
        What no other event has.
        """
        metadata = mapping_at(self.raw, "metadata")
        return text_at(metadata, "uid"), text_at(metadata, "name")

    @property
    def node(self) -> str:
        """
        The node that a pod's event names: the kubelet's own, or the one the pod was given to.
        """
        assigned = re.match(r"Successfully assigned \S+ to (\S+)$", self.message)
        return assigned[1] if assigned else text_at(mapping_at(self.raw, "source"), "host")

    @property
    def count(self) -> int:
        """
        How often.
        """
        value = self.raw.get("count") or mapping_at(self.raw, "series").get("count")
        return value if isinstance(value, int) else 1

    @property
    def last(self) -> float | None:
        """
        When for the last time, seconds since the epoch.
        """
        stamps = (
            text_at(mapping_at(self.raw, "series"), "lastObservedTime"),
            text_at(self.raw, "lastTimestamp"),
            text_at(self.raw, "eventTime"),
            text_at(mapping_at(self.raw, "metadata"), "creationTimestamp"),
        )
        return next((when for each in stamps if (when := parse_timestamp(each)) is not None), None)

    @property
    def first(self) -> float | None:
        """
        When for the first time, seconds since the epoch.
        """
        stamps = (text_at(self.raw, "firstTimestamp"), text_at(self.raw, "eventTime"))
        return next((when for each in stamps if (when := parse_timestamp(each)) is not None), self.last)
