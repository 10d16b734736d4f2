"""
Wire classes to plain data and back: dictionaries, lists, text and numbers, as msgpack and JSON hold them.

Writing is strict. Reading is forgiving, since anybody may have written what arrives: a field that is unknown
or broken is dropped and named, and the rest is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields, has

T = TypeVar("T")

#: Seconds since the epoch of year 5138; what is more is no time and no duration.
_MAX_FLOAT = 1e11
_MAX_INT = 2**63

#: Value, its path within the message, and the list of dropped paths, to the value read.
_Reader = Callable[[Any, str, list[str]], Any]


class BrokenValueError(ValueError):
    """
    A value is not of the type that its field has.
    """


def to_plain(value: Any) -> Any:
    """
    The value as plain data; fields that are None are left out.
    """
    kind = type(value)
    if kind in (str, int, float, bool):
        return value
    if kind is tuple:
        return [to_plain(each) for each in value]
    if has(kind):
        pairs = ((name, getattr(value, name)) for name in _field_names(kind))
        return {name: to_plain(each) for name, each in pairs if each is not None}
    return dict(value) if isinstance(value, Mapping) else value


def from_plain(kind: type[T], value: object, dropped: list[str]) -> T:
    """
    The value of *kind* in plain data.

    Args:
        kind: A class of this package.
        value: What arrived.
        dropped: Gets the path of each field or item that is left out, such as ``box.samples[3].at``.

    Raises:
        BrokenValueError: The data is no mapping, or lacks a field that has no default.
    """
    hashable: Any = kind
    read: T = _reader(hashable)(value, "", dropped)
    return read


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.init)


@cache
def _reader(kind: Any) -> _Reader:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is Literal:
        return lambda value, *_: _checked(value, isinstance(value, str) and value in arguments)
    if origin in (UnionType, Union):  # of one type and None
        (inner,) = (_reader(each) for each in arguments if each is not NoneType)
        return lambda value, path, dropped: None if value is None else inner(value, path, dropped)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    return _object_reader(kind) if has(kind) else _read_text_mapping


def _object_reader(kind: type) -> _Reader:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name]) for name in _field_names(kind)}
    required = [each.name for each in fields(kind) if each.init and each.default is NOTHING]

    def read(value: Any, path: str, dropped: list[str]) -> Any:
        _checked(value, isinstance(value, Mapping))
        found: dict[str, Any] = {}
        for name, each in value.items():
            if each is None:
                continue
            try:
                found[name] = readers.get(name, _refuse)(each, f"{path}{name}.", dropped)
            except BrokenValueError:
                dropped.append(f"{path}{name}"[:100])
        if not all(name in found for name in required):
            raise BrokenValueError
        return kind(**found)

    return read


def _tuple_reader(reader: _Reader) -> _Reader:
    def read(value: Any, path: str, dropped: list[str]) -> Any:
        _checked(value, isinstance(value, list | tuple))
        found = []
        for number, each in enumerate(value):
            item = f"{path[:-1]}[{number}]"
            try:
                found.append(reader(each, f"{item}.", dropped))
            except BrokenValueError:
                dropped.append(item[:100])
        return tuple(found)

    return read


def _read_text_mapping(value: Any, path: str, dropped: list[str]) -> dict[str, str]:
    _checked(value, isinstance(value, Mapping))
    texts = {name: each for name, each in value.items() if isinstance(name, str) and isinstance(each, str)}
    if len(texts) < len(value):
        dropped.append(path[:-1])
    return texts


def _refuse(*_: object) -> None:
    raise BrokenValueError


def _read_int(value: Any, *_: object) -> int:
    """
    All integers of the wire are counts, sizes or process ids.
    """
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(_checked(value, is_whole and 0 <= value < _MAX_INT))


def _read_float(value: Any, *_: object) -> float:
    return float(_checked(value, type(value) in (int, float) and abs(value) < _MAX_FLOAT and isfinite(value)))


def _checked(value: T, is_valid: bool) -> T:  # noqa: FBT001
    if not is_valid:
        raise BrokenValueError
    return value


_SCALARS: dict[Any, _Reader] = {
    str: lambda value, *_: _checked(value, isinstance(value, str)),
    bool: lambda value, *_: _checked(value, isinstance(value, bool)),
    int: _read_int,
    float: _read_float,
}
