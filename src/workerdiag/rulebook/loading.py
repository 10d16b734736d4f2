"""
Which rules are in force: the shipped ones, installed packs, and folders of one's own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

from attrs import evolve

from workerdiag.errors import RuleFileError
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.compiled import from_compiled
from workerdiag.rulebook.folder import read_folder

#: Entry points of this group name the folder of a pack: a path, or a callable that returns one.
PACKS = "workerdiag.knowledge"
_PACKAGE = Path(__file__).parents[1]


def load_rulebook(*paths: str | Path, packs: bool = True, disable: Collection[str] = ()) -> Rulebook:
    """
    The shipped rulebook, with installed packs and the folders *paths* added to it.

    Args:
        paths: Folders laid out like ``knowledge/`` (``causes/<family>/<cause>.toml``,
            ``landmarks/*.toml``; no ``manifest.toml`` needed). What comes later overrides an
            id of what came before, which is noted in ``Rulebook.notes``.
        packs: Whether to add installed packs (entry point group ``workerdiag.knowledge``). A
            pack with problems is left out, with a note.
        disable: Ids of causes to leave out.

    Raises:
        RuleFileError: A folder of *paths* has problems; it lists all of them.
    """
    book = _shipped()
    for name, folder in _packs() if packs else ():
        book = _with_pack(book, name, folder)
    for path in paths:
        book = _overlaid(book, read_folder(Path(path)), str(path))
    return _without(book, disable) if disable else book


def shipped_folder() -> Path:
    """
    Where the shipped TOML files are: in the wheel, or in the checkout beside ``src``.
    """
    inside = _PACKAGE / "knowledge"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "knowledge"


def quiet_lines() -> tuple[str, ...]:
    """
    Lines that healthy clusters write (``knowledge/quiet.txt``), each as ``logger - LEVEL - message``.
    """
    text = (shipped_folder() / "quiet.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def _shipped() -> Rulebook:
    compiled = _PACKAGE / "knowledge.json"
    if compiled.is_file():
        return from_compiled(json.loads(compiled.read_bytes()))
    return read_folder(shipped_folder())


def _packs() -> Iterator[tuple[str, object]]:
    """
    Names of installed packs, each with its folder, or with what went wrong in finding it.
    """
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=PACKS), key=lambda each: each.name):
        try:
            found = point.load()
            yield point.name, Path(str(found() if callable(found) else found))
        except Exception as problem:  # noqa: BLE001  a stranger's code; the other rules still count
            yield point.name, problem


def _with_pack(book: Rulebook, name: str, folder: object) -> Rulebook:
    if isinstance(folder, Path):
        try:
            return _overlaid(book, read_folder(folder), f"pack {name}")
        except RuleFileError as problem:
            told = problem.problems[0] + (" ..." if len(problem.problems) > 1 else "")
    else:
        told = f"{type(folder).__name__}: {folder}"
    return evolve(book, notes=(*book.notes, f"pack {name} is left out: {told}"))


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


def _without(book: Rulebook, disable: Collection[str]) -> Rulebook:
    known = {each.id for each in book.causes}
    notes = [
        f"{each} is disabled" if each in known else f"{each} cannot be disabled: there is no such cause"
        for each in sorted(disable)
    ]
    kept = tuple(each for each in book.causes if each.id not in disable)
    return evolve(book, causes=kept, notes=(*book.notes, *notes))
