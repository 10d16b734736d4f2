"""
A diagnosis as JSON, and back: the form that programs read.

`workerdiag.model.diagnosis.JSON_SCHEMA` numbers its shape. Every key is always there.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import fields, has

from workerdiag.errors import BadReportError, error_text
from workerdiag.model.diagnosis import JSON_SCHEMA, Findings
from workerdiag.rendering.json_schema import DIALECT, PRIMITIVES, add_definition

if TYPE_CHECKING:
    from cattrs import Converter

#: In a longer text only the first mistake is told, without its place: each takes some kB to word.
_MAX_PLACED_CHARS = 64 * 1024
_MAX_WHY_CHARS = 8 * 1024


def to_dict(findings: Findings) -> dict[str, Any]:
    """
    The findings as dictionaries, lists, text, numbers and None, with the key ``schema`` first.
    """
    content: dict[str, Any] = _findings_converter().unstructure(findings, unstructure_as=Findings)
    return {"schema": JSON_SCHEMA} | content


def to_json(findings: Findings) -> str:
    """
    The findings as JSON in ASCII (so that no terminal acts upon it), without a line end at the end.
    """
    return json.dumps(to_dict(findings), indent=2)


def from_json(text: str) -> dict[str, Any]:
    """
    The arguments that construct the findings which `to_json` wrote.

    Raises:
        BadReportError: The text is not JSON, of another schema number, or lacks keys, has
            unknown ones or values of wrong types; it says where.
    """
    content = _parse_object(text)
    found = content.pop("schema", None)
    if found != JSON_SCHEMA or isinstance(found, bool):
        raise BadReportError(f"this workerdiag reads schema {JSON_SCHEMA}, the text has {found!r}")
    try:
        findings = _findings_converter().structure(content, Findings)
    except Exception as problem:  # noqa: BLE001  hooks and validators raise anything
        why = error_text(problem) if len(text) > _MAX_PLACED_CHARS else "; ".join(_json_problems(content))
        raise BadReportError(why[:_MAX_WHY_CHARS]) from None
    return {each.name: getattr(findings, each.name) for each in fields(Findings)}


def json_schema() -> dict[str, Any]:
    """
    The JSON Schema (draft 2020-12) of what `to_dict` returns, made from the classes of the model.
    """
    definitions: dict[str, Any] = {}
    add_definition(Findings, definitions)
    top = definitions.pop(Findings.__name__)
    number = {"description": "Shape of this document.", "const": JSON_SCHEMA}
    return {
        "$schema": DIALECT,
        "title": "workerdiag diagnosis",
        **top,
        "required": ["schema", *top["required"]],
        "properties": {"schema": number, **top["properties"]},
        "$defs": dict(sorted(definitions.items())),
    }


def _parse_object(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise BadReportError(f"{constant} is not JSON")

    try:
        content = json.loads(text, parse_constant=refuse)
    except ValueError as problem:
        raise BadReportError(f"not JSON: {problem}") from None
    except RecursionError:
        raise BadReportError("nested too deeply") from None
    if not isinstance(content, dict):
        raise BadReportError(f"expected an object, got {type(content).__name__}")
    return content


@cache
def _findings_converter(*, with_places: bool = False) -> Converter:
    """
    One converter of our own: exact types, all keys, no others.

    Args:
        with_places: Whether it goes on after a mistake, and tells where each is.
    """
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn

    converter = Converter(forbid_extra_keys=True, detailed_validation=with_places)
    for primitive in (str, int, bool):
        converter.register_structure_hook(primitive, _exact_json_type(primitive))
    converter.register_structure_hook(float, _finite_number)
    converter.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else None)
    converter.register_structure_hook_factory(
        has, lambda cls: _require_all_keys(cls, make_dict_structure_fn(cls, converter))
    )
    return converter


def _require_all_keys(cls: type[Any], structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    names = [each.name for each in fields(cls)]

    def checked(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {reprlib.repr(value)}")
        if missing := [name for name in names if name not in value]:
            raise ValueError(f"missing {', '.join(missing)}")
        return structure(value, cls)

    return checked


def _exact_json_type(expected: type[Any]) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(f"expected {PRIMITIVES[expected]}, got {reprlib.repr(value)}")
        return value

    return check


def _finite_number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"expected number, got {reprlib.repr(value)}")
    if not math.isfinite(value):  # Python reads 1e999 as infinity
        raise ValueError(f"expected a finite number, got {reprlib.repr(value)}")
    return float(value)


def _json_problems(content: dict[str, Any]) -> Iterator[str]:
    """
    Each thing that is wrong, with its place, as ``.causes[0].title: expected string, got 9``.
    """
    from cattrs import transform_error

    try:
        _findings_converter(with_places=True).structure(content, Findings)
    except Exception as found:  # noqa: BLE001  cattrs raises groups of anything
        problem = found
    else:
        return
    for line in transform_error(problem, path="", format_exception=lambda exc, _: error_text(exc)):
        what, _, where = line.rpartition(" @ ")
        yield f"{where}: {what}" if what and where else what or line
