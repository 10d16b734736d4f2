"""
A diagnosis as JSON, and back: the form that programs read.

`workerdiag.model.diagnosis.JSON_SCHEMA` numbers its shape. Every key is always there.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import fields

from workerdiag.errors import BadReportError, error_text
from workerdiag.model.diagnosis import JSON_SCHEMA, Findings
from workerdiag.rendering.json_schema import Schema, document_schema
from workerdiag.serialization import problem_lines, strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

#: In a longer text only the first mistake is told, without its place: each takes some kB to word.
_MAX_PLACED_CHARS = 64 * 1024
_MAX_WHY_CHARS = 8 * 1024


def to_dict(findings: Findings) -> dict[str, object]:
    """
    The findings as dictionaries, lists, text, numbers and None, with the key ``schema`` first.
    """
    content: dict[str, object] = _findings_converter().unstructure(findings, unstructure_as=Findings)
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


def json_schema() -> Schema:
    """
    The JSON Schema (draft 2020-12) of what `to_dict` returns, made from the classes of the model.
    """
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
def _findings_converter(*, with_places: bool = False) -> Converter:
    return strict_converter("all", with_places=with_places)


def _json_problems(content: dict[str, object]) -> list[str]:
    """
    Each thing that is wrong, with its place.
    """
    try:
        _findings_converter(with_places=True).structure(content, Findings)
    except Exception as problem:  # noqa: BLE001  cattrs raises groups of anything
        return problem_lines(problem)
    return []
