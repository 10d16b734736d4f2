"""Reads a folder of TOML files strictly: exact types, no unknown keys, every mistake worded.

What several causes have in common is written once (``knowledge/shared/*.toml``) and added to each of them.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attrs.validators import matches_re, min_len

from workerdiag.errors import RuleFileError, error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.normalize import EventValue
from workerdiag.model.rules import (
    SIGN_KINDS,
    Cause,
    ErrorRule,
    Landmark,
    Mitigation,
    NextStepRule,
    ReasonRule,
    Rulebook,
    Sign,
)
from workerdiag.serialization import problem_lines, quote_value, strict_converter
from workerdiag.values import evolve, field, frozen

if TYPE_CHECKING:
    from cattrs import Converter

#: Where files with rules lie, and descriptions of incidents (`authoring.rule_tests`).
_PLACES = (
    *("causes/*/*.toml", "landmarks/*.toml", "shared/*.toml", "incidents/*/meta.toml"),
    *("manifest.toml", "errors.toml", "reasons.toml"),
)
_MAX_BYTES = 512 * 1024
_MAX_PATTERN_CHARS = 4_000
_PATTERNS = {"pattern", "patterns", "unless", "topic"}

_T = TypeVar("_T")


def read_folder(folder: Path) -> Rulebook:
    """Read all TOML files of one folder, and report every problem of every file at once.

    Rules that require a newer engine (`engine` in a cause) are left out, with a note.

    Raises:
        RuleFileError: The folder does not exist or is empty, or a file has problems.
    """
    book, problems = read_lenient(folder)
    if problems:
        raise RuleFileError(str(folder), problems)
    return book


def read_lenient(folder: Path) -> tuple[Rulebook, tuple[str, ...]]:
    """What can be used of the TOML files of one folder, and every problem of the others."""
    if not folder.is_dir():
        nothing = Rulebook(schema=SCHEMA, release="unreleased", causes=(), landmarks=())
        return nothing, (f"there is no such folder: {folder}",)
    reading = _FolderReader(folder)
    return reading.book(), tuple(reading.problems)


class _FolderReader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._converter = rule_converter()
        self.problems: list[str] = []
        self._notes: list[str] = []

    def book(self) -> Rulebook:
        manifest = self._manifest()
        causes = self._each("causes/*/*.toml", self._cause)
        marks = self._each("landmarks/*.toml", lambda path: self._tables(path, "landmark", Landmark))
        shared = self._each("shared/*.toml", self._shared)
        causes = [with_shared(each, shared) for each in causes]
        errors = tuple(self._tables(self._folder / "errors.toml", "error", ErrorRule))
        reasons = tuple(self._tables(self._folder / "reasons.toml", "reason", ReasonRule))
        self.problems += [
            *_misplaced_files(self._folder),
            *_duplicate_names(causes, marks),
            *unknown_cause_problems(causes, shared, errors),
        ]
        if not (causes or marks or errors or reasons or self.problems or self._notes):
            self.problems.append("holds no causes/<family>/<cause>.toml and no landmarks/*.toml")
        return Rulebook(
            schema=SCHEMA,
            release=utf8_safe(str(manifest.get("release", "unreleased")))[:100],
            causes=tuple(each for each in causes if not _duplicate_signs(each)),
            landmarks=tuple({each.id: each for each in marks}.values()),
            errors=errors,
            reasons=reasons,
            advice=advice_for_outcome(UNKNOWN, shared),
            task_advice=advice_for_outcome(FAILED_TASK, shared),
            notes=tuple(self._notes),
        )

    def _each(self, places: str, read: Callable[[Path], Iterator[_T]]) -> list[_T]:
        return [each for path in sorted(self._folder.glob(places)) for each in read(path)]

    def _manifest(self) -> Mapping[str, object]:
        path = self._folder / "manifest.toml"
        manifest = self._read_table(path) if path.exists() else {}
        if (schema := manifest.get("schema", SCHEMA)) != SCHEMA:
            self.problems.append(
                f"manifest.toml: .schema: this workerdiag reads schema {SCHEMA}, the folder has {schema!r}"
            )
        return manifest

    def _read_table(self, path: Path) -> dict[str, object]:
        where = path.relative_to(self._folder)
        content: dict[str, object] = {}
        with guarded("reading a rule file") as reading:
            content = tomllib.loads(_read_rule_file(path))
        if (problem := reading.problem) is not None:
            self.problems.append(f"{where}: {error_text(problem) or type(problem).__name__}")
        if long := sorted(_long_patterns(content)):
            self.problems.append(f"{where}: {long[0]}: longer than {_MAX_PATTERN_CHARS} characters")
            return {}
        return content

    def _cause(self, path: Path) -> Iterator[Cause]:
        content, expected_id = _with_fields(self._read_table(path)), f"{path.parent.name}.{path.stem}"
        if _is_newer(content.get("engine")):
            self._notes.append(f"{expected_id} is left out: it wants workerdiag {content['engine']} or newer")
        elif content:
            yield from self._with_id(path, content, Cause, expected_id, "the path, with a dot")

    def _shared(self, path: Path) -> Iterator[SharedRules]:
        if content := _with_fields(self._read_table(path)):
            yield from self._with_id(path, content, SharedRules, path.stem, "the file's name")

    def _with_id(
        self, path: Path, content: dict[str, object], cls: type[_T], expected_id: str, rule: str
    ) -> Iterator[_T]:
        """Yield the rule in a file, if its id agrees with the path of the file."""
        where, given_id = path.relative_to(self._folder), content.get("id")
        if given_id != expected_id:
            self.problems.append(f"{where}: .id: expected {expected_id!r} ({rule}), got {given_id!r}")
        found = self._structured(content, cls, f"{where}: ")
        yield from (each for each in found if given_id == expected_id)

    def _structured(self, content: object, cls: type[_T], label: str) -> Iterator[_T]:
        with guarded("reading a rule") as reading:
            yield self._converter.structure(content, cls)
        if reading.problem is not None:
            self.problems += [f"{label}{line}" for line in table_problems(reading.problem)]

    def _tables(self, path: Path, name: str, cls: type[_T]) -> Iterator[_T]:
        """Yield the tables of that *name*, of which alone a file consists; none of one that is not there."""
        if not path.exists():
            return
        table = self._read_table(path)
        where = path.relative_to(self._folder)
        if extra := sorted(set(table) - {name}):
            self.problems.append(f"{where}: unknown keys {', '.join(extra)} (expected [[{name}]] tables)")
        tables = table.get(name, [])
        if not isinstance(tables, list):
            self.problems.append(f"{where}: .{name}: expected [[{name}]] tables")
            return
        for index, each in enumerate(tables):
            content = _with_fields(each) if isinstance(each, dict) else each
            yield from self._structured(content, cls, f"{where}: .{name}[{index}]")


def _with_fields(table: dict[str, object]) -> dict[str, object]:
    return {FIELD_OF_TABLE.get(key, key): value for key, value in table.items()}


def _read_rule_file(path: Path) -> str:
    if not path.is_file():
        raise ValueError("is no file")
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"is larger than {_MAX_BYTES} bytes")
    return data.decode("utf-8")


def _long_patterns(content: object, key: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for name, each in content.items():
            yield from _long_patterns(each, "pattern" if key == "where" else str(name))
    elif isinstance(content, list):
        for each in content:
            yield from _long_patterns(each, key)
    elif isinstance(content, str) and key in _PATTERNS and len(content) > _MAX_PATTERN_CHARS:
        yield key


def _is_newer(engine: object) -> bool:
    """Whether a rule requires a newer engine; an invalid value is reported later."""
    parts = engine.split(".") if isinstance(engine, str) else ["?"]
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) > ENGINE


def _misplaced_files(folder: Path) -> Iterator[str]:
    read = {path for places in _PLACES for path in folder.glob(places)}
    for path in sorted(folder.rglob("*.toml")):
        if path not in read:
            yield f"{path.relative_to(folder)}: not read; causes go to causes/<family>/<cause>.toml"


def _duplicate_names(causes: Iterable[Cause], landmarks: Iterable[Landmark]) -> Iterator[str]:
    for each in _repeated(landmark.id for landmark in landmarks):
        yield f"landmark {each}: defined twice"
    for cause in causes:
        for name in _duplicate_signs(cause):
            yield f"{cause.id}: two signs are named {name!r}"


def _duplicate_signs(cause: Cause) -> list[str]:
    return _repeated(sign.name for sign in (*cause.signs, *cause.against))


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


#: Shape of the files that this engine reads.
SCHEMA = 1
#: Newest rules that it understands (`engine` in a rule); a newer rule is skipped with a note.
ENGINE = (0, 1)

#: TOML tables are named in the singular, as TOML files usually have them.
FIELD_OF_TABLE = {each: f"{each}s" for each in ("sign", "mitigation", "rival", "next_step", "example")}
FIELD_OF_TABLE["except"] = "exceptions"


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


@cache
def rule_converter() -> Converter:
    """The strict converter that knows signs by their ``kind``."""
    made = strict_converter("known")
    made.register_structure_hook_func(lambda hint: hint == str | bool, _text_or_boolean)
    made.register_structure_hook_func(lambda hint: hint == EventValue, lambda value, _: value)  # as events take any

    def structure_sign(value: object, _: object) -> Sign:
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {quote_value(value)}")
        kind = str(value.get("kind"))
        if kind not in SIGN_KINDS:
            raise ValueError(f"kind must be one of {', '.join(SIGN_KINDS)}, got {kind!r}")
        rest = {key: each for key, each in value.items() if key != "kind"}
        return made.structure(rest, SIGN_KINDS[kind])

    made.register_structure_hook_func(lambda cls: cls == Sign, structure_sign)
    for kind, cls in SIGN_KINDS.items():
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


#: Stand among causes for "no cause is known" and "only a task failed".
UNKNOWN = "unknown"
FAILED_TASK = "failed-task"
#: Number of a cause's own mitigations before the shared ones.
OWN_FIRST = 2


@frozen(kw_only=True)
class SharedRules:
    """Signs against a cause, mitigations and next steps that several causes have in common."""

    #: The file's name without its ending.
    id: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    #: Ids of causes, families as ``signal.*``, ``unknown`` or ``failed-task``.
    causes: tuple[str, ...] = field(validator=min_len(1))
    #: Causes of those families without the shared rules.
    exceptions: tuple[str, ...] = ()
    against: tuple[Sign, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()
    next_steps: tuple[NextStepRule, ...] = ()

    def is_for(self, cause_id: str) -> bool:
        """Whether it is added to the cause of that id."""
        own = {cause_id, f"{cause_id.partition('.')[0]}.*"}
        return own.isdisjoint(self.exceptions) and not (own | {"*"}).isdisjoint(self.causes)

    def with_origin(self) -> tuple[Mitigation, ...]:
        """The mitigations, each with the name of this file."""
        return tuple(evolve(each, advice=self.id) for each in self.mitigations)


def with_shared(cause: Cause, rules: Iterable[SharedRules]) -> Cause:
    """The *cause* with the shared *rules*; their mitigations follow the first of its own that need no sign."""
    shared = [each for each in rules if each.is_for(cause.id)]
    always = [at for at, each in enumerate(cause.mitigations, start=1) if not each.signs]
    own_first = always[OWN_FIRST - 1] if len(always) >= OWN_FIRST else len(cause.mitigations)
    return evolve(
        cause,
        against=(*cause.against, *(sign for each in shared for sign in each.against)),
        mitigations=(
            *cause.mitigations[:own_first],
            *(advice for each in shared for advice in each.with_origin()),
            *cause.mitigations[own_first:],
        ),
        next_steps=(*cause.next_steps, *(step for each in shared for step in each.next_steps)),
    )


def advice_for_outcome(name: str, rules: Iterable[SharedRules]) -> tuple[Mitigation, ...]:
    """What to look at in the case of that *name*: `UNKNOWN` or `FAILED_TASK`."""
    marked = [each for shared in rules if name in shared.causes for each in shared.with_origin()]
    return tuple(each for each in marked if each.inspect)


def unknown_cause_problems(
    causes: Iterable[Cause], rules: Iterable[SharedRules], errors: Iterable[ErrorRule]
) -> Iterable[str]:
    """Yield a line for each name in *rules* or *errors* that is not a cause of this folder."""
    ids = {each.id for each in causes}
    known = {"*", UNKNOWN, FAILED_TASK, *ids, *(f"{each.partition('.')[0]}.*" for each in ids)}
    for shared in rules:
        for name in (*shared.causes, *shared.exceptions):
            if name not in known:
                yield f"shared/{shared.id}.toml: names a cause that is not there: {name}"
    for error in errors:
        for name in error.causes:
            if name not in known - {"*", UNKNOWN, FAILED_TASK}:
                yield f"errors.toml: {error.name} names a cause that is not there: {name}"
