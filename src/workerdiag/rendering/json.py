"""A diagnosis as JSON, and back: the form that programs read; and its JSON Schema (draft 2020-12).

`workerdiag.model.diagnosis.JSON_SCHEMA` numbers its shape. Every key is always there.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, Attribute, fields, has

from workerdiag.errors import BadReportError
from workerdiag.guard import guarded
from workerdiag.model.diagnosis import JSON_SCHEMA, Findings
from workerdiag.serialization import PRIMITIVES, problem_lines, strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

#: A JSON Schema, or a part of one.
Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BOUNDS = {">=": "minimum", "<=": "maximum"}


def document_schema(cls: type, *, title: str, number: int) -> Schema:
    """The JSON Schema of a document: an object of the class, with its shape's *number* under ``schema``."""
    definitions: Schema = {}
    add_definition(cls, definitions)
    top = definitions.pop(cls.__name__)
    return {
        "$schema": DIALECT,
        "title": title,
        **top,
        "required": ["schema", *top["required"]],
        "properties": {"schema": {"description": "Shape of this document.", "const": number}, **top["properties"]},
        "$defs": dict(sorted(definitions.items())),
    }


def add_definition(cls: type, definitions: Schema, *, all_required: bool = True) -> Schema:
    """A reference to an attrs class, put into *definitions* with all to which it refers."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # holds the place while the class refers to itself
        hints = get_type_hints(cls)
        parts = fields(cls)
        definitions[cls.__name__] = {
            "description": " ".join((cls.__doc__ or "").split()),
            "type": "object",
            "additionalProperties": False,
            "required": [each.name for each in parts if all_required or each.default is NOTHING],
            "properties": {
                each.name: _type_schema(hints[each.name], definitions, all_required=all_required)
                | _validator_schema(each)
                for each in parts
            },
        }
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _type_schema(hint: object, definitions: Schema, *, all_required: bool) -> Schema:
    if hint in PRIMITIVES:
        return {"type": PRIMITIVES[hint]}
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if isinstance(hint, type) and has(hint):
        return add_definition(hint, definitions, all_required=all_required)
    inner = [
        _type_schema(each, definitions, all_required=all_required)
        for each in get_args(hint)
        if each is not Ellipsis
    ]
    match get_origin(hint):
        case origin if origin is tuple:
            return {"type": "array", "items": inner[0]}
        case origin if origin is Mapping:
            return {"type": "object", "additionalProperties": inner[1]}
        case origin if origin in (types.UnionType, Union):
            return {"anyOf": inner}
    raise TypeError(f"no JSON form for {hint!r}")


def _validator_schema(attribute: Attribute[object]) -> Schema:
    """What the validators of attrs (``in_``, ``ge``, ``le``, ``matches_re``, ``and_``) allow."""
    keywords: Schema = {}
    validator: Any = attribute.validator
    for each in getattr(validator, "_validators", (validator,)):
        if hasattr(each, "options"):
            keywords["enum"] = list(each.options)
        if hasattr(each, "bound"):
            keywords[_BOUNDS[each.compare_op]] = each.bound
        if hasattr(each, "pattern"):
            keywords["pattern"] = f"^({each.pattern.pattern})$"
    return keywords


def to_dict(findings: Findings) -> dict[str, object]:
    """The findings as dictionaries, lists, text, numbers and None, with the key ``schema`` first."""
    return to_document(findings, Findings, JSON_SCHEMA)


def to_document(value: object, cls: type, number: int) -> dict[str, object]:
    """The value as an object of the class in plain values, with its shape's *number* under ``schema``, first."""
    content: dict[str, object] = _converter(with_places=False).unstructure(value, unstructure_as=cls)
    return {"schema": number} | content


def to_json(findings: Findings) -> str:
    """The findings as JSON in ASCII (so that no terminal acts upon it), without a line end at the end."""
    return json.dumps(to_dict(findings), indent=2)


def from_json(text: str) -> dict[str, Any]:
    """The arguments of the findings that `to_json` wrote; raises BadReportError, which says where it is wrong."""
    content = _parse_object(text)
    found = content.pop("schema", None)
    if found != JSON_SCHEMA or isinstance(found, bool):
        raise BadReportError(f"this workerdiag reads schema {JSON_SCHEMA}, the text has {found!r}")
    with_places = len(text) <= 64 * 1024  # each mistake that is noted takes some kB
    with guarded("reading a diagnosis") as reading:
        findings = _converter(with_places=with_places).structure(content, Findings)
    if reading.problem is not None:
        raise BadReportError("; ".join(problem_lines(reading.problem))[: 8 * 1024])
    return {each.name: getattr(findings, each.name) for each in fields(Findings)}


def json_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of what `to_dict` returns, made from the classes of the model."""
    return document_schema(Findings, title="workerdiag diagnosis", number=JSON_SCHEMA)


def _parse_object(text: str) -> dict[str, object]:
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
def _converter(*, with_places: bool) -> Converter:
    return strict_converter("all", with_places=with_places)
