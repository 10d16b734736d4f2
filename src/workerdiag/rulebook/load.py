"""The rulebook: the shipped rules, installed packs, the user's folders, and search in its causes."""

from __future__ import annotations

import atexit
import json
import pickle
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import describe_error, error_text
from workerdiag.guard import guarded
from workerdiag.model.rules import Cause, LogSign, Rulebook
from workerdiag.values import evolve, frozen

#: Entry points of this group name a pack: a package with rules, the path of a folder, or a callable for one.
ENTRY_POINT_GROUP = "workerdiag.knowledge"
_MAX_NAMED = 3


def load_rulebook(*paths: str | Path, packs: bool = True, disable: Collection[str] = ()) -> Rulebook:
    """The shipped rulebook, with installed packs and the folders *paths* added to it.

    Args:
        paths: Folders laid out like ``knowledge/`` (``causes/<family>/<cause>.toml``,
            ``landmarks/*.toml``; no ``manifest.toml`` needed). What comes later overrides an
            id of what came before, which is noted in ``Rulebook.notes``.
        packs: Whether to add installed packs (entry point group ``workerdiag.knowledge``). A
            pack or a file of one that has problems is left out, with a note.
        disable: Ids of causes to leave out.

    Raises:
        RuleFileError: A folder of *paths* has problems; it lists all of them.
    """
    from workerdiag.rulebook.toml_folder import read_folder

    book, _ = load_rulebook_in_time(Deadline.after(30.0)) if packs else (shipped_rulebook(), True)
    for path in paths:
        book = _overlay(book, read_folder(Path(path)), str(path))
    known = {each.id for each in book.causes}
    notes = [
        f"{each} is disabled" if each in known else f"{each} cannot be disabled: there is no such cause"
        for each in sorted(disable)
    ]
    enabled = tuple(each for each in book.causes if each.id not in disable)
    return evolve(book, causes=enabled, notes=(*book.notes, *notes)) if disable else book


def load_rulebook_in_time(deadline: Deadline) -> tuple[Rulebook, bool]:
    """The shipped rulebook with those installed packs that load before *deadline*, and whether all did."""
    book, whole = shipped_rulebook(), True
    for pack in installed_packs(deadline):
        if pack.book is not None:
            book = _overlay(book, pack.book, f"pack {pack.name}")
        book = evolve(book, notes=(*book.notes, *pack.notes))
        whole = whole and not pack.is_late
    return book, whole


@cache
def shipped_folder() -> Path:
    """Return the folder of the shipped TOML files, in the wheel or beside ``src``; from a zip file a copy."""
    package = files("workerdiag")
    inside = package.joinpath("knowledge")
    if isinstance(package, Path):
        return package / "knowledge" if inside.is_dir() else package.parents[1] / "knowledge"
    from importlib_resources import as_file  # that of Python 3.11 takes no folders

    copies = ExitStack()
    atexit.register(copies.close)
    copy: Path = copies.enter_context(as_file(inside))
    return copy


def quiet_lines(folder: Path | None = None) -> tuple[str, ...]:
    """Lines that healthy clusters write (``quiet.txt`` of a rule folder), each as ``logger - LEVEL - message``."""
    path = (folder or shipped_folder()) / "quiet.txt"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def shipped_rulebook() -> Rulebook:
    """Return the rules that workerdiag brings, read once."""
    compiled = files("workerdiag").joinpath("knowledge.pickle")
    if compiled.is_file():
        return cast("Rulebook", pickle.loads(compiled.read_bytes()))  # noqa: S301  ours, as this code is
    from workerdiag.rulebook.toml_folder import read_folder  # imports cattrs

    return read_folder(shipped_folder())


def _overlay(book: Rulebook, more: Rulebook, place: str) -> Rulebook:
    known = {*(each.id for each in book.causes), *book.landmarks_by_id}
    ids = (*(each.id for each in more.causes), *(each.id for each in more.landmarks))
    notes = [f"{each} is overridden by {place}" for each in ids if each in known]
    return evolve(
        book,
        causes=tuple({each.id: each for each in (*book.causes, *more.causes)}.values()),
        landmarks=tuple({each.id: each for each in (*book.landmarks, *more.landmarks)}.values()),
        errors=(*more.errors, *book.errors),  # the first that fits decides
        reasons=tuple({each.id: each for each in (*book.reasons, *more.reasons)}.values()),
        advice=(*book.advice, *more.advice),
        task_advice=(*book.task_advice, *more.task_advice),
        notes=(*book.notes, *more.notes, *notes),
    )


@frozen(kw_only=True)
class Pack:
    """One pack, as far as it can be used."""

    name: str
    #: Its rules; None if there are none.
    book: Rulebook | None = None
    #: What was left out of it, a sentence each.
    notes: tuple[str, ...] = ()
    #: Whether it would perhaps be there with more time.
    is_late: bool = False


def installed_packs(deadline: Deadline) -> Iterator[Pack]:
    """The installed packs by name, each with what is left out of it, all before *deadline*."""
    points: list[EntryPoint] = []
    with guarded("looking for rule packs") as looking:
        points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name)
    if looking.problem is not None:
        yield Pack(name="", notes=(f"no pack can be found: {describe_error(looking.problem)}",))
    for point in points:
        try:
            yield call_in_time("workerdiag-pack", partial(_read_pack, point), deadline)
        except CALL_FAILURES as problem:
            is_late = isinstance(problem, TimeoutError)
            why = "loading it takes too long" if is_late else error_text(problem)
            note = f"pack {point.name} is left out: {why}"[:500]
            yield Pack(name=point.name, notes=(note,), is_late=is_late)


def _read_pack(point: EntryPoint) -> Pack:
    from workerdiag.rulebook.toml_folder import read_lenient  # imports cattrs

    found = point.load()
    found = found() if callable(found) else found
    book, problems = read_lenient(
        Path(next(iter(found.__path__))) if isinstance(found, ModuleType) else Path(str(found))
    )
    problem_text = "; ".join(each[:200] for each in problems[:_MAX_NAMED])
    problem_text += f"; and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
    if not (book.causes or book.landmarks or book.reasons):
        return Pack(name=point.name, notes=(f"pack {point.name} is left out: {problem_text or 'it is empty'}",))
    notes = (f"of pack {point.name} is left out: {problem_text}",) if problems else ()
    return Pack(name=point.name, book=book, notes=notes)


def compile_rulebook(book: Rulebook, literals: Mapping[str, tuple[str, ...]]) -> bytes:
    """What a wheel carries, from which `load_rulebook` loads quickly: the objects, pickled."""
    return pickle.dumps(evolve(book, literals=dict(literals)), protocol=5)


def export_rulebook(book: Rulebook, literals: Mapping[str, tuple[str, ...]]) -> str:
    """All rules as one JSON text, with the *literals* of each pattern."""
    from workerdiag.rulebook.toml_folder import rule_converter  # loading needs none

    content = cast("dict[str, Any]", _without_empty(rule_converter().unstructure(evolve(book, literals={}))))
    content["literals"] = {pattern: list(found) for pattern, found in literals.items()}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def patterns(book: Rulebook) -> Iterable[str]:
    """Every pattern of *book* that is searched for in log text, each once."""
    return tuple(dict.fromkeys(text for _, _, rule in book.log_rules() for text in rule.wordings))


def _without_empty(value: object) -> object:
    """Without keys that say nothing: empty text, empty lists, None."""
    if isinstance(value, dict):
        return {
            key: _without_empty(each)
            for key, each in value.items()
            if each not in ("", None) and each not in ((), [], {})
        }
    return [_without_empty(each) for each in value] if isinstance(value, (list, tuple)) else value


def search_causes(book: Rulebook, query: str, *, most: int = 10) -> tuple[Cause, ...]:
    """The causes with most words of *query*, which may be a line of a log, the best first; deprecated ones last."""
    wanted = _stems(query)
    scored = [(score, each) for each in book.causes if (score := _score(each, wanted)) > 0]
    scored.sort(key=lambda pair: (pair[1].status != "stable", -pair[0], pair[1].id))
    return tuple(cause for _, cause in scored[:most])


def _score(cause: Cause, wanted: frozenset[str]) -> float:
    found = [(worth, wanted & _stems(" ".join(texts))) for worth, texts in _searched_texts(cause)]
    words = frozenset[str]().union(*(each for _, each in found))
    return len(words) * sum(worth * len(each) for worth, each in found)


def _searched_texts(cause: Cause) -> Iterator[tuple[float, list[str]]]:
    """What a word in a part of a cause is worth, with the texts of that part."""
    logs = (sign for sign in cause.signs if isinstance(sign, LogSign))
    yield 8.0, [cause.id]
    yield 4.0, [cause.title]
    yield 2.0, [cause.why]
    yield 1.0, [*(sign.name for sign in cause.signs), *(line for sign in logs for line in sign.seen)]
    # the advice and the next steps, also those that many causes share
    advice = [text for each in cause.mitigations for text in (each.when, each.do, each.example)]
    yield 0.5, advice + [text for step in cause.next_steps for text in (step.inspect, step.command)]


def _stems(text: str) -> frozenset[str]:
    """The beginnings of words: "killing" finds "killed". Names of programs are compared whole."""
    return frozenset(word if "_" in word else word[:5] for word in re.findall(r"[a-z0-9_]{2,}", text.lower()))
