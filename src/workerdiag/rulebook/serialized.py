"""One JSON text for a whole rulebook, which loads in milliseconds and without cattrs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from attrs import evolve

from workerdiag.model.rules import SIGN_KINDS, Cause, Landmark, Mitigation, NextStepRule, RivalCause, Rulebook

#: A rule, or a part of one, as plain values.
_Table = dict[str, Any]
#: Keys of a cause that hold tables.
_PARTS: Mapping[str, type[RivalCause | Mitigation | NextStepRule]] = {
    "rivals": RivalCause,
    "mitigations": Mitigation,
    "next_steps": NextStepRule,
}


def compile_rulebook(book: Rulebook, literals: Mapping[str, tuple[str, ...]]) -> str:
    """The JSON text that a wheel carries, from which `load_rulebook` loads quickly."""
    from workerdiag.rulebook.structure import rule_converter  # loading needs none

    content = cast("_Table", _without_empty(rule_converter().unstructure(evolve(book, literals={}))))
    content["literals"] = {pattern: list(found) for pattern, found in literals.items()}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def patterns(book: Rulebook) -> Iterable[str]:
    """Every pattern of *book* that is searched for in log text, each once."""
    return tuple(dict.fromkeys(text for _, _, rule in book.log_rules() for text in rule.wordings))


def from_compiled(content: _Table) -> Rulebook:
    """Objects from our own compiled JSON, which cattrs has checked when it was built."""
    literals = {pattern: tuple(found) for pattern, found in content.pop("literals", {}).items()}
    return Rulebook(
        schema=content["schema"],
        release=content["release"],
        causes=tuple(_cause_from_compiled(each) for each in content["causes"]),
        landmarks=tuple(_landmark_from_compiled(each) for each in content["landmarks"]),
        advice=_advice_from_compiled(content.get("advice", ())),
        task_advice=_advice_from_compiled(content.get("task_advice", ())),
        literals=literals,
    )


def _advice_from_compiled(content: Iterable[_Table]) -> tuple[Mitigation, ...]:
    return tuple(Mitigation(**_lists_to_tuples(each)) for each in content)


def _cause_from_compiled(content: _Table) -> Cause:
    for key in ("signs", "against"):
        if key in content:
            content[key] = tuple(
                SIGN_KINDS[each.pop("kind")](**_lists_to_tuples(each)) for each in content[key]
            )
    for key, cls in _PARTS.items():
        if key in content:
            content[key] = tuple(cls(**_lists_to_tuples(each)) for each in content[key])
    return Cause(**_lists_to_tuples(content))


def _landmark_from_compiled(content: _Table) -> Landmark:
    if steps := content.get("next_steps"):
        content["next_steps"] = tuple(NextStepRule(**each) for each in steps)
    return Landmark(**_lists_to_tuples(content))


def _lists_to_tuples(content: _Table) -> _Table:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def _without_empty(value: object) -> object:
    """Without keys that say nothing: empty text, empty lists, None."""
    if isinstance(value, dict):
        return {
            key: _without_empty(each)
            for key, each in value.items()
            if each not in ("", None) and each not in ((), [], {})
        }
    return [_without_empty(each) for each in value] if isinstance(value, (list, tuple)) else value
