"""Data of the caller's process that is inside a graph, so that it travels with the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from attrs import frozen

from workerdiag.guard import guarded
from workerdiag.sources.internals import parts_of

#: Smaller values are part of any graph.
_LEAST_BYTES = 2**16


@frozen(kw_only=True)
class EmbeddedData:
    """Values in a graph."""

    #: Bytes of all of them, and of the largest.
    total_bytes: int = 0
    largest_bytes: int = 0
    count: int = 0
    #: Class of the largest, e.g. ``ndarray``, and the layer that has it.
    type: str = ""
    layer: str = ""


def embedded_data(graph: Any) -> EmbeddedData:
    """The values in the first tasks of each layer of a `HighLevelGraph`."""
    seen: dict[int, tuple[int, str, str]] = {}
    scale: dict[str, float] = {}
    for token, layer in islice(getattr(graph, "layers", {}).items(), 3000):
        with guarded("looking for data in a layer"):
            mapping = getattr(layer, "mapping", None)
            if isinstance(mapping, dict):
                tasks = list(islice(mapping.values(), 200))
                scale[token] = len(mapping) / max(len(tasks), 1)
            else:  # a layer for all its tasks at once
                tasks = [getattr(layer, "task", None), *islice(getattr(layer, "io_deps", {}).values(), 64)]
                tasks += [value for value, index in getattr(layer, "indices", ()) if index is None]
                scale[token] = 1.0
            for task in tasks:
                for value in _values_in(task, 4):
                    size = size_of(value)
                    if size >= _LEAST_BYTES:
                        seen.setdefault(id(value), (size, type(value).__name__, token))
    if not seen:
        return EmbeddedData()
    largest, kind, token = max(seen.values())
    return EmbeddedData(
        total_bytes=int(sum(size * scale[of] for size, _, of in seen.values())),
        largest_bytes=largest,
        count=len(seen),
        type=kind,
        layer=token,
    )


def size_of(value: object) -> int:
    """Bytes of an array, a frame, text or bytes; 0 of anything else, which is not asked."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    module = type(value).__module__.partition(".")[0]
    if module == "pandas":
        usage = getattr(value, "memory_usage", None)
        found: Any = usage(deep=False) if usage is not None else 0
        return int(found.sum() if hasattr(found, "sum") else found)
    if module in ("numpy", "scipy", "cupy", "pyarrow", "polars", "torch"):
        size = getattr(value, "nbytes", 0)
        return size if isinstance(size, int) else 0
    return 0


def _values_in(task: object, depth: int) -> Iterator[object]:
    if depth == 0:
        return
    yield task
    for each in parts_of(task):
        if each is not None:
            yield from _values_in(each, depth - 1)
