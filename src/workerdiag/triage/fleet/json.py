"""A fleet report as JSON, for programs. `FLEET_SCHEMA` is the version of the format."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from workerdiag.rendering.json import Schema, document_schema
from workerdiag.serialization import strict_converter
from workerdiag.triage.fleet.values import FLEET_SCHEMA, FleetReport

if TYPE_CHECKING:
    from cattrs import Converter


def fleet_to_dict(report: FleetReport) -> dict[str, object]:
    """Return the report as dictionaries, lists, text, numbers and None, with the key ``schema`` first."""
    content: dict[str, object] = _report_converter().unstructure(report)
    return {"schema": FLEET_SCHEMA} | content


def fleet_to_json(report: FleetReport) -> str:
    """Return the report as JSON in ASCII, without a final newline."""
    return json.dumps(fleet_to_dict(report), indent=2)


def fleet_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the result of `fleet_to_dict`."""
    return document_schema(FleetReport, title="workerdiag fleet report", number=FLEET_SCHEMA)


@cache
def _report_converter() -> Converter:
    return strict_converter("all", with_places=False)
