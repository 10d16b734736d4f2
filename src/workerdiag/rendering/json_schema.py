"""
From attrs classes to JSON Schema (draft 2020-12).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, Attribute, fields, has

from workerdiag.serialization import PRIMITIVES

#: A JSON Schema, or a part of one.
Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BOUNDS = {">=": "minimum", "<=": "maximum"}


def document_schema(cls: type, *, title: str, number: int) -> Schema:
    """
    The JSON Schema of a document: an object of the class, with its shape's *number* under ``schema``.
    """
    definitions: Schema = {}
    add_definition(cls, definitions)
    top = definitions.pop(cls.__name__)
    return {
        "$schema": DIALECT,
        "title": title,
        **top,
        "required": ["schema", *top["required"]],
        "properties": {
            "schema": {"description": "Shape of this document.", "const": number},
            **top["properties"],
        },
        "$defs": dict(sorted(definitions.items())),
    }


def add_definition(cls: type, definitions: Schema, *, all_required: bool = True) -> Schema:
    """
    A reference to the class, which is put into *definitions* together with all that it refers to.

    Args:
        cls: An attrs class whose attributes are texts, numbers, booleans, None, tuples or
            mappings of one kind, other attrs classes, or unions of these.
        definitions: What will stand under ``$defs``.
        all_required: Whether keys with a default must be there too.
    """
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
    """
    What the validators of attrs (``in_``, ``ge``, ``le``, ``matches_re``, ``and_``) allow.
    """
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
