"""The one strict converter between plain values, as TOML and JSON have them, and attrs values.

A value must be of exactly the type of its field; nothing is converted. cattrs is imported at the first use.
"""

from __future__ import annotations

import math
import reprlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

from attrs import Attribute, fields, has

from workerdiag.errors import error_text

if TYPE_CHECKING:
    from cattrs import Converter

#: Which keys an object has: ``all`` of its class (but those that were ``added_later``, by their metadata) and no
#: others; ``known``: no others; ``any``: others too, which are ignored, as is ``null``: a newer version may write
#: more.
Keys = Literal["all", "known", "any"]

#: The types of plain values, as JSON names them.
PRIMITIVES: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}


def strict_converter(keys: Keys, *, with_places: bool = True) -> Converter:
    """A new converter, to which hooks may be added.

    *keys* are those that objects may have; with ``any``, defaults are left out on writing. *with_places* goes
    on after a mistake, so that `problem_lines` has all of them.
    """
    from cattrs import Converter

    made = Converter(
        forbid_extra_keys=keys != "any", omit_if_default=keys == "any", detailed_validation=with_places
    )
    for primitive in (str, int, bool):
        made.register_structure_hook(primitive, _exact_type(primitive))
    made.register_structure_hook(float, _finite_number)
    made.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else None)
    made.register_structure_hook_func(_is_of(Literal), _member)
    made.register_structure_hook_factory(_is_of(tuple), _tuple_hook)
    made.register_structure_hook_factory(_is_of(Mapping), _mapping_hook)
    made.register_structure_hook_factory(has, lambda cls, converter: _object_hook(cls, converter, keys))
    return made


def problem_lines(problem: Exception) -> list[str]:
    """One line for each thing that is wrong, with its place: ``.causes[0].title: expected string, got 9``."""
    from cattrs import transform_error

    lines = []
    for line in transform_error(problem, path="", format_exception=lambda exc, _: _sentence(exc)):
        what, _, where = line.rpartition(" @ ")
        lines.append(f"{where}: {what}" if what and where else what or line)
    return list(dict.fromkeys(lines))


def quote_value(value: object) -> str:
    """A value as a mistake quotes it: in a few words, however long it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__} that is too long to show"


def _sentence(problem: BaseException) -> str:
    from cattrs.errors import ForbiddenExtraKeysError

    match problem:
        case ForbiddenExtraKeysError():
            return f"unknown key {', '.join(sorted(problem.extra_fields))}"
        case KeyError():
            return f"the key {problem.args[0]!r} is missing"
        case ValueError() if len(problem.args) > 1:  # of an attrs validator
            return str(problem.args[0])
        case _:
            return error_text(problem)


def _object_hook(cls: type, converter: Converter, keys: Keys) -> Callable[[object, object], object]:
    from cattrs.gen import make_dict_structure_fn, override

    attributes = fields(cls)
    required = [each.name for each in attributes if keys == "all" and not each.metadata.get("added_later")]
    checked: Any = {
        each.name: override(struct_hook=_validated(each, converter)) for each in attributes if each.validator
    }
    structure: Callable[[object, object], object]
    structure = cast("Any", make_dict_structure_fn)(cls, converter, **checked)

    def hook(value: object, _: object) -> object:
        given = _object(value)
        if missing := [name for name in required if name not in given]:
            raise ValueError(f"missing {', '.join(missing)}")
        if keys == "any":
            given = {key: each for key, each in given.items() if each is not None}
        return structure(given, cls)

    return hook


def _validated(attribute: Attribute[object], converter: Converter) -> Callable[[object, object], object]:
    """Runs the validator of attrs here, where a problem gets its place."""

    def hook(value: object, hint: Any) -> object:
        structured = converter.structure(value, hint)
        if attribute.validator is not None:
            attribute.validator(None, attribute, structured)
        return structured

    return hook


def _is_of(origin: object) -> Callable[[object], bool]:
    return lambda hint: get_origin(hint) is origin


def _tuple_hook(hint: Any, converter: Converter) -> Callable[[object, object], object]:
    items: object = types.GenericAlias(list, get_args(hint)[0])
    structure = converter.get_structure_hook(items)

    def hook(value: object, _: object) -> object:
        if not isinstance(value, list | tuple):
            raise TypeError(f"expected a list, got {quote_value(value)}")
        return tuple(structure(value, items))

    return hook


def _mapping_hook(hint: object, converter: Converter) -> Callable[[object, object], object]:
    items: object = types.GenericAlias(dict, get_args(hint))
    structure = converter.get_structure_hook(items)
    return lambda value, _: structure(_object(value), items)


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {quote_value(value)}")
    return value


def _exact_type(expected: type) -> Callable[[object, object], object]:
    def hook(value: object, _: object) -> object:
        if type(value) is not expected:
            raise TypeError(f"expected {PRIMITIVES[expected]}, got {quote_value(value)}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise TypeError("expected an integer of at most 64 bits")
        return value

    return hook


def _finite_number(value: object, _: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"expected number, got {quote_value(value)}")
    if not abs(value) <= sys.float_info.max:  # a NaN is not less, and Python reads 1e999 as infinity
        raise ValueError(f"expected a finite number, got {quote_value(value)}")
    return float(value)


def _member(value: object, hint: object) -> object:
    words = get_args(hint)
    if value not in words:
        raise ValueError(f"expected one of {', '.join(words)}, got {quote_value(value)}")
    return value
