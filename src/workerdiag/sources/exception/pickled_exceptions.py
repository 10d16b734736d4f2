"""
What a pickled exception says, without unpickling it.

Where client and scheduler are of different releases, or a class is not installed on the client, the
client gets ``Exception(<pickled bytes>)`` (``clean_exception`` in distributed/core.py, all releases up
to 2026.8.0). Its opcodes are only read here (`pickletools.genops` runs nothing), so hostile bytes stay bytes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from itertools import pairwise

from attrs import field, frozen

#: An exception is small; what follows so many opcodes is data it carries.
_MAX_OPCODES = 5000
MAX_BYTES = 2**20
#: Opcodes that keep a value for later, or get it back, by number.
_PUT_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}
_GET_OPCODES = {"GET", "BINGET", "LONG_BINGET"}
#: Opcodes between the name of an attribute and its value.
_SKIPPED_OPCODES = {"MEMOIZE", "FRAME", "MARK", *_PUT_OPCODES}
_EMPTY_OPCODES = {"EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "EMPTY_TUPLE"}
_Value = str | int | float | None


@frozen(kw_only=True)
class PickledException:
    """
    The class of a pickled exception and the plain values in it.
    """

    #: ``distributed.scheduler.KilledWorker``
    type: str
    #: Text and numbers in their order, after the name of the class.
    values: tuple[str | int | float, ...]
    #: Each text that another plain value follows, with that value: attribute names, among others.
    attributes: Mapping[str, str | int | float] = field(hash=False)


def read_pickled(data: bytes) -> PickledException | None:
    """
    What *data* holds if it is a pickled instance of some class, else None.
    """
    if not data.startswith(b"\x80"):  # protocols 2 and later; cloudpickle writes 4 or 5
        return None
    values = _plain_values(data[:MAX_BYTES])
    if values[:1] == ["tblib.pickling_support"]:  # its function that rebuilds, then the class
        values = values[2:]
    if len(values) < 2 or not isinstance(values[0], str) or not isinstance(values[1], str):
        return None
    name, rest = f"{values[0]}.{values[1]}", values[2:]
    if not name.replace(".", "_").isidentifier():
        return None
    attributes: dict[str, str | int | float] = {}
    for key, value in pairwise(rest):
        if isinstance(key, str) and value is not None:
            attributes.setdefault(key, value)
    return PickledException(
        type=name,
        values=tuple(value for value in rest if value is not None),
        attributes=attributes,
    )


def _plain_values(data: bytes) -> list[_Value]:
    """
    Text and numbers in the order in which they are put on the stack; None for anything else.
    """
    values: list[_Value] = []
    memo: dict[int, _Value] = {}
    last: _Value = None
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count >= _MAX_OPCODES:
                break
            if opcode.name == "MEMOIZE":
                memo[len(memo)] = last
            elif opcode.name in _PUT_OPCODES:
                memo[int(argument or 0)] = last
            elif opcode.name == "GLOBAL":  # protocol 2: module and name in one
                values += [*str(argument).split(" ", 1)]
            elif opcode.name in _GET_OPCODES:
                last = memo.get(int(argument or 0))
                values.append(last)
            elif opcode.name not in _SKIPPED_OPCODES:
                last = _plain_value(opcode.name, argument)
                if last is not None or opcode.name in _EMPTY_OPCODES | {"NONE"}:
                    values.append(last)
    except Exception:  # noqa: BLE001  genops raises what it likes on bytes that are no pickle, or cut off
        return values
    return values


def _plain_value(opcode: str, argument: object) -> _Value:
    if opcode in ("PROTO", "FRAME"):
        return None
    return argument if isinstance(argument, str | int | float) else None
