"""Wire classes to plain data and back: dictionaries, lists, text and numbers, as msgpack and JSON hold them.

Writing is strict. Reading is forgiving, since anybody may have written what arrives: a field that is unknown
or broken is dropped and named, and the rest is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields, has

T = TypeVar("T")

#: Seconds since the epoch of year 5138; what is more is no time and no duration.
_MAX_FLOAT = 1e11
#: Stands for a part that is left out.
_BROKEN = object()

#: Value and the list of dropped paths, to the value read.
_Reader = Callable[[object, list[str]], Any]
#: Values that are plain data themselves.
_ATOMS = frozenset({str, int, float, bool})


class BrokenValueError(ValueError):
    """A value is not of the type that its field has."""


def to_plain(value: object) -> Any:
    """The value as plain data; fields that are None are left out."""
    kind: object = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    pairs = ((name, getattr(value, name)) for name in _field_names(kind))
    return {name: each if type(each) in _ATOMS else to_plain(each) for name, each in pairs if each is not None}


def from_plain(kind: type[T], value: object, dropped: list[str]) -> T:
    """The value of *kind*, a class of this package, in plain data.

    *dropped* gets the path of each field or item that is left out, such as ``box.samples[3].at``.

    Raises:
        BrokenValueError: The data is no mapping, or lacks a field that has no default.
    """
    hashable: Any = kind
    read: T = _reader(hashable)(value, dropped)
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
        return lambda value, dropped: None if value is None else inner(value, dropped)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    if origin is Mapping:
        return _read_text_mapping
    if not has(kind):
        raise TypeError(f"no field of the wire has the type {kind}")
    return _object_reader(kind)


def _object_reader(kind: type) -> _Reader:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name]) for name in _field_names(kind)}
    required = [each.name for each in fields(kind) if each.init and each.default is NOTHING]

    def read(value: object, dropped: list[str]) -> object:
        found: dict[str, object] = {}
        for name, each in _checked_mapping(value).items():
            if each is not None:
                part = _read_part(readers.get(name, _refuse), each, name, dropped)
                if part is not _BROKEN:
                    found[name] = part
        if not all(name in found for name in required):
            raise BrokenValueError
        return kind(**found)

    return read


def _tuple_reader(reader: _Reader) -> _Reader:
    def read(value: object, dropped: list[str]) -> object:
        if not isinstance(value, list | tuple):
            raise BrokenValueError
        parts = [_read_part(reader, each, place, dropped) for place, each in enumerate(value)]
        return tuple(part for part in parts if part is not _BROKEN)

    return read


def _read_part(reader: _Reader, value: object, place: object, dropped: list[str]) -> object:
    """The value of a field or item, or `_BROKEN`; paths are made only of what is dropped."""
    known = len(dropped)
    try:
        part = reader(value, dropped)
    except BrokenValueError:
        dropped[known:] = [_path(place, "")]
        return _BROKEN
    if len(dropped) > known:
        dropped[known:] = [_path(place, each) for each in dropped[known:]]
    return part


def _path(place: object, rest: str) -> str:
    start = f"[{place}]" if isinstance(place, int) else str(place)[:50]
    return f"{start}.{rest}" if rest and not rest.startswith("[") else f"{start}{rest}"


def _read_text_mapping(value: object, dropped: list[str]) -> dict[str, str]:
    given = _checked_mapping(value)
    texts = {name: each for name, each in given.items() if isinstance(name, str) and isinstance(each, str)}
    dropped += [_path(str(name), "") for name in given if name not in texts]
    return texts


def _refuse(*_: object) -> None:
    raise BrokenValueError


def _read_int(value: object, *_: object) -> int:
    """All integers of the wire are counts, sizes or process ids."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63 or value % 1:
        raise BrokenValueError
    return int(value)


def _read_float(value: object, *_: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BrokenValueError
    if not abs(value) < _MAX_FLOAT:  # also of NaN
        raise BrokenValueError
    return float(value)


def _checked_mapping(value: object) -> Mapping[Any, object]:
    if not isinstance(value, Mapping):
        raise BrokenValueError
    return value


def _checked(value: T, is_valid: bool) -> T:  # noqa: FBT001
    if not is_valid:
        raise BrokenValueError
    return value


_SCALARS: dict[object, _Reader] = {
    str: lambda value, *_: _checked(value, isinstance(value, str)),
    bytes: lambda value, *_: _checked(value, isinstance(value, bytes)),
    bool: lambda value, *_: _checked(value, isinstance(value, bool)),
    int: _read_int,
    float: _read_float,
}
