"""
From ``knowledge/`` to a `Rulebook`: the only module that knows TOML and cattrs hooks.

TOML files are the source. A wheel also carries ``knowledge.json``, compiled from them when
it is built, because reading that takes milliseconds and no cattrs.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, fields, has

from workerdiag.errors import RuleFileError
from workerdiag.model.rules import (
    AbsentSign,
    Cause,
    EventSign,
    ExceptionSign,
    ExitSign,
    Landmark,
    LandmarkSign,
    LogSign,
    LookAlike,
    Mitigation,
    NextLook,
    Rulebook,
    Sign,
    TogetherSign,
)

if TYPE_CHECKING:
    from cattrs import Converter

#: Shape of the files that this module reads.
SCHEMA = 1

SIGN_KINDS: Mapping[str, type[Any]] = {
    "log": LogSign,
    "landmark": LandmarkSign,
    "exit": ExitSign,
    "event": EventSign,
    "exception": ExceptionSign,
    "absent": AbsentSign,
    "together": TogetherSign,
}
_KIND_OF = {cls: kind for kind, cls in SIGN_KINDS.items()}
_PACKAGE = Path(__file__).parent


def load_rulebook(*paths: str | Path) -> Rulebook:
    """
    The shipped rulebook, with the causes and landmarks of *paths* added to it.

    Args:
        paths: Folders laid out like ``knowledge/`` (``causes/<family>/<cause>.toml``,
            ``landmarks/*.toml``; no ``manifest.toml`` needed). A later folder overrides
            an id of an earlier one, which is noted in ``Rulebook.notes``.

    Raises:
        RuleFileError: A folder has problems; it lists all of them.
    """
    book = _shipped()
    for path in paths:
        book = _overlaid(book, read_folder(Path(path)), str(path))
    return book


def shipped_folder() -> Path:
    """
    Where the shipped TOML files are: in the wheel, or in the checkout beside ``src``.
    """
    inside = _PACKAGE / "knowledge"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "knowledge"


def read_folder(folder: Path) -> Rulebook:
    """
    All TOML files of one folder, strictly: every problem of every file is reported at once.

    Raises:
        RuleFileError: There is no such folder, nothing in it, or a file has problems.
    """
    if not folder.is_dir():
        raise RuleFileError(str(folder), ("there is no such folder",))
    converter = _converter()
    problems: list[str] = []
    manifest = _read(folder / "manifest.toml", problems) if (folder / "manifest.toml").exists() else {}
    problems += _manifest_problems(manifest)
    causes = [
        cause
        for path in sorted(folder.glob("causes/*/*.toml"))
        for cause in _structured(path, folder, Cause, converter, problems)
    ]
    landmarks = [
        landmark
        for path in sorted(folder.glob("landmarks/*.toml"))
        for landmark in _structured_list(path, folder, converter, problems)
    ]
    problems += _misplaced(folder) + _doubled(causes, landmarks)
    if not causes and not landmarks and not problems:
        problems.append("holds no causes/<family>/<cause>.toml and no landmarks/*.toml")
    if problems:
        raise RuleFileError(str(folder), tuple(problems))
    return Rulebook(
        schema=int(manifest.get("schema", SCHEMA)),
        release=str(manifest.get("release", "unreleased")),
        causes=tuple(causes),
        landmarks=tuple(landmarks),
    )


def compile_rulebook(book: Rulebook, literals: Mapping[str, tuple[str, ...]]) -> str:
    """
    The JSON text that a wheel carries, from which `load_rulebook` loads quickly.
    """
    content = cast("dict[str, Any]", _lean(_converter().unstructure(evolve(book, literals={}))))
    content["literals"] = {pattern: list(found) for pattern, found in literals.items()}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def patterns(book: Rulebook) -> Iterable[str]:
    """
    Every pattern of *book* that is searched for in log text, each once.
    """
    seen: dict[str, None] = {}
    for landmark in book.landmarks:
        seen[landmark.pattern] = None
    for cause in book.causes:
        for sign in (*cause.signs, *cause.against):
            if isinstance(sign, LogSign):
                seen[sign.pattern] = None
    return tuple(seen)


def _shipped() -> Rulebook:
    compiled = _PACKAGE / "knowledge.json"
    if compiled.is_file():
        return _from_compiled(json.loads(compiled.read_bytes()))
    return read_folder(shipped_folder())


def _from_compiled(content: dict[str, Any]) -> Rulebook:
    """
    Objects from our own compiled JSON, which cattrs has checked when it was built.
    """
    literals = {pattern: tuple(found) for pattern, found in content.pop("literals", {}).items()}
    return Rulebook(
        schema=content["schema"],
        release=content["release"],
        causes=tuple(_quick_cause(each) for each in content["causes"]),
        landmarks=tuple(Landmark(**_tuples(each)) for each in content["landmarks"]),
        literals=literals,
    )


def _quick_cause(content: dict[str, Any]) -> Cause:
    for key in ("signs", "against"):
        if key in content:
            content[key] = tuple(SIGN_KINDS[each.pop("kind")](**_tuples(each)) for each in content[key])
    for key, cls in (("look_alikes", LookAlike), ("mitigations", Mitigation), ("settled_by", NextLook)):
        if key in content:
            content[key] = tuple(cls(**_tuples(each)) for each in content[key])
    return Cause(**_tuples(content))


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def _lean(value: Any) -> Any:
    """
    Without keys that say nothing: empty text, empty lists, None.
    """
    if isinstance(value, dict):
        return {
            key: _lean(each)
            for key, each in value.items()
            if each not in ("", None) and each not in ((), [], {})
        }
    return [_lean(each) for each in value] if isinstance(value, (list, tuple)) else value


def _overlaid(book: Rulebook, more: Rulebook, place: str) -> Rulebook:
    causes = {each.id: each for each in book.causes}
    landmarks = {each.id: each for each in book.landmarks}
    ids = (*(cause.id for cause in more.causes), *(landmark.id for landmark in more.landmarks))
    notes = [f"{each} is overridden by {place}" for each in ids if each in causes or each in landmarks]
    causes.update((each.id, each) for each in more.causes)
    landmarks.update((each.id, each) for each in more.landmarks)
    return evolve(
        book,
        causes=tuple(causes.values()),
        landmarks=tuple(landmarks.values()),
        notes=(*book.notes, *more.notes, *notes),
    )


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        problems.append(f"{path.name}: {problem}")
        return {}


def _unfit(content: Mapping[str, Any]) -> Iterable[str]:
    """
    Values that a field's own rule refuses. cattrs stops before these when a key is wrong.
    """
    yield from _unfit_fields(content, Cause, "")
    for key in ("signs", "against"):
        tables = content.get(key)
        for index, table in enumerate(tables if isinstance(tables, list) else ()):
            cls = SIGN_KINDS.get(str(table.get("kind"))) if isinstance(table, dict) else None
            if cls is not None:
                yield from _unfit_fields(table, cls, _toml_path(f".{key}[{index}]"))


def _unfit_fields(table: Mapping[str, Any], cls: type[Any], path: str) -> Iterable[str]:
    for each in fields(cls):
        if each.validator is None or each.name not in table:
            continue
        try:
            each.validator(None, each, table[each.name])
        except ValueError as problem:
            yield f"{path}.{each.name}: {problem.args[0]}"
        except TypeError:  # of the wrong type: told already
            continue


def _structured(
    path: Path, folder: Path, cls: type[Cause], converter: Converter, problems: list[str]
) -> Iterable[Cause]:
    content = _renamed(_read(path, problems))
    where = path.relative_to(folder)
    if not content:
        return
    expected = f"{path.parent.name}.{path.stem}"
    if content.get("id") != expected:
        problems.append(
            f"{where}: .id: expected {expected!r} (the path, with a dot), got {content.get('id')!r}"
        )
    try:
        yield converter.structure(content, cls)
    except Exception as problem:  # noqa: BLE001  cattrs raises groups of anything
        lines = dict.fromkeys((*_worded(problem), *_unfit(content)))
        problems += [f"{where}: {line}" for line in lines]


def _structured_list(
    path: Path, folder: Path, converter: Converter, problems: list[str]
) -> Iterable[Landmark]:
    content = _read(path, problems)
    where = path.relative_to(folder)
    if extra := sorted(set(content) - {"landmark"}):
        problems.append(f"{where}: unknown keys {', '.join(extra)} (expected [[landmark]] tables)")
    for index, each in enumerate(content.get("landmark", ())):
        try:
            yield converter.structure(each, Landmark)
        except Exception as problem:  # noqa: BLE001
            lines = dict.fromkeys((*_worded(problem), *_unfit_fields(each, Landmark, "")))
            problems += [f"{where}: .landmark[{index}]{line}" for line in lines]


#: TOML tables are named in the singular, as TOML files usually have them.
_SINGULAR = {
    "sign": "signs",
    "mitigation": "mitigations",
    "look_alike": "look_alikes",
    "settles": "settled_by",
}


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    return {_SINGULAR.get(key, key): value for key, value in content.items()}


def _manifest_problems(manifest: Mapping[str, Any]) -> list[str]:
    schema = manifest.get("schema", SCHEMA)
    if schema != SCHEMA:
        return [f"manifest.toml: .schema: this workerdiag reads schema {SCHEMA}, the folder has {schema!r}"]
    return []


def _misplaced(folder: Path) -> list[str]:
    """
    TOML files that nothing reads, because they lie in the wrong place.
    """
    read = {*folder.glob("causes/*/*.toml"), *folder.glob("landmarks/*.toml"), folder / "manifest.toml"}
    return [
        f"{path.relative_to(folder)}: not read; causes go to causes/<family>/<cause>.toml"
        for path in sorted(folder.rglob("*.toml"))
        if path not in read
    ]


def _doubled(causes: Iterable[Cause], landmarks: Iterable[Landmark]) -> list[str]:
    problems = []
    seen: set[str] = set()
    for landmark in landmarks:
        if landmark.id in seen:
            problems.append(f"landmark {landmark.id}: defined twice")
        seen.add(landmark.id)
    for cause in causes:
        names = [sign.name for sign in (*cause.signs, *cause.against)]
        problems += [
            f"{cause.id}: two signs are named {name!r}"
            for name in sorted({n for n in names if names.count(n) > 1})
        ]
    return problems


def _converter() -> Converter:
    """
    One converter of our own: exact types, no unknown keys, tagged signs.
    """
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn

    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for primitive in (str, int, bool):
        converter.register_structure_hook(primitive, _exact(primitive))
    converter.register_structure_hook(float, _number)
    makers: dict[type[Any], Callable[..., Any]] = {
        cls: make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)
        for cls in SIGN_KINDS.values()
    }

    def sign(value: Any, _: Any) -> Sign:
        if not isinstance(value, dict):
            raise TypeError(f"expected a table, got {value!r}")
        kind = str(value.get("kind"))
        if kind not in SIGN_KINDS:
            raise ValueError(f"kind must be one of {', '.join(SIGN_KINDS)}, got {kind!r}")
        rest = {key: each for key, each in value.items() if key != "kind"}
        return cast("Sign", makers[SIGN_KINDS[kind]](rest, SIGN_KINDS[kind]))

    converter.register_structure_hook_func(lambda cls: cls == Sign, sign)
    for cls, kind in _KIND_OF.items():
        converter.register_unstructure_hook(cls, _tagged(converter, cls, kind))
    return converter


def _tagged(converter: Converter, cls: type[Any], kind: str) -> Callable[[Any], dict[str, Any]]:
    def unstructure(sign: Any) -> dict[str, Any]:
        return {"kind": kind} | {
            each.name: converter.unstructure(getattr(sign, each.name)) for each in fields(cls)
        }

    assert has(cls)
    return unstructure


def _exact(expected: type[Any]) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(f"expected {expected.__name__}, got {value!r}")
        return value

    return check


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"expected a number, got {value!r}")
    return float(value)


def _worded(problem: Exception) -> list[str]:
    """
    One line for each thing that is wrong, as ``.sign[0].grade: what``.
    """
    from cattrs import transform_error
    from cattrs.errors import ForbiddenExtraKeysError

    def words(exc: BaseException, _: Any) -> str:
        match exc:
            case ForbiddenExtraKeysError():
                return f"unknown key {', '.join(sorted(exc.extra_fields))}"
            case KeyError():
                return f"the key {exc.args[0]!r} is missing"
            case ValueError() if len(exc.args) > 1 and hasattr(exc.args[1], "name"):
                return ""  # of an attrs validator: see `_unfit`
            case _:
                return str(exc)

    lines = []
    for line in transform_error(problem, path="", format_exception=words):
        what, _, where = line.rpartition(" @ ")
        if what:
            lines.append(f"{_toml_path(where) or '.'}: {what}")
    return lines


def _toml_path(path: str) -> str:
    for singular, plural in _SINGULAR.items():
        path = path.replace(f".{plural}[", f".{singular}[")
    return path
