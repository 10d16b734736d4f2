"""The work behind an exception, or behind a call that still waits, as evidence: sizes and names, never data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from traceback import walk_tb
from types import FrameType
from typing import Any

from attrs import asdict, evolve
from attrs.filters import exclude

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import error_text
from workerdiag.guard import guarded
from workerdiag.model.evidence import Event, Evidence, Gap
from workerdiag.model.memory import Step
from workerdiag.model.normalize import EventValue
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.cluster.scheduler_functions import spec_bytes
from workerdiag.sources.internals import expression_part, parts_of
from workerdiag.sources.tracebacks import linked_exceptions
from workerdiag.sources.workload.computed import Assignment, Computed, find_computed, open_loop_in, waiting_frames
from workerdiag.sources.workload.pieces import (
    ResultBytes,
    array_layers,
    class_names,
    expressions,
    frame_layers,
    kept_bytes,
    kinds_of_tasks,
    persisted_bytes,
    plain_name,
    result_bytes,
    text_blocks,
)
from workerdiag.values import frozen

#: Fields of a step that are several, and what stands between them in an event.
_JOINTS = {"shape": " x ", "chunk": " x ", "dims": ", "}


def workload_evidence(exc: BaseException | None, client: object, deadline: Deadline) -> list[Evidence]:
    """What the caller computed: from the frames of *exc*, or else of the threads that wait for *client*.

    It is read in a thread: expressions may look up files in stores. If that takes too long or fails, it is a `Gap`.
    """
    try:
        return call_in_time("workerdiag-workload", partial(_evidence, exc, client), deadline)
    except CALL_FAILURES as problem:
        reason: GapReason = "timed-out" if isinstance(problem, TimeoutError) else "malformed"
        detail = f"what was computed could not be read: {error_text(problem)}"[:500]
        return [Gap(source="the caller's collections", place="workload", reason=reason, detail=detail)]


def _evidence(exc: BaseException | None, client: object) -> list[Evidence]:
    walked: Iterable[Iterable[tuple[FrameType, int]]] = ()
    if exc is not None:
        walked = (walk_tb(each.__traceback__) for each in linked_exceptions(exc))
    elif client is not None:
        walked = waiting_frames(client)
    computed = next(filter(None, map(find_computed, walked)), None)
    return [] if computed is None else list(computed_events(computed))


def computed_events(computed: Computed) -> Iterator[Event]:
    """One event for the call, then one for each step whose tasks need most."""
    from dask.utils import key_split  # of the process that has made the graph

    awaited = {str(key_split(each)) for each in computed.keys}
    fields: dict[str, EventValue] = {
        "place": computed.place,
        "code": computed.code,
        "gathered": computed.is_gathered,
        "collections": len(computed.collections),
        "kinds": ", ".join(sorted({kind for kind, _ in computed.collections})),
        "futures": len(computed.keys),
        "awaited": ", ".join(sorted(awaited))[:200],
    }
    layers: dict[str, Step] = {}
    results: list[ResultBytes] = []
    kept = persisted = pieces = 0
    embedded = []
    kinds = {name: (0, each) for name, each in computed.functions.items() if name in awaited}
    for kind, value in computed.collections:
        with guarded("reading a collection"):  # of any release, and any chunks
            if kind == "array":
                layers |= {each.token: each for each in array_layers(value)}
            elif kind == "dataframe":
                layers |= {each.token: each for each in frame_layers(value)}
            elif kind == "bag":
                layers |= {each.token: each for each in text_blocks(value)}
        with guarded("reading what must be kept"):
            if kind == "array":
                kept, persisted = max(kept, kept_bytes(value)), persisted + persisted_bytes(value)
        with guarded("reading the size of a result"):
            results += [size for size in [result_bytes(kind, value)] if size is not None]
        with guarded("counting the pieces of a result"):
            pieces += int(value.npartitions) if kind in ("array", "dataframe") else 0
        with guarded("looking at the kinds of tasks"):
            if kind in ("delayed", "bag"):  # whose results have no known size
                kinds |= kinds_of_tasks(value.dask)
        with guarded("looking for data in a graph"):
            embedded.append(embedded_data(value.dask) if kind != "dataframe" else embedded_arguments(value))
    result, least = sum(each.most for each in results), sum(each.least for each in results)
    persisted += 0 if computed.is_gathered else result
    widest = max((each for each in kinds if kinds[each][0]), key=lambda each: kinds[each][0], default="")
    fields |= {
        "result_bytes": result or None,
        "result_least_bytes": least if least < result else None,
        "result_pieces": pieces or None,
        "sources": sum(each.is_source for each in layers.values()),
        "kept_bytes": kept or None,
        "persisted_bytes": persisted or None,
        "widest_kind": widest or None,
        "widest_inputs": kinds[widest][0] if widest else None,
        "loops": ", ".join(each for each in sorted(kinds)[:20] if open_loop_in(kinds[each][1], 3)) or None,
    }
    if data := _embedded_frames(layers.values()) or max(embedded, key=lambda each: each.total_bytes, default=None):
        fields |= {
            "embedded_bytes": data.total_bytes or None,
            "embedded_task_bytes": data.task_bytes or None,
            "embedded_count": data.count or None,
            "embedded_type": data.type or None,
            "embedded_partitioned": data.is_partitioned or None,
            "embedded_name": assigned.name if (assigned := _assignment(data.layer, computed)) else None,
        }
    yield Event(topic="workload", fields=fields)
    for each in _chosen(layers.values()):
        yield Event(topic="workload-step", fields=_step_fields(each, computed))


def _embedded_frames(layers: Iterable[Step]) -> EmbeddedData | None:
    frames = [(each.piece_bytes, each) for each in layers if each.is_embedded and each.piece_bytes]
    if not frames:
        return None
    return EmbeddedData(
        total_bytes=sum(size * each.pieces for size, each in frames),
        task_bytes=max(size for size, _ in frames),
        count=sum(each.pieces for _, each in frames),
        type="DataFrame",
        layer=frames[0][1].token,
        is_partitioned=True,
    )


def _chosen(layers: Iterable[Step]) -> list[Step]:
    """The steps whose tasks need most, the sources, and the one of each other kind that needs most."""
    by_need = sorted(layers, key=lambda each: -(each.inputs_bytes + (each.piece_bytes or 0)))
    sources = [each for each in by_need if each.is_source]
    chosen = (
        by_need[:2],
        sources[:4],
        [each for each in sources if not each.piece_bytes][:1],
        [each for each in by_need if each.by_key][:1],
        [each for each in by_need if each.is_opaque][:1],
        [each for each in by_need if each.name.startswith("rechunk") and not each.is_between][:1],
    )
    return list(dict.fromkeys(each for steps in chosen for each in steps))


def _step_fields(step: Step, computed: Computed) -> dict[str, EventValue]:
    if assigned := _assignment(step.token, computed):
        step = evolve(step, variable=assigned.name, made_by=assigned.code)
    step = evolve(
        step, dims=computed.dims.get(step.token, ()), key_share=step.key_share and round(step.key_share, 3)
    )
    known = asdict(step, recurse=False, filter=exclude("token", "is_embedded", "seen_copies_bytes"))
    known |= {name: joint.join(map(str, known[name])) for name, joint in _JOINTS.items()}
    return {name: None if value == "" else value for name, value in known.items()}


def _assignment(token: str, computed: Computed) -> Assignment | None:
    """The caller's name for a step; of a simplified one, whose token differs, by the name if only one has it."""
    found = computed.names.get(token)
    if found or token.startswith("rechunk-"):  # on its way to its chunks an array has others in between
        return found
    alike = [each for other, each in computed.names.items() if plain_name(other) == plain_name(token)]
    return alike[0] if len(alike) == 1 else None


#: Smaller values are part of any graph.
_LEAST_BYTES = 2**16


@frozen(kw_only=True)
class EmbeddedData:
    """Values in a graph."""

    #: Bytes of all of them, and of those that one task brings with it, at most.
    total_bytes: int = 0
    task_bytes: int = 0
    count: int = 0
    #: Class of the largest, e.g. ``ndarray``, and the layer that has it.
    type: str = ""
    layer: str = ""
    #: Whether they are a frame that goes to the tasks in parts, one to each.
    is_partitioned: bool = False


def embedded_data(graph: Any) -> EmbeddedData:
    """The values in the first tasks of each layer of a `HighLevelGraph`."""
    tasks: list[tuple[str, list[object], float]] = []
    for token, layer in islice(getattr(graph, "layers", {}).items(), 3000):
        with guarded("looking for tasks in a layer"):
            mapping = getattr(layer, "mapping", None)
            if isinstance(mapping, dict):
                first = [each for each in islice(mapping.values(), 200) if not isinstance(each, list)]  # of a bag
                tasks += ((token, [each], len(mapping) / len(first)) for each in first)
            else:  # a layer for all its tasks at once
                shared = [value for value, index in getattr(layer, "indices", ()) if index is None]
                parts = [*islice(getattr(layer, "io_deps", {}).values(), 64)] or [None]
                tasks += ((token, [getattr(layer, "task", None), *shared, part], 1.0) for part in parts)
    return _values_of(tasks)


def embedded_arguments(frame: Any) -> EmbeddedData:
    """The values that steps of a dataframe take beside its rows: arguments, and what functions hold."""
    nodes = [each for each in expressions(frame) if "FromPandas" not in class_names(each)]  # it travels in parts
    operands = ([each for each in node.operands if not hasattr(each, "operands")] for node in nodes)
    names = (str(expression_part(node, "_name")) for node in nodes)
    return _values_of((name, parts, 1.0) for name, parts in zip(names, operands, strict=True))


def _values_of(tasks: Iterable[tuple[str, list[object], float]]) -> EmbeddedData:
    """The large values in tasks: of each its layer, its parts, and for how many tasks like it it stands.

    One that several take counts once in all, and in each of them.
    """
    found: dict[int, tuple[int, str, str, float]] = {}
    most = 0
    for token, parts, scale in tasks:
        with guarded("looking for data in a task"):
            values = islice((value for each in parts for value in _values_in(each, 6)), 2000)
            sized = {id(value): (size_of(value), type(value).__name__, token, scale) for value in values}
            large = {key: each for key, each in sized.items() if each[0] >= _LEAST_BYTES}
            most = max(most, sum(size for size, *_ in large.values()))
            found.update({key: each for key, each in large.items() if key not in found})
    _, kind, layer, _ = max(found.values(), default=(0, "", "", 1.0))
    total = int(sum(size * scale for size, _, _, scale in found.values()))
    return EmbeddedData(total_bytes=total, task_bytes=most, count=len(found), type=kind, layer=layer)


def size_of(value: object) -> int:
    """Bytes of an array, a frame, text or bytes, or of a long collection; 0 of others, which are not asked."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if _is_long(value):
        return spec_bytes(value, 3)
    module = type(value).__module__.partition(".")[0]
    if module == "pandas":
        usage = getattr(value, "memory_usage", None)
        found: Any = usage(deep=False) if usage is not None else 0
        return int(found.sum() if hasattr(found, "sum") else found)
    if module in ("numpy", "scipy", "cupy", "pyarrow", "polars", "torch"):
        size = getattr(value, "nbytes", 0)
        return size if isinstance(size, int) else 0
    return 0


def _is_long(value: object) -> bool:
    return isinstance(value, list | tuple | set | dict) and len(value) > 64


def _values_in(task: object, depth: int) -> Iterator[object]:
    if depth == 0:
        return
    yield task
    if _is_long(task):  # its size has its items
        return
    for each in parts_of(task):
        if each is not None:
            yield from _values_in(each, depth - 1)
