"""The folder of a triage: outcomes of parts as they arrive, and tables at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from workerdiag.errors import TableError, error_text
from workerdiag.model.rules import Rulebook
from workerdiag.triage.outcome import OUTCOME_SCHEMA, PartOutcome, unpack_outcome
from workerdiag.triage.parts import Part
from workerdiag.triage.rows import DeathRow, InputRow
from workerdiag.triage.table_forms import TableFormat
from workerdiag.triage.tables import folder_remedy, write_table, write_whole

#: The subfolder that holds the outcomes of parts.
PARTS_FOLDER: Final = "parts"
_SUFFIX = ".marks"
_KEY_CHARS = 32


class TriageFolder:
    """The folder that keeps the state of a triage, so that it can resume after any interruption.

    Args:
        path: The folder; it is created on the first write.
        form: The format of the tables.
    """

    def __init__(self, path: Path, form: TableFormat) -> None:
        self.path = path
        self._form = form
        self._parts = path / PARTS_FOLDER

    def keep(self, key: str, packed: bytes) -> None:
        """Save the outcome of a part.

        Raises:
            TableError: The folder cannot be written to.
        """
        try:
            write_whole(self._parts / f"{key}{_SUFFIX}", packed)
        except OSError as problem:
            raise TableError(str(self.path), error_text(problem), folder_remedy(problem)) from problem

    def kept(self, key: str) -> bytes | None:
        """Return the saved outcome of a part, or None."""
        try:
            return (self._parts / f"{key}{_SUFFIX}").read_bytes()
        except OSError:
            return None

    def kept_bytes(self, key: str) -> int:
        """Return the size of the saved outcome of a part."""
        try:
            return (self._parts / f"{key}{_SUFFIX}").stat().st_size
        except OSError:
            return 0

    def finished(self, key: str) -> PartOutcome | None:
        """Return the saved outcome. If reading the part failed, return None, so that it is retried."""
        packed = self.kept(key)
        if packed is None:
            return None
        try:
            outcome = unpack_outcome(packed)
        except ValueError:
            return None
        return None if outcome.row.status == "failed" else outcome

    def write_tables(self, deaths: Iterable[DeathRow], inputs: Iterable[InputRow]) -> None:
        """Write both tables again.

        Raises:
            TableError: The tables cannot be written.
        """
        write_table(self.path / f"inputs.{self._form}", InputRow, inputs)
        write_table(self.path / f"deaths.{self._form}", DeathRow, deaths)

    def forget_others(self, keys: Collection[str]) -> None:
        """Remove the outcomes of all parts that are not in *keys*: their files or the rules have changed."""
        for path in self._parts.glob(f"*{_SUFFIX}"):
            if path.name.removesuffix(_SUFFIX) not in keys:
                path.unlink(missing_ok=True)


def rules_key(book: Rulebook) -> str:
    """Return a key that is equal for rulebooks that find the same."""
    return hashlib.sha256(f"{book.release}\n{book.causes!r}\n{book.landmarks!r}".encode()).hexdigest()


def part_key(part: Part, rules: str) -> str:
    """Return a key that is equal for parts with the same bytes, searched by the same rules."""
    file = part.file
    facts = (file.url, file.etag, file.size_bytes, file.modified_at, part.first_byte, part.end_byte)
    text = f"{OUTCOME_SCHEMA}\n{rules}\n{facts!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARS]
