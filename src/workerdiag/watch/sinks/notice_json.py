"""
A notice as JSON for programs: the body of a webhook.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite

from attrs import asdict

from workerdiag.errors import utf8_safe
from workerdiag.watch.alerts import Notice
from workerdiag.watch.sinks.sink import Delivery

#: Of the body's format; one more when a reader of the old one would misread it.
SCHEMA = 1
#: Without the diagnosis if it would be longer: nginx refuses more than 1 MB unless told otherwise
#: (https://nginx.org/en/docs/http/ngx_http_core_module.html#client_max_body_size).
_MAX_DIAGNOSIS_CHARS = 800_000


def delivery_json(delivery: Delivery) -> Mapping[str, object]:
    """
    The body of a webhook: the same in every attempt.

    ``notice`` has the fields of `Notice`, and ``diagnosis`` what `Diagnosis.to_dict` gives, or null if there
    is none or it is too long.
    """
    return {
        "schema": SCHEMA,
        "type": "workerdiag.notice",
        "delivery_id": utf8_safe(delivery.id),
        "notice": notice_json(delivery.notice),
        "diagnosis": _diagnosis(delivery.notice),
    }


def notice_json(notice: Notice) -> Mapping[str, object]:
    """
    The fields of a notice as plain values, without its diagnosis.
    """
    fields = asdict(notice, filter=lambda each, _: each.name != "diagnosis_json")
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: object) -> object:
    match value:
        case str():
            return utf8_safe(value)
        case float():
            return value if isfinite(value) else None
        case tuple() | list():
            return [_plain(each) for each in value]
        case Mapping():
            return {utf8_safe(str(key)): _plain(each) for key, each in value.items()}
        case _:
            return value


def _diagnosis(notice: Notice) -> object:
    if not notice.diagnosis_json or len(notice.diagnosis_json) > _MAX_DIAGNOSIS_CHARS:
        return None
    try:
        return _plain(json.loads(notice.diagnosis_json))
    except (ValueError, RecursionError):
        return None
