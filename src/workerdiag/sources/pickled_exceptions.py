"""Reads a pickled exception without unpickling it.

If client and scheduler have different releases, or the client lacks a class, the client gets
``Exception(<pickled bytes>)`` (``clean_exception`` in distributed/core.py, all releases up to 2026.8.0).
This module follows the opcodes on a stack of stand-ins. `pickletools.genops` imports and runs nothing, and
nothing is hashed, so hostile bytes do no harm.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from workerdiag.guard import guarded

#: Maximum number of opcodes read: an exception is small, and the rest is data that it carries.
_MAX_OPCODES = 20_000
MAX_BYTES = 2**20
#: Maximum number of keys and values kept of one object's state, and of characters of a name.
_MAX_ITEMS, _MAX_NAME_CHARS = 2000, 300
_PUT_OPCODES = {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}
_MEMO_OPCODES = {*_PUT_OPCODES, "GET", "BINGET", "LONG_BINGET"}
#: Opcodes that fill the container below them with this many values, or with all values above the mark.
_FILLED_FROM_STACK = {"APPEND": 1, "SETITEM": 2}
_FILLED_TO_MARK = {"APPENDS", "SETITEMS", "ADDITEMS"}
#: Functions with which tblib rebuilds an exception of a registered class; the second since tblib 3.2.
#: Both take the class, then its arguments or its attributes.
_TBLIB_REBUILDERS = {
    "tblib.pickling_support.unpickle_exception",
    "tblib.pickling_support.unpickle_exception_with_attrs",
}
_MARK = object()


@define(eq=False)
class PickledObject:
    """A stand-in for what the pickle would create by calling a class or function."""

    #: ``distributed.scheduler.KilledWorker``
    type: str
    args: tuple[object, ...]
    #: Its attributes, or the items it is filled with; keys and values alternate.
    state: list[object] = field(factory=list)

    def attribute(self, name: str) -> object:
        """Return the value of one attribute, or None."""
        pairs = zip(self.state[::2], self.state[1::2], strict=False)
        return next((value for key, value in pairs if isinstance(key, str) and key == name), None)

    def plain_values(self) -> Iterator[str | int | float]:
        """Yield the text and numbers in its arguments and state, in order; those of each part once."""
        waiting: list[object] = [self]
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            if isinstance(value, str | int | float):
                yield value
            elif isinstance(value, tuple | PickledObject) and id(value) not in seen:
                seen.add(id(value))
                parts = value if isinstance(value, tuple) else (*value.args, *value.state)
                waiting += reversed(parts)


@frozen
class _Global:
    name: str


def read_pickled(data: bytes) -> PickledObject | None:
    """Return the exception in *data* if it is a pickled instance of a class, else None.

    A truncated pickle yields the class and the complete arguments.
    """
    if not data.startswith(b"\x80"):  # protocols 2 and later; cloudpickle writes 4 or 5
        return None
    found = _root(_Stack().run(data[:MAX_BYTES]))
    if found is not None and found.type in _TBLIB_REBUILDERS:
        found = _rebuilt_by_tblib(found)
    return found if found is not None and found.type.replace(".", "_").isidentifier() else None


def _rebuilt_by_tblib(call: PickledObject) -> PickledObject | None:
    if not (len(call.args) > 1 and isinstance(call.args[0], _Global)):
        return None
    name, made_from = call.args[0].name, call.args[1]
    args = made_from.attribute("args") if isinstance(made_from, PickledObject) else made_from
    return PickledObject(name, args if isinstance(args, tuple) else (), call.state)


def _root(stack: list[object]) -> PickledObject | None:
    """Return the bottom of the stack: the result of a complete pickle, else the pending call."""
    values = [each for each in stack if each is not _MARK]
    if values and isinstance(values[0], _Global):
        return PickledObject(values[0].name, tuple(values[1:]))
    return values[0] if values and isinstance(values[0], PickledObject) else None


class _Stack:
    """The stack of the pickle machine, with `PickledObject`, `_Global`, tuples and plain values on it."""

    def __init__(self) -> None:
        self._items: list[object] = []
        self._memo: dict[int, object] = {}

    def run(self, data: bytes) -> list[object]:
        """Follow the opcodes to the end, or as far as they are valid; return the stack."""
        with guarded("reading a pickle"):  # genops raises anything on invalid or truncated pickles
            for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
                if opcode.name == "STOP" or count >= _MAX_OPCODES:
                    break
                self._follow(opcode, argument)
        return self._items

    def _follow(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        name = opcode.name
        if name in _MEMO_OPCODES:
            at = argument if isinstance(argument, int) else len(self._memo)
            if name in _PUT_OPCODES:
                self._memo[at] = self._items[-1]
            else:
                self._items.append(self._memo[at])
        elif (make := _MAKERS.get(name)) is not None:
            self._items.append(make(self, argument))
        elif name in _FILLED_FROM_STACK:
            self._fill(self.pop(_FILLED_FROM_STACK[name]))
        elif name in _FILLED_TO_MARK:
            self._fill(self.pop_to_mark())
        elif name == "BUILD":
            state = self.pop(1)[0]  # a mapping, or a pair of mappings for a class with slots
            parts = state if isinstance(state, tuple) else (state,)
            self._fill([item for part in parts if isinstance(part, PickledObject) for item in part.state])
        else:
            self._follow_any_other(opcode, argument)

    def call(self) -> PickledObject:
        """Return what the class or function below the arguments on top of the stack would return."""
        callee, args = self.pop(2)
        called = callee.name if isinstance(callee, _Global) else "?"
        return PickledObject(called, args if isinstance(args, tuple) else ())

    def name_global(self) -> _Global:
        """Return the class or function whose module and name are on top of the stack."""
        texts = [each if isinstance(each, str) else "?" for each in self.pop(2)]
        return _Global(".".join(each[:_MAX_NAME_CHARS] for each in texts))

    def _follow_any_other(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        """Pop what the opcode pops, and push a plain or an unknown value."""
        if pickletools.markobject in opcode.stack_before:
            self.pop_to_mark()
        else:
            self.pop(len(opcode.stack_before))
        for made in opcode.stack_after:
            is_container = made in (pickletools.pydict, pickletools.pylist, pickletools.pyset)
            plain = argument if isinstance(argument, str | int | float) else None
            self._items.append(PickledObject("?", ()) if is_container else plain)

    def pop(self, count: int) -> list[object]:
        """Pop the topmost *count* values."""
        if len(self._items) < count:
            raise ValueError("the stack is empty")
        popped = self._items[len(self._items) - count :]
        del self._items[len(self._items) - count :]
        return popped

    def pop_to_mark(self) -> list[object]:
        """Pop the topmost mark and all values above it."""
        at = next(at for at in reversed(range(len(self._items))) if self._items[at] is _MARK)
        popped = self._items[at + 1 :]
        del self._items[at:]
        return popped

    def _fill(self, items: list[object]) -> None:
        owner = self._items[-1]
        if isinstance(owner, PickledObject):
            owner.state += items[: _MAX_ITEMS - len(owner.state)]


#: Opcodes that push one value.
_MAKERS: dict[str, Callable[[_Stack, object], object]] = {
    "MARK": lambda _stack, _: _MARK,
    "GLOBAL": lambda _, name: _Global(str(name).replace(" ", ".", 1)),  # protocols 2 and 3
    "STACK_GLOBAL": lambda stack, _: stack.name_global(),
    "EMPTY_TUPLE": lambda _stack, _: (),
    "TUPLE1": lambda stack, _: tuple(stack.pop(1)),
    "TUPLE2": lambda stack, _: tuple(stack.pop(2)),
    "TUPLE3": lambda stack, _: tuple(stack.pop(3)),
    "TUPLE": lambda stack, _: tuple(stack.pop_to_mark()),
    "REDUCE": lambda stack, _: stack.call(),
    "NEWOBJ": lambda stack, _: stack.call(),
}
