"""
The rulebook: the shipped rules, installed packs, and the user's folders.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from attrs import evolve

from workerdiag.deadline import Deadline
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.compiled import from_compiled
from workerdiag.rulebook.packs import installed_packs

#: What installed packs may take to load, where nobody waits for an answer.
_PACKS_S = 30.0
_PACKAGE = Path(__file__).parents[1]


def load_rulebook(*paths: str | Path, packs: bool = True, disable: Collection[str] = ()) -> Rulebook:
    """
    The shipped rulebook, with installed packs and the folders *paths* added to it.

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
    from workerdiag.rulebook.folder import read_folder

    book, _ = load_rulebook_in_time(Deadline.after(_PACKS_S)) if packs else (_shipped_rulebook(), True)
    for path in paths:
        book = _overlay(book, read_folder(Path(path)), str(path))
    return _disable_causes(book, disable) if disable else book


def load_rulebook_in_time(deadline: Deadline) -> tuple[Rulebook, bool]:
    """
    The shipped rulebook with those installed packs that load before *deadline*, and whether all did.
    """
    book, whole = _shipped_rulebook(), True
    for pack in installed_packs(deadline):
        if pack.book is not None:
            book = _overlay(book, pack.book, f"pack {pack.name}")
        book = evolve(book, notes=(*book.notes, *pack.notes))
        whole = whole and not pack.is_late
    return book, whole


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


def _shipped_rulebook() -> Rulebook:
    compiled = _PACKAGE / "knowledge.json"
    if compiled.is_file():
        return from_compiled(json.loads(compiled.read_bytes()))
    from workerdiag.rulebook.folder import read_folder  # imports cattrs

    return read_folder(shipped_folder())


def _overlay(book: Rulebook, more: Rulebook, place: str) -> Rulebook:
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
        advice=(*book.advice, *more.advice),
        task_advice=(*book.task_advice, *more.task_advice),
        notes=(*book.notes, *more.notes, *notes),
    )


def _disable_causes(book: Rulebook, disable: Collection[str]) -> Rulebook:
    known = {each.id for each in book.causes}
    notes = [
        f"{each} is disabled" if each in known else f"{each} cannot be disabled: there is no such cause"
        for each in sorted(disable)
    ]
    enabled = tuple(each for each in book.causes if each.id not in disable)
    return evolve(book, causes=enabled, notes=(*book.notes, *notes))
