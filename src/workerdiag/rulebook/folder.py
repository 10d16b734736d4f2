"""
Reading a folder of TOML files: the only place that knows how they lie on disk.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workerdiag.errors import RuleFileError
from workerdiag.model.rules import Cause, Landmark, Rulebook
from workerdiag.rulebook.kinds import ENGINE, SCHEMA, SINGULAR
from workerdiag.rulebook.structuring import cause_mistakes, converter, landmark_mistakes


def read_folder(folder: Path) -> Rulebook:
    """
    All TOML files of one folder, strictly: every problem of every file is reported at once.

    Rules that want a newer engine (`engine` in a cause) are left out, with a note.

    Raises:
        RuleFileError: There is no such folder, nothing in it, or a file has problems.
    """
    if not folder.is_dir():
        raise RuleFileError(str(folder), ("there is no such folder",))
    reading = _Reading(folder)
    book = reading.book()
    if reading.problems:
        raise RuleFileError(str(folder), tuple(reading.problems))
    return book


class _Reading:
    """
    One folder on its way to a rulebook.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._converter = converter()
        self.problems: list[str] = []
        self._notes: list[str] = []

    def book(self) -> Rulebook:
        manifest = self._manifest()
        causes = [each for path in sorted(self._folder.glob("causes/*/*.toml")) for each in self._cause(path)]
        marks = [
            each for path in sorted(self._folder.glob("landmarks/*.toml")) for each in self._landmarks(path)
        ]
        self.problems += [*_misplaced(self._folder), *_doubled(causes, marks)]
        if not causes and not marks and not self.problems and not self._notes:
            self.problems.append("holds no causes/<family>/<cause>.toml and no landmarks/*.toml")
        return Rulebook(
            schema=SCHEMA,
            release=str(manifest.get("release", "unreleased")),
            causes=tuple(causes),
            landmarks=tuple(marks),
            notes=tuple(self._notes),
        )

    def _manifest(self) -> Mapping[str, Any]:
        path = self._folder / "manifest.toml"
        manifest = self._read(path) if path.exists() else {}
        if (schema := manifest.get("schema", SCHEMA)) != SCHEMA:
            self.problems.append(
                f"manifest.toml: .schema: this workerdiag reads schema {SCHEMA}, the folder has {schema!r}"
            )
        return manifest

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            self.problems.append(f"{path.relative_to(self._folder)}: {problem}")
            return {}

    def _cause(self, path: Path) -> Iterator[Cause]:
        content = {SINGULAR.get(key, key): value for key, value in self._read(path).items()}
        where, expected = path.relative_to(self._folder), f"{path.parent.name}.{path.stem}"
        if not content:
            return
        if _is_newer(content.get("engine")):
            self._notes.append(f"{expected} is left out: it wants workerdiag {content['engine']} or newer")
            return
        if content.get("id") != expected:
            said = content.get("id")
            self.problems.append(f"{where}: .id: expected {expected!r} (the path, with a dot), got {said!r}")
        try:
            yield self._converter.structure(content, Cause)
        except Exception as problem:  # noqa: BLE001  cattrs raises groups of anything
            self.problems += [f"{where}: {line}" for line in cause_mistakes(content, problem)]

    def _landmarks(self, path: Path) -> Iterator[Landmark]:
        content = self._read(path)
        where = path.relative_to(self._folder)
        if extra := sorted(set(content) - {"landmark"}):
            self.problems.append(f"{where}: unknown keys {', '.join(extra)} (expected [[landmark]] tables)")
        for index, each in enumerate(content.get("landmark", ())):
            try:
                yield self._converter.structure(each, Landmark)
            except Exception as problem:  # noqa: BLE001
                lines = landmark_mistakes(each, problem)
                self.problems += [f"{where}: .landmark[{index}]{line}" for line in lines]


def _is_newer(engine: object) -> bool:
    """
    Whether a rule names an engine that is newer than this one; nonsense is told as a mistake later.
    """
    parts = str(engine).split(".") if isinstance(engine, str) else []
    return bool(parts) and all(part.isdigit() for part in parts) and tuple(map(int, parts)) > ENGINE


def _misplaced(folder: Path) -> Iterator[str]:
    """
    TOML files that nothing reads, because they lie in the wrong place.
    """
    read = {
        *folder.glob("causes/*/*.toml"),
        *folder.glob("landmarks/*.toml"),
        *folder.glob("incidents/*/meta.toml"),  # incidents.py
        folder / "manifest.toml",
    }
    for path in sorted(folder.rglob("*.toml")):
        if path not in read:
            yield f"{path.relative_to(folder)}: not read; causes go to causes/<family>/<cause>.toml"


def _doubled(causes: Iterable[Cause], landmarks: Iterable[Landmark]) -> Iterator[str]:
    seen: set[str] = set()
    for landmark in landmarks:
        if landmark.id in seen:
            yield f"landmark {landmark.id}: defined twice"
        seen.add(landmark.id)
    for cause in causes:
        names = [sign.name for sign in (*cause.signs, *cause.against)]
        for name in sorted({each for each in names if names.count(each) > 1}):
            yield f"{cause.id}: two signs are named {name!r}"
