"""
From plain tables to rules, strictly: exact types, no unknown keys, every mistake worded.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from attrs import fields

from workerdiag.errors import error_text
from workerdiag.model.mitigation import Mitigation
from workerdiag.model.rules import Cause, Landmark
from workerdiag.model.signs import Sign
from workerdiag.rulebook.advice import SharedAdvice
from workerdiag.rulebook.schema import FIELD_OF_TABLE, KIND_OF, SIGN_KINDS

if TYPE_CHECKING:
    from cattrs import Converter

_MAX_INTEGER = 2**63


def cause_problems(content: Mapping[str, Any], problem: Exception) -> list[str]:
    """
    One line for each thing that is wrong with a cause's table that *problem* arose from.
    """
    return list(dict.fromkeys((*_problem_lines(problem), *_invalid_values(content))))


def landmark_problems(content: Mapping[str, Any], problem: Exception) -> list[str]:
    """
    The same for a landmark's table.
    """
    return list(dict.fromkeys((*_problem_lines(problem), *_invalid_fields(content, Landmark, ""))))


def advice_problems(content: Mapping[str, Any], problem: Exception) -> list[str]:
    """
    The same for a file of shared advice.
    """
    unfit = (*_invalid_fields(content, SharedAdvice, ""), *_invalid_mitigations(content))
    return list(dict.fromkeys((*_problem_lines(problem), *unfit)))


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

    made.register_structure_hook_func(lambda cls: cls == Sign, sign)
    for cls, kind in KIND_OF.items():
        made.register_unstructure_hook(cls, _unstructure_tagged(made, cls, kind))
    return made


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
                return ""  # of an attrs validator: see `_unfit`
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


def _invalid_values(content: Mapping[str, Any]) -> Iterable[str]:
    """
    Values that a field's own rule refuses. cattrs stops before these when a key is wrong.
    """
    yield from _invalid_fields(content, Cause, "")
    yield from _invalid_mitigations(content)
    for key in ("signs", "against"):
        tables = content.get(key)
        for index, table in enumerate(tables if isinstance(tables, list) else ()):
            cls = SIGN_KINDS.get(str(table.get("kind"))) if isinstance(table, dict) else None
            if cls is not None:
                yield from _invalid_fields(table, cls, _toml_path(f".{key}[{index}]"))


def _invalid_mitigations(content: Mapping[str, Any]) -> Iterable[str]:
    tables = content.get("mitigations")
    for index, table in enumerate(tables if isinstance(tables, list) else ()):
        if isinstance(table, dict):
            yield from _invalid_fields(table, Mitigation, f".mitigation[{index}]")


def _invalid_fields(table: Mapping[str, Any], cls: type[Any], path: str) -> Iterable[str]:
    for each in fields(cls):
        if each.validator is None or each.name not in table:
            continue
        try:
            each.validator(None, each, table[each.name])
        except ValueError as problem:
            yield f"{path}.{each.name}: {problem.args[0]}"
        except TypeError:  # of the wrong type: told already
            continue
