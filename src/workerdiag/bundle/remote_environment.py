"""
Versions and configuration of others than the process that saved a bundle, as the evidence in it tells them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from workerdiag.bundle.retention.kept_evidence import KeptLog
from workerdiag.model.evidence import Event, Evidence

#: What the black box of a worker knows of its versions (`workerdiag.recorder.environment`).
_BOX_PACKAGES = ("python", "dask", "distributed", "workerdiag")
#: Dead workers whose versions are told.
_MAX_BOXES = 3
_MAX_CHARS = 300


def remote_versions(items: Iterable[Evidence | KeptLog]) -> dict[str, str]:
    """
    ``<whose>: <package>`` to version: of the scheduler, of dead workers with a black box, and what differs.
    """
    events = [each for each in items if isinstance(each, Event)]
    found: dict[str, str] = {}
    for event in events:
        if event.topic == "versions":
            found.update(_labelled_fields(event, without=("of", "address", "packages")))
    boxes = [each for each in events if each.topic == "black-box"]
    for event in boxes[:_MAX_BOXES]:
        found.update(_box_versions(event))
    return found


def remote_configuration(items: Iterable[Evidence | KeptLog]) -> dict[str, str]:
    """
    ``<whose>: <key>`` to value, of the scheduler.
    """
    found: dict[str, str] = {}
    for each in items:
        if isinstance(each, Event) and each.topic == "configuration":
            found.update(_labelled_fields(each, without=("of", "address")))
    return found


def _labelled_fields(event: Event, *, without: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, value in event.fields.items():
        if name not in without and value is not None:
            yield f"{event.fields.get('of')}: {name}"[:_MAX_CHARS], str(value)[:_MAX_CHARS]


def _box_versions(event: Event) -> Iterator[tuple[str, str]]:
    try:
        box = json.loads(str(event.fields.get("content")))
    except (ValueError, RecursionError):  # cut off
        return
    raw_identity = box.get("identity") if isinstance(box, dict) else None
    box_identity: Mapping[str, object] = raw_identity if isinstance(raw_identity, dict) else {}
    for name in _BOX_PACKAGES:
        if isinstance(version := box_identity.get(name), str):
            label = event.identity.worker or f"process {event.identity.pid}"
            yield f"worker {label}: {name}"[:_MAX_CHARS], version[:_MAX_CHARS]
