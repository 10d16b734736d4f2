"""The watcher's values as JSON text for its state file, and back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from workerdiag.bundle.evidence_json import any_piece_from_dict, any_piece_to_dict
from workerdiag.errors import describe_error
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.serialization import strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

_T = TypeVar("_T")


def value_to_json(value: object) -> str:
    """Return a case, a notice or another attrs value as ASCII JSON, without defaults."""
    return _dump(_value_converter().unstructure(value))


def value_from_json(text: str, kind: type[_T]) -> _T:
    """Return the value that `value_to_json` wrote.

    Raises:
        Exception: The text is not valid.
    """
    return _value_converter().structure(json.loads(text), kind)


def evidence_to_json(evidence: Iterable[Evidence]) -> str:
    """Return evidence as JSON, including the text of logs."""
    return _dump([any_piece_to_dict(each) for each in evidence])


def evidence_from_json(text: str) -> tuple[Evidence, ...]:
    """Return the evidence in JSON. A piece that cannot be read becomes a `Gap`."""
    return tuple(_piece(each) for each in json.loads(text))


def merge_evidence(kept: str, other: str) -> str:
    """Merge two lists of evidence: each piece once, and the longer text of a log that both have."""
    old, new = json.loads(kept), json.loads(other)
    old_sizes, new_sizes = _log_sizes(old), _log_sizes(new)
    longer = {origin for origin, size in new_sizes.items() if size > old_sizes.get(origin, 0)}
    known = {_dump(each) for each in old}
    return _dump(
        [each for each in old if not _is_log_of(each, longer)]
        + [
            each
            for each in new
            if _is_log_of(each, longer) or (each["kind"] != "LogChunk" and _dump(each) not in known)
        ]
    )


def _log_sizes(pieces: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return the number of characters of each log."""
    sizes: Counter[str] = Counter()
    for each in pieces:
        if each["kind"] == "LogChunk":
            sizes[each["origin"]] += len(each["text"])
    return sizes


def _is_log_of(piece: dict[str, object], origins: AbstractSet[str]) -> bool:
    return piece["kind"] == "LogChunk" and piece["origin"] in origins


def _piece(plain: object) -> Evidence:
    try:
        return any_piece_from_dict(plain)
    except Exception as problem:  # noqa: BLE001  cattrs and validators raise anything
        return Gap(source="the watcher's state", reason="malformed", detail=describe_error(problem))


def _dump(plain: object) -> str:
    """Return JSON in ASCII: SQLite does not accept half a surrogate pair."""
    return json.dumps(plain, separators=(",", ":"))


@cache
def _value_converter() -> Converter:
    converter = strict_converter("any", with_places=False)
    converter.register_unstructure_hook_func(lambda hint: hint == frozenset[str], sorted)
    converter.register_structure_hook_func(
        lambda hint: hint == frozenset[str],
        lambda value, _: frozenset(converter.structure(value, tuple[str, ...])),
    )
    return converter
