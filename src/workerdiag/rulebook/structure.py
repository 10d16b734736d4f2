"""
From plain tables to rules, strictly: exact types, no unknown keys, every mistake worded.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

from attrs import fields

from workerdiag.errors import error_text
from workerdiag.model.mitigation import Mitigation
from workerdiag.model.signs import Sign
from workerdiag.rulebook.schema import FIELD_OF_TABLE, KIND_OF, SIGN_KINDS

if TYPE_CHECKING:
    from cattrs import Converter

_MAX_INTEGER = 2**63


def table_problems(content: Any, cls: type[Any], problem: Exception) -> list[str]:
    """
    One line for each thing that is wrong with a table from which *cls* could not be made.

    Args:
        content: The table.
        cls: What it should become.
        problem: What the converter raised.
    """
    return list(dict.fromkeys((*_problem_lines(problem), *_invalid_values(content, cls, ""))))


def quote_value(value: object) -> str:
    """
    A value as a mistake quotes it: in a few words, however long it is.
    """
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a {type(value).__name__} that is too long to show"


def rule_converter() -> Converter:
    """
    One converter of our own: exact types, no unknown keys, tagged signs.
    """
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn

    made = Converter(forbid_extra_keys=True, detailed_validation=True)
    for primitive in (str, int, bool):
        made.register_structure_hook(primitive, _exact_type(primitive))
    made.register_structure_hook(float, _strict_number)
    makers: dict[type[Any], Callable[..., Any]] = {
        cls: make_dict_structure_fn(cls, made, _cattrs_forbid_extra_keys=True) for cls in SIGN_KINDS.values()
    }

    def sign(value: Any, _: Any) -> Sign:
        if not isinstance(value, dict):
            raise TypeError(f"expected a table, got {quote_value(value)}")
        kind = str(value.get("kind"))
        if kind not in SIGN_KINDS:
            raise ValueError(f"kind must be one of {', '.join(SIGN_KINDS)}, got {kind!r}")
        rest = {key: each for key, each in value.items() if key != "kind"}
        return cast("Sign", makers[SIGN_KINDS[kind]](rest, SIGN_KINDS[kind]))

    def items(value: Any, cls: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):  # cattrs would take the characters of a text
            raise TypeError(f"expected a list, got {quote_value(value)}")
        return tuple(made.structure(value, cast("Any", list)[get_args(cls)[0]]))

    made.register_structure_hook_func(lambda cls: cls == Sign, sign)
    made.register_structure_hook_func(_is_tuple, items)
    for cls, kind in KIND_OF.items():
        made.register_unstructure_hook(cls, _unstructure_tagged(made, cls, kind))
    return made


def _is_tuple(cls: Any) -> bool:
    return get_origin(cls) is tuple


def _unstructure_tagged(converter: Converter, cls: type[Any], kind: str) -> Callable[[Any], dict[str, Any]]:
    def unstructure(sign: Any) -> dict[str, Any]:
        return {"kind": kind} | {
            each.name: converter.unstructure(getattr(sign, each.name)) for each in fields(cls)
        }

    return unstructure


def _exact_type(expected: type[Any]) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(f"expected {expected.__name__}, got {quote_value(value)}")
        if expected is int and abs(value) >= _MAX_INTEGER:
            raise TypeError("expected an integer of at most 64 bits")
        return value

    return check


def _strict_number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"expected a number, got {quote_value(value)}")
    if not abs(value) < _MAX_INTEGER:  # a NaN is not less
        raise TypeError("expected a finite number")
    return float(value)


def _problem_lines(problem: Exception) -> list[str]:
    """
    One line for each thing that is wrong, as ``.sign[0].grade: what``.
    """
    from cattrs import transform_error
    from cattrs.errors import ForbiddenExtraKeysError

    def words(exc: BaseException, _: Any) -> str:
        match exc:
            case ForbiddenExtraKeysError():
                return f"unknown key {', '.join(sorted(exc.extra_fields))}"
            case KeyError():
                return f"the key {exc.args[0]!r} is missing"
            case ValueError() if len(exc.args) > 1 and hasattr(exc.args[1], "name"):
                return ""  # of an attrs validator: see `_invalid_values`
            case _:
                return error_text(exc)

    lines = []
    for line in transform_error(problem, path="", format_exception=words):
        what, _, where = line.rpartition(" @ ")
        if what:
            lines.append(f"{_toml_path(where) or '.'}: {what}")
    return lines


def _toml_path(path: str) -> str:
    for singular, plural in FIELD_OF_TABLE.items():
        path = path.replace(f".{plural}[", f".{singular}[")
    return path


def _invalid_values(table: Any, cls: type[Any], path: str) -> Iterator[str]:
    """
    Values that a field's own validator refuses. cattrs stops before these when a key is wrong.
    """
    for each in fields(cls) if isinstance(table, dict) else ():
        value = table.get(each.name)
        if each.name in table and each.validator is not None:
            try:
                each.validator(None, each, value)
            except ValueError as problem:
                yield f"{path}.{each.name}: {problem.args[0]}"
            except TypeError:  # the converter has said so
                continue
        for index, inner in enumerate(value if isinstance(value, list) else ()):
            if inner_cls := _class_in_list(each.name, inner):
                yield from _invalid_values(inner, inner_cls, _toml_path(f"{path}.{each.name}[{index}]"))


def _class_in_list(name: str, table: Any) -> type[Any] | None:
    if name in ("signs", "against") and isinstance(table, dict):
        return SIGN_KINDS.get(str(table.get("kind")))
    return Mitigation if name == "mitigations" else None
