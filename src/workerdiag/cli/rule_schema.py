"""
The JSON Schema of the files under ``knowledge/``, made from the classes that they become.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workerdiag.model.rules import Cause, Landmark
from workerdiag.rendering.json_schema import DIALECT, define
from workerdiag.rulebook import SIGN_KINDS

#: Attributes whose tables TOML files name in the singular (workerdiag/rulebook.py).
_IN_FILES: Mapping[str, str] = {
    "signs": "sign",
    "mitigations": "mitigation",
    "look_alikes": "look_alike",
    "settled_by": "settles",
}


def rule_schema() -> dict[str, Any]:
    """
    The JSON Schema (draft 2020-12) of a cause's file, or of a file of landmarks.
    """
    definitions: dict[str, Any] = {}
    cause = define(Cause, definitions, all_required=False)
    landmark = define(Landmark, definitions, all_required=False)
    for kind, cls in SIGN_KINDS.items():
        sign = definitions[cls.__name__]
        sign["properties"] = {"kind": {"const": kind}, **sign["properties"]}
        sign["required"].insert(0, "kind")
    properties = definitions["Cause"]["properties"]
    definitions["Cause"]["properties"] = {_IN_FILES.get(key, key): shape for key, shape in properties.items()}
    landmarks = {
        "type": "object",
        "additionalProperties": False,
        "required": ["landmark"],
        "properties": {"landmark": {"type": "array", "items": landmark}},
    }
    return {
        "$schema": DIALECT,
        "title": "workerdiag rule file",
        "anyOf": [cause, landmarks],
        "$defs": dict(sorted(definitions.items())),
    }
