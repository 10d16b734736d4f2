"""What a bug report asks for: versions and configuration, here and elsewhere, and what happened when."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from workerdiag._version import __version__
from workerdiag.bundle.kept_evidence import KeptLog
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, MemoryReading, ProcessExit
from workerdiag.redaction.objects import redact_object
from workerdiag.rendering.bug_report import TimelineMoment
from workerdiag.rendering.wording import clip, exit_text, identity_text, one_line
from workerdiag.units import format_bytes

#: Packages whose versions have mattered in the deaths of workers.
_PACKAGES = (
    "dask distributed tornado msgpack cloudpickle psutil numpy pandas pyarrow dask-expr"
    " dask-jobqueue dask-kubernetes dask-cloudprovider dask-gateway dask-mpi dask-cuda coiled"
).split()

_VARIABLES = "MALLOC_TRIM_THRESHOLD_ OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS"
#: Keys of distributed's configuration that bear on how workers die (distributed.yaml, 2024.8.1 to
#: 2026.8.0). A key stands for all below it. Nothing else is taken: values of other keys can be secrets.
ALLOWED_SETTINGS = (
    *("distributed.version", "distributed.adaptive", "distributed.p2p"),
    *(
        f"distributed.{section}.{name}"
        for section, names in {
            "scheduler": "allowed-failures worker-ttl idle-timeout no-workers-timeout unknown-task-duration"
            " worker-saturation work-stealing active-memory-manager.start",
            "worker": "memory lifetime multiprocessing-method use-file-locking connections transfer resources"
            " daemon",
            "nanny.environ": _VARIABLES,
            "nanny.pre-spawn-environ": _VARIABLES,
            "client": "heartbeat",
            "comm": "timeouts retry compression require-encryption offload socket-backlog",
            "admin": "event-loop tick system-monitor",
            "rmm": "pool-size",
        }.items()
        for name in names.split()
    ),
)
#: What the black box of a worker knows of its versions (`workerdiag.recorder.recording`).
_BOX_PACKAGES = ("python", "dask", "distributed", "workerdiag")
_MAX_CHARS = 300


def versions() -> dict[str, str]:
    """Name to version: Python, the system, and of packages those that are installed."""
    found = {
        "workerdiag": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.platform(),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def configuration() -> dict[str, object]:
    """Keys of `ALLOWED_SETTINGS` to their effective values; empty where this process has not used distributed."""
    if "distributed" not in sys.modules:  # its defaults are not loaded, and this may not be the client's machine
        return {}
    import dask.config

    found: dict[str, object] = {}
    for key in ALLOWED_SETTINGS:
        value = dask.config.get(key, default=None)
        found.update(_flat_settings(key, value))
    return found


def _flat_settings(key: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat_settings(f"{key}.{name}", each)
    elif isinstance(value, bool | int | float | None):
        yield key, value
    else:
        yield key, str(value)[:500]


def remote_versions(items: Iterable[Evidence | KeptLog]) -> dict[str, str]:
    """``<whose>: <package>`` to version: of the scheduler, of dead workers with a black box, and what differs."""
    events = [each for each in items if isinstance(each, Event)]
    found: dict[str, str] = {}
    for event in events:
        if event.topic == "versions":
            found.update(_labelled_fields(event, without=("of", "address", "packages")))
    boxes = [each for each in events if each.topic == "black-box"]
    for event in boxes[:3]:
        found.update(_box_versions(event))
    return found


def remote_configuration(items: Iterable[Evidence | KeptLog]) -> dict[str, str]:
    """``<whose>: <key>`` to value, of the scheduler."""
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


#: Moments that a report has room for.
MAX_MOMENTS = 40


def timeline(findings: Findings, items: Iterable[Evidence | KeptLog]) -> tuple[TimelineMoment, ...]:
    """The moments nearest to the first death, in their order; each thing that was seen once."""
    found: dict[tuple[int, str], TimelineMoment] = {}
    for moment in (*_moments_of_findings(findings), *_moments_of_evidence(items)):
        found.setdefault((round(moment.when), moment.text), moment)
    deaths = [death.when for death in findings.deaths if death.when is not None]
    middle = min(deaths, default=max((moment.when for moment in found.values()), default=0.0))
    nearest = sorted(found.values(), key=lambda moment: abs(moment.when - middle))[:MAX_MOMENTS]
    return tuple(sorted(nearest, key=lambda moment: moment.when))


def _moments_of_findings(findings: Findings) -> Iterator[TimelineMoment]:
    for death in findings.deaths:
        if death.when is not None:
            yield _clipped_moment(death.when, "death", f"{identity_text(death.identity)}: {exit_text(death)}")
    for cause in findings.causes[:3]:
        for clue in (*cause.evidence, *cause.against):
            if clue.when is not None:
                yield _clipped_moment(clue.when, clue.where, clue.text)


def _moments_of_evidence(items: Iterable[Evidence | KeptLog]) -> Iterator[TimelineMoment]:
    for item in items:
        when = getattr(item, "when", None)
        if when is None or isinstance(item, KeptLog):
            continue
        piece = redact_object(item)
        if isinstance(piece, Event):
            yield _clipped_moment(when, "event", piece.describe().removeprefix("event "))
        elif isinstance(piece, ProcessExit):
            yield _clipped_moment(
                when, piece.reporter or "exit", f"{identity_text(piece.identity)}: ended{_exit_suffix(piece)}"
            )
        elif isinstance(piece, MemoryReading) and piece.rss_bytes is not None:
            limit = f" of {format_bytes(piece.limit_bytes)}" if piece.limit_bytes else ""
            yield _clipped_moment(
                when, "memory", f"{identity_text(piece.identity)}: {format_bytes(piece.rss_bytes)}{limit}"
            )
        elif isinstance(piece, ExceptionFacts):
            yield _clipped_moment(when, "exception", f"{piece.type}: {piece.text}")


def _exit_suffix(piece: ProcessExit) -> str:
    if piece.signal is not None:
        return f" by signal {piece.signal}"
    return "" if piece.status is None else f" by status {piece.status}"


def _clipped_moment(when: float, where: str, text: str) -> TimelineMoment:
    return TimelineMoment(when=when, where=clip(one_line(where), 80), text=clip(one_line(text), 240))
