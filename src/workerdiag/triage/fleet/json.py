"""
A fleet report as JSON: the form that programs read. `FLEET_SCHEMA` numbers its shape.
"""

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
    """
    The report as dictionaries, lists, text, numbers and None, with the key ``schema`` first.
    """
    content: dict[str, object] = _report_converter().unstructure(report)
    return {"schema": FLEET_SCHEMA} | content


def fleet_to_json(report: FleetReport) -> str:
    """
    The report as JSON in ASCII, without a line end at the end.
    """
    return json.dumps(fleet_to_dict(report), indent=2)


def fleet_schema() -> Schema:
    """
    The JSON Schema (draft 2020-12) of what `fleet_to_dict` returns.
    """
    return document_schema(FleetReport, title="workerdiag fleet report", number=FLEET_SCHEMA)


@cache
def _report_converter() -> Converter:
    return strict_converter("all", with_places=False)
