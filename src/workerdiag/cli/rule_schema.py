"""The JSON Schema of the files under ``knowledge/``, made from the classes that they become."""

from __future__ import annotations

from workerdiag.model.rules import Cause, Landmark
from workerdiag.model.signs import SIGN_KINDS
from workerdiag.rendering.json import DIALECT, Schema, add_definition
from workerdiag.rulebook.shared_rules import SharedRules
from workerdiag.rulebook.structure import FIELD_OF_TABLE, SCHEMA

#: Attributes that TOML files name otherwise.
_FILE_KEYS = {attribute: key for key, attribute in FIELD_OF_TABLE.items()}


def rule_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a file of a cause, of landmarks or of shared advice."""
    definitions, cause, landmark = _definitions()
    advice = add_definition(SharedRules, definitions, all_required=False)
    for shape in (definitions["Cause"], definitions["Landmark"], definitions["SharedRules"]):
        shape["properties"] = {_FILE_KEYS.get(key, key): each for key, each in shape["properties"].items()}
        shape["required"] = [_FILE_KEYS.get(key, key) for key in shape["required"]]
    landmarks = {
        "type": "object",
        "additionalProperties": False,
        "required": ["landmark"],
        "properties": {"landmark": {"type": "array", "items": landmark}},
    }
    return {
        "$schema": DIALECT,
        "title": "workerdiag rule file",
        "anyOf": [cause, landmarks, advice],
        "$defs": dict(sorted(definitions.items())),
    }


def export_schema() -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of what ``workerdiag knowledge export`` prints."""
    definitions, cause, landmark = _definitions()
    texts = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": DIALECT,
        "title": "workerdiag rules, exported",
        "type": "object",
        "required": ["schema", "release", "causes", "landmarks", "literals"],
        "properties": {
            "schema": {"const": SCHEMA, "description": "Shape of this document."},
            "release": {"type": "string", "description": "Release of the knowledge, as reports quote it."},
            "causes": {"type": "array", "items": cause},
            "landmarks": {"type": "array", "items": landmark},
            "advice": {"type": "array", "items": {"$ref": "#/$defs/Mitigation"}},
            "task_advice": {"type": "array", "items": {"$ref": "#/$defs/Mitigation"}},
            "notes": texts,
            "literals": {
                "type": "object",
                "description": "For each pattern lower-case texts, one of which every match contains.",
                "additionalProperties": texts,
            },
        },
        "$defs": dict(sorted(definitions.items())),
    }


def _definitions() -> tuple[Schema, Schema, Schema]:
    """All definitions, and how to refer to a cause and to a landmark."""
    definitions: Schema = {}
    cause = add_definition(Cause, definitions, all_required=False)
    landmark = add_definition(Landmark, definitions, all_required=False)
    for kind, cls in SIGN_KINDS.items():
        sign = definitions[cls.__name__]
        sign["properties"] = {"kind": {"const": kind}, **sign["properties"]}
        sign["required"].insert(0, "kind")
    return definitions, cause, landmark
