"""The largest objects that running tasks and the user's modules hold: names, types and sizes, never values.

It runs in a thread beside the tasks while memory is short. So it calls nothing of the user's: of containers only
what Python itself brings, of arrays and tables of known libraries what tells their size. Sizes are estimates: of a
container a few elements are looked at, of an object its attributes. Standard library only: every worker loads this.
"""

from __future__ import annotations

import gc
import sys
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain, islice
from time import monotonic
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast

from workerdiag.model.user_code import is_library, local_variables
from workerdiag.recorder.internals import frames_by_thread

#: Objects that are told of at most, and seconds that looking for them may take.
MAX_OBJECTS = 6
BUDGET_S = 0.03
#: Elements that are looked at of a container, and of one in a container, and so on; and of one object in all.
_SAMPLES, _FEW = (40, 12, 6, 3), 16
_MAX_ATTRIBUTES = 50
_MAX_FRAMES, _MAX_MODULES, _MAX_NAMES = 60, 200, 500
_NAME_CHARS, _PATH_CHARS = 64, 300
#: What runs a task: the frames that it called are the task's.
_RUNNER = ("distributed/worker.py", "distributed\\worker.py")
_OPAQUE: tuple[type, ...] = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType, FrameType),
    *(GetSetDescriptorType, MemberDescriptorType),
)
_PLAIN = (int, float, complex, bool, type(None), range, slice)
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_CACHED_FUNCTION: type = type(lru_cache(lambda: None))
#: Columns of these types point to objects of Python, unless they are stored by Arrow.
_PYTHON_DTYPES = ("object", "str", "string")
#: Results of one function that are kept, beyond which they are not listed; and columns of one table.
_MAX_CACHED, _MAX_COLUMNS = 50_000, 200


def largest_objects(tasks: Mapping[int, object], held_bytes: int) -> tuple[list[dict[str, object]], bool]:
    """The largest objects as plain `HeldObject`, and whether there was time to look at all.

    *tasks* has the key of the task that runs, by thread; an object with 2% of *held_bytes* is large.
    """
    census = _Census(int(held_bytes * 0.02), monotonic() + BUDGET_S)
    frames = frames_by_thread()
    for thread, key in tasks.items():
        if (frame := frames.get(thread)) is not None:
            census.look_at_stack(frame, str(key))
    for names in _user_modules():
        census.look_at_names(names)
    return census.found()


class _Census:
    def __init__(self, least_bytes: int, until: float) -> None:
        self._least_bytes = least_bytes
        self._until = until
        self._seen: set[int] = set()
        self._objects: list[dict[str, Any]] = []
        self._is_complete = True

    def found(self) -> tuple[list[dict[str, object]], bool]:
        ordered = sorted(self._objects, key=lambda each: each["size_bytes"], reverse=True)
        return ordered[:MAX_OBJECTS], self._is_complete

    def look_at_stack(self, innermost: FrameType, task: str) -> None:
        """Look at what the variables of a task hold, first those of the user's own code."""
        frames: list[FrameType] = []
        frame: FrameType | None = innermost
        while frame is not None and not _file(frame).endswith(_RUNNER):
            frames.append(frame)
            frame = frame.f_back
        if frame is None:  # the task has ended
            return
        del frames[_MAX_FRAMES:]
        frames.sort(key=lambda each: is_library(_file(each)))
        for each in frames:
            line = {"file": _file(each)[-_PATH_CHARS:], "line": each.f_lineno or 0, "function": each.f_code.co_name}
            for name, value in local_variables(each):
                self._look(name, value, line={**line, "task": task[:200]})
        modules = {id(each.f_globals): each.f_globals for each in frames if not is_library(_file(each))}
        for names in modules.values():
            self.look_at_names(names)

    def look_at_names(self, names: Mapping[Any, object]) -> None:
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        module = str(names.get("__name__", ""))
        for name, value in list(names.items())[:_MAX_NAMES]:
            if isinstance(name, str) and not name.startswith("__"):
                self._look(name, value, module=module[:_NAME_CHARS])
                if type(value) is type and value.__module__ == module:  # attributes of a class live as long
                    for attribute, held in list(vars(value).items())[:_MAX_ATTRIBUTES]:
                        if not attribute.startswith("__"):
                            self._look(f"{name}.{attribute}", held, module=module[:_NAME_CHARS])

    def _look(self, name: str, value: object, **where: object) -> None:
        value = _owner(value)
        if type(value) in _PLAIN or issubclass(type(value), _OPAQUE) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if monotonic() > self._until:
            self._is_complete = False
            return
        with suppress(Exception):  # it may be half-built, or of a class that does anything
            size_bytes = estimated_bytes(value)
            if size_bytes < self._least_bytes:
                return
            name, value, is_new = self._most_of(name, value, size_bytes)
            if is_new:
                told = {"name": name[:_NAME_CHARS], "type": _type_name(type(value)), "size_bytes": size_bytes}
                self._objects.append({**told, "count": _count(value), **where})

    def _most_of(self, name: str, value: object, size_bytes: int) -> tuple[str, object, bool]:
        """The attribute that has nearly all of an object, or the object; and whether it was not seen before."""
        for _ in range(2):
            parts = {} if _is_measured(value) else _attributes(value)
            largest = max(((estimated_bytes(part), key) for key, part in parts.items()), default=(0, ""))
            if largest[0] < 0.8 * size_bytes or not largest[1].isidentifier():
                break
            name, value = f"{name}.{largest[1]}", _owner(parts[largest[1]])
            if id(value) in self._seen:
                return name, value, False
            self._seen.add(id(value))
        return name, value, True


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _user_modules() -> Iterator[dict[str, object]]:
    """The names of each module that is neither of a library nor ours."""
    count = 0
    for name, module in reversed(list(sys.modules.items())):  # the user's own come late
        if not issubclass(type(module), ModuleType) or name.partition(".")[0] == "workerdiag":
            continue
        names = object.__getattribute__(module, "__dict__")  # which loads no lazy module
        file = names.get("__file__")
        if isinstance(file, str) and not is_library(file):
            yield names
            count += 1
            if count == _MAX_MODULES:
                return


# ------------------------------------------------------------------------------------------ sizes
def estimated_bytes(value: object) -> int:
    """About how much memory an object takes with all that it holds; whatever its class raises passes."""
    return _Sizer().of(value)


class _Sizer:
    """The size of one object. A part that is met twice counts once."""

    def __init__(self) -> None:
        self._looks_left = 1000
        self._seen: set[int] = set()

    def of(self, value: Any, depth: int = 0) -> int:
        value = _owner(value)
        kind = type(value)
        if kind in _PLAIN:
            return sys.getsizeof(value)
        if id(value) in self._seen or self._looks_left <= 0 or depth > len(_SAMPLES) or issubclass(kind, _OPAQUE):
            return 0
        self._seen.add(id(value))
        self._looks_left -= 1
        return _measure_for(cast("Hashable", kind))(self, value, depth)

    def elements(self, sample: Sequence[object], count: int, depth: int) -> int:
        """The size of *count* elements from a few; where most of these are one object, the others are too."""
        distinct = {id(each): each for each in map(_owner, sample)}
        if not distinct:
            return 0
        size = looked = 0
        for each in distinct.values():
            if self._looks_left <= 0:
                break
            size, looked = size + self.of(each, depth + 1), looked + 1
        if len(distinct) * 2 <= len(sample):
            count = len(distinct)
        return size * count // max(1, looked)


def _room(count: int, depth: int) -> int:
    """How many of *count* elements are looked at: all of a few, as one of them may be unlike the others."""
    return count if count <= _FEW else _SAMPLES[min(depth, len(_SAMPLES) - 1)]


def _evenly(count: int, depth: int) -> slice:
    return slice(None, None, max(1, -(-count // max(1, _room(count, depth)))))


def _ends(values: Any, depth: int) -> list[Any]:
    """All of a collection that has an order, or its beginning and its end: what is new is at one of them."""
    room = _room(len(values), depth)
    if len(values) <= room:
        return list(values)
    return [*islice(values, room // 2), *islice(reversed(values), room // 2)]


def _owner(value: Any) -> Any:
    """The array whose memory a numpy array shows, since a view keeps all of it; else the object itself."""
    numpy = sys.modules.get("numpy")
    array = getattr(numpy, "ndarray", None)
    while array is not None and issubclass(type(value), array):
        base = array.base.__get__(value)
        if not issubclass(type(base), array):
            break
        value = base
    return value


@lru_cache(maxsize=256)
def _measure_for(kind: Any) -> Callable[[_Sizer, Any, int], int]:
    for base in kind.__mro__:
        measure = _MEASURES.get(base) or _OF_LIBRARIES.get((base.__module__.partition(".")[0], base.__name__))
        if measure is not None:
            return measure
    return _object_bytes


def _is_measured(value: Any) -> bool:
    return type(value) in _PLAIN or _measure_for(cast("Hashable", type(value))) is not _object_bytes


def _attributes(value: Any) -> dict[str, object]:
    """What an object has in its dictionary and its slots; properties are left alone."""
    found: dict[str, object] = {}
    with suppress(AttributeError):
        found.update(islice(dict.items(object.__getattribute__(value, "__dict__")), _MAX_ATTRIBUTES))
    for name, slot in _slots_of(cast("Hashable", type(value))):
        with suppress(AttributeError):
            found[name] = slot.__get__(value)
    return found


@lru_cache(maxsize=256)
def _slots_of(kind: Any) -> tuple[tuple[str, Any], ...]:
    names = chain.from_iterable(vars(base).items() for base in kind.__mro__ if "__slots__" in vars(base))
    slots = ((name, slot) for name, slot in names if type(slot) is MemberDescriptorType)
    return tuple(islice(slots, _MAX_ATTRIBUTES))


def _object_bytes(sizer: _Sizer, value: object, depth: int) -> int:
    return object.__sizeof__(value) + sum(sizer.of(part, depth + 1) for part in _attributes(value).values())


def _plain_bytes(_: _Sizer, value: object, __: int) -> int:
    return object.__sizeof__(value)


def _dict_bytes(sizer: _Sizer, value: dict[object, object], depth: int) -> int:
    pairs, count = _ends(dict.items(value), depth), dict.__len__(value)
    sides = ([pair[side] for pair in pairs] for side in (0, 1))
    return dict.__sizeof__(value) + sum(sizer.elements(side, count, depth) for side in sides)


def _container_bytes(sizer: _Sizer, value: Any, depth: int) -> int:
    kind = _container_kind(value)
    count = kind.__len__(value)
    if kind in (list, tuple):
        sample = kind.__getitem__(value, _evenly(count, depth))
    elif kind is deque:
        half = -(-_room(count, depth) // 2)
        sample = [*islice(deque.__iter__(value), half), *islice(deque.__reversed__(value), half)]
    else:
        sample = list(islice(kind.__iter__(value), _room(count, depth)))
    return int(kind.__sizeof__(value)) + sizer.elements(sample, count, depth)


def _cached_bytes(sizer: _Sizer, function: Any, depth: int) -> int:
    """What ``functools.lru_cache`` keeps: a dictionary of the results, or each by itself if they are limited."""
    kept = gc.get_referents(function) if function.cache_info().currsize <= _MAX_CACHED else []
    whole = sum(sizer.of(each, depth) for each in kept if type(each) is dict and each)
    return whole if function.cache_info().maxsize is None else sizer.elements(_ends(kept, 0), len(kept), depth)


def _array_bytes(sizer: _Sizer, value: Any, depth: int) -> int:
    """The size of a numpy array that owns its memory, with the objects that it points to; 0 for a mapped file."""
    array = sys.modules["numpy"].ndarray
    if type(array.base.__get__(value)).__name__ == "mmap":
        return 0
    size = int(array.nbytes.__get__(value))
    if value.dtype.hasobject and value.dtype.names is None:
        flat = array.reshape(value, -1)
        size += sizer.elements(list(flat[_evenly(len(flat), depth)]), len(flat), depth)
    return size


def _table_bytes(sizer: _Sizer, value: Any, depth: int) -> int:
    """The size of a pandas DataFrame or Series, from a few rows of at most some hundred columns."""
    rows = len(value.index)
    few = value.iloc[_evenly(rows, depth)]
    columns = [few] if few.ndim == 1 else [column for _, column in islice(few.items(), _MAX_COLUMNS)]
    size = 0
    for column in columns:
        if column.dtype.name == "category":
            size += column.cat.codes.dtype.itemsize * rows + sizer.of(column.cat.categories, depth)
            continue
        size += column.nbytes * rows // max(1, len(few))
        if column.dtype.name in _PYTHON_DTYPES and getattr(column.dtype, "storage", "python") == "python":
            size += sizer.elements(column.tolist(), rows, depth)
    total = 1 if few.ndim == 1 else few.shape[1]
    return size * total // max(1, len(columns)) + sizer.of(value.index, depth)


def _index_bytes(sizer: _Sizer, value: Any, depth: int) -> int:
    size = int(value.memory_usage(deep=False))
    few = value[_evenly(len(value), depth)].tolist() if value.dtype == object and value.nlevels == 1 else []
    return size + sizer.elements(few, len(value), depth)


#: By the class that is first in the order of the object's bases.
_MEASURES: Mapping[type, Callable[[_Sizer, Any, int], int]] = {
    str: lambda _, value, __: str.__sizeof__(value),
    bytes: lambda _, value, __: bytes.__sizeof__(value),
    bytearray: lambda _, value, __: bytearray.__sizeof__(value),
    array: lambda _, value, __: array.__sizeof__(value),
    memoryview: lambda _, value, __: int(value.nbytes),
    dict: _dict_bytes,
    **dict.fromkeys(_CONTAINERS, _container_bytes),
    _CACHED_FUNCTION: _cached_bytes,
    partial: lambda sizer, value, depth: sizer.of((*value.args, value.keywords), depth),
}
#: By package and name of the class.
_OF_LIBRARIES: Mapping[tuple[str, str], Callable[[_Sizer, Any, int], int]] = {
    ("numpy", "ndarray"): _array_bytes,
    ("numpy", "generic"): _plain_bytes,
    ("pandas", "DataFrame"): _table_bytes,
    ("pandas", "Series"): _table_bytes,
    ("pandas", "RangeIndex"): _plain_bytes,
    ("pandas", "Index"): _index_bytes,
    ("torch", "Tensor"): lambda _, value, __: 0 if value.is_cuda else int(value.nbytes),
    **{
        ("pyarrow", name): lambda _, value, __: int(value.nbytes)
        for name in ("Table", "RecordBatch", "Array", "ChunkedArray")
    },
    **{("polars", name): lambda _, value, __: int(value.estimated_size()) for name in ("DataFrame", "Series")},
}


def _container_kind(value: object) -> Any:
    return next((kind for kind in _CONTAINERS if issubclass(type(value), kind)), None)


def _count(value: object) -> int | None:
    kind: Any = dict if issubclass(type(value), dict) else _container_kind(value)
    return None if kind is None else int(kind.__len__(value))


def _type_name(kind: type) -> str:
    module = kind.__module__.partition(".")[0]
    return (kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}")[:_NAME_CHARS]
