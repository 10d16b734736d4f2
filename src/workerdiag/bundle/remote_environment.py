"""
Versions and configuration of others than the process that saved a bundle, as the evidence in it tells them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from workerdiag.bundle.retention.kept_evidence import KeptLog
from workerdiag.model.evidence import Event, Evidence

#: What the black box of a worker knows of its versions (`workerdiag.recorder.environment`).
_OF_BOXES = ("python", "dask", "distributed", "workerdiag")
#: Dead workers whose versions are told.
_MOST_BOXES = 3
_MOST_CHARS = 300


def versions_told(items: Iterable[Evidence | KeptLog]) -> dict[str, str]:
    """
    ``<whose>: <package>`` to version: of the scheduler, of dead workers with a black box, and what differs.
    """
    events = [each for each in items if isinstance(each, Event)]
    found: dict[str, str] = {}
    for event in events:
        if event.topic == "versions":
            found.update(_named(event, without=("of", "address", "packages")))
    boxes = [each for each in events if each.topic == "black-box"]
    for event in boxes[:_MOST_BOXES]:
        found.update(_of_box(event))
    return found


def configuration_told(items: Iterable[Evidence | KeptLog]) -> dict[str, str]:
    """
    ``<whose>: <key>`` to value, of the scheduler.
    """
    found: dict[str, str] = {}
    for each in items:
        if isinstance(each, Event) and each.topic == "configuration":
            found.update(_named(each, without=("of", "address")))
    return found


def _named(event: Event, *, without: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, value in event.fields.items():
        if name not in without and value is not None:
            yield f"{event.fields.get('of')}: {name}"[:_MOST_CHARS], str(value)[:_MOST_CHARS]


def _of_box(event: Event) -> Iterator[tuple[str, str]]:
    try:
        box = json.loads(str(event.fields.get("content")))
    except (ValueError, RecursionError):  # cut off
        return
    said = box.get("identity") if isinstance(box, dict) else None
    identity: Mapping[str, object] = said if isinstance(said, dict) else {}
    for name in _OF_BOXES:
        if isinstance(version := identity.get(name), str):
            whose = event.whose.worker or f"process {event.whose.pid}"
            yield f"worker {whose}: {name}"[:_MOST_CHARS], version[:_MOST_CHARS]
