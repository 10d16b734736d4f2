"""Reads a pickled exception without the classes in it.

If client and scheduler have different releases, or the client lacks a class, the client gets
``Exception(<pickled bytes>)`` (``clean_exception`` in distributed/core.py, all releases up to 2026.8.0).
Python's own unpickler runs here with stand-ins for all classes and functions, so nothing is imported or called.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pickle import FRAME, _Unpickler  # the one in Python, whose stack can be read
from typing import Any, ClassVar, Self, cast

from workerdiag.guard import guarded

MAX_BYTES = 2**20
_MAX_NAME_CHARS = 300
#: Functions with which tblib rebuilds an exception of a registered class; the second since tblib 3.2.
#: Both take the class, then its arguments or its attributes.
_TBLIB_REBUILDERS = {
    "tblib.pickling_support.unpickle_exception",
    "tblib.pickling_support.unpickle_exception_with_attrs",
}


class PickledObject:
    """A stand-in for what the pickle would create by calling a class or function; each has a class of its own."""

    #: ``distributed.scheduler.KilledWorker``
    type: ClassVar[str] = "?"
    args: tuple[object, ...]
    #: Its attributes, or the items it is filled with.
    state: dict[object, object]

    def __new__(cls, *args: object, **_: object) -> Self:
        """Create it as the unpickler does, without calling ``__init__``."""
        made = super().__new__(cls)
        made.args, made.state = args, {}
        return made

    def __setstate__(self, state: object) -> None:
        for part in state if isinstance(state, tuple) else (state,):  # a pair for a class with slots
            if isinstance(part, dict):
                self.state |= part

    def __setitem__(self, key: object, value: object) -> None:
        self.state[key] = value

    def plain_values(self) -> Iterator[str | int | float]:
        """Yield the text and numbers in its arguments and state, in order; those of each part once."""
        waiting: list[object] = [self]
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            if isinstance(value, str | int | float):
                yield value
            elif isinstance(value, tuple | list | dict | PickledObject) and id(value) not in seen:
                seen.add(id(value))
                if isinstance(value, PickledObject):
                    value = (*value.args, value.state)
                parts = [part for item in value.items() for part in item] if isinstance(value, dict) else value
                waiting += reversed(parts)


class _StandInUnpickler(_Unpickler):
    """Creates stand-ins; bytes that are cut off are read as far as they go."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.stack: list[Any] = []
        self.metastack: list[list[Any]] = []

    def find_class(self, module: str, name: str) -> type[PickledObject]:
        full = f"{module[:_MAX_NAME_CHARS]}.{name[:_MAX_NAME_CHARS]}"
        return type("Named", (PickledObject,), {"type": full})

    #: Reads on without waiting for a whole frame.
    dispatch: ClassVar[dict[int, Any]] = {**_Unpickler.dispatch, FRAME[0]: lambda self: self.read(8)}


def read_pickled(data: bytes) -> PickledObject | None:
    """Return the exception in *data* if it is a pickled instance of a class, else None.

    A truncated pickle yields the class and the complete arguments.
    """
    if not data.startswith(b"\x80"):  # protocols 2 and later; cloudpickle writes 4 or 5
        return None
    unpickler = _StandInUnpickler(data[:MAX_BYTES])
    found: object = None
    with guarded("reading a pickle"):
        found = unpickler.load()
    if found is None:  # it is cut off: the call at its bottom has the arguments above it
        bottom, *args = [each for part in (*unpickler.metastack, unpickler.stack) for each in part] or [None]
        found = bottom(*args) if isinstance(bottom, type) else bottom
    if isinstance(found, PickledObject) and found.type in _TBLIB_REBUILDERS:
        found = _rebuilt_by_tblib(found)
    is_of_class = isinstance(found, PickledObject) and found.type.replace(".", "_").isidentifier()
    return cast("PickledObject", found) if is_of_class else None


def _rebuilt_by_tblib(call: PickledObject) -> PickledObject | None:
    if not (len(call.args) > 1 and isinstance(call.args[0], type)):
        return None
    made_from = call.args[1]
    args = made_from.get("args") if isinstance(made_from, dict) else made_from
    rebuilt: PickledObject = call.args[0](*(args if isinstance(args, tuple) else ()))
    rebuilt.state = call.state
    return rebuilt
