"""
Events, which components of Kubernetes record of objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from attrs import frozen

from workerdiag.sources.kubernetes.fields import mapping_at, text_at
from workerdiag.units import parse_timestamp

_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)$")
_CONTAINER_PATH = re.compile(r"spec\.containers\{([\w.-]+)\}")


@frozen(kw_only=True)
class KubernetesEvent:
    """
    An event that some component of Kubernetes recorded of an object.
    """

    #: ``Normal`` or ``Warning``.
    type: str
    #: What happened, in a word and in full.
    reason: str
    message: str
    #: The object.
    kind: str
    name: str
    uid: str
    #: The container it is about; empty if about none.
    container: str
    #: The node that a pod's event names: the kubelet's own, or the one the pod was given to.
    node: str
    #: Uid and name of the event itself, which no other one has.
    key: tuple[str, str]
    #: When for the first and the last time, seconds since the epoch.
    first: float | None
    last: float | None


def parse_event(raw: Mapping[str, object]) -> KubernetesEvent:
    """
    An event as the API server has it.
    """
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
