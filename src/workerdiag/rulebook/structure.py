"""From plain tables to rules, strictly: exact types, no unknown keys, every mistake worded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from workerdiag.model.rules import SIGN_KINDS, Sign
from workerdiag.serialization import problem_lines, quote_value, strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

#: Shape of the files that this engine reads.
SCHEMA = 1
#: Newest rules that it understands (`engine` in a rule); a newer rule is skipped with a note.
ENGINE = (0, 1)

KIND_OF = {cls: kind for kind, cls in SIGN_KINDS.items()}
#: TOML tables are named in the singular, as TOML files usually have them.
FIELD_OF_TABLE = {
    "sign": "signs",
    "mitigation": "mitigations",
    "rival": "rivals",
    "next_step": "next_steps",
    "except": "exceptions",
}


def table_problems(problem: Exception) -> Iterator[str]:
    """One line for each thing that is wrong with a table, as ``.sign[0].grade: what``."""
    for line in problem_lines(problem):
        where, colon, what = line.partition(": ")
        if not colon or not where.startswith("."):
            yield f".: {line}"
            continue
        for singular, plural in FIELD_OF_TABLE.items():
            where = where.replace(f".{plural}[", f".{singular}[")
        yield f"{where}: {what}"


def rule_converter() -> Converter:
    """A strict converter that knows signs by their ``kind``."""
    made = strict_converter("known")
    made.register_structure_hook_func(lambda hint: hint == str | bool, _text_or_boolean)

    def structure_sign(value: object, _: object) -> Sign:
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {quote_value(value)}")
        kind = str(value.get("kind"))
        if kind not in SIGN_KINDS:
            raise ValueError(f"kind must be one of {', '.join(SIGN_KINDS)}, got {kind!r}")
        rest = {key: each for key, each in value.items() if key != "kind"}
        return made.structure(rest, SIGN_KINDS[kind])

    made.register_structure_hook_func(lambda cls: cls == Sign, structure_sign)
    for cls, kind in KIND_OF.items():
        made.register_unstructure_hook(cls, _unstructure_tagged(made, cls, kind))
    return made


def _text_or_boolean(value: object, _: object) -> str | bool:
    if not isinstance(value, str | bool):
        raise TypeError(f"expected string or boolean, got {quote_value(value)}")
    return value


def _unstructure_tagged(converter: Converter, cls: type, kind: str) -> Callable[[object], dict[str, object]]:
    from cattrs.gen import make_dict_unstructure_fn

    unstructure: Callable[[object], dict[str, object]] = make_dict_unstructure_fn(cls, converter)
    return lambda sign: {"kind": kind, **unstructure(sign)}
