"""Read the deaths in folders and files, and note what could not be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, evolve, field

from workerdiag.errors import StateFileError, TableError, UnreadableInputError, error_text, utf8_safe
from workerdiag.incidents.state_file_reader import (
    KeptDeath,
    UnreadableDeath,
    blind_clusters,
    read_kept_deaths,
)
from workerdiag.redaction.secrets import redact_text
from workerdiag.triage.fleet.values import FleetGap, FleetTable, MissingPart, TableKind
from workerdiag.triage.tables import TABLE_FORMATS, BadRow, DeathRow, InputRow, Row, kind_of_table, read_rows

#: Usual file extensions of SQLite databases.
_STATE_SUFFIXES = frozenset({".db", ".sqlite", ".sqlite3"})
_TABLE_SUFFIXES = frozenset(f".{each}" for each in TABLE_FORMATS)
_NO_PLACE = "give the folder that workerdiag triage --output wrote, or a watcher's state file"
_NEITHER = "it is neither a table of triage (.parquet, .csv, .jsonl) nor a watcher's state file"
#: The first bytes of each SQLite database (https://sqlite.org/fileformat.html).
_DATABASE_HEAD = b"SQLite format 3\0"
_WRITE_AGAIN = "write the table again"
_LOOK_AGAIN = "triage them again"


@define
class Collector:
    """Reads files one by one. A file that cannot be read becomes a gap; reading continues with the next."""

    tables: list[FleetTable] = field(factory=list)
    #: The deaths and stops of each table.
    deaths: list[list[DeathRow]] = field(factory=list)
    gaps: list[FleetGap] = field(factory=list)
    _inputs: list[tuple[Path, InputRow]] = field(factory=list)

    def read(self, places: Iterable[str | os.PathLike[str]]) -> None:
        """Read all tables and state files in folders (with all below them), and the files named.

        Raises:
            UnreadableInputError: A place does not exist, or none of them holds a table or state file.
        """
        given = [Path(each) for each in places]
        files = sorted({path.absolute() for each in given for path in self._files(each)})
        if not files and not self.gaps:
            names = ", ".join(utf8_safe(str(each)) for each in given)
            raise UnreadableInputError(
                names, "there is no table of triage and no watcher's state file", _NO_PLACE
            )
        for path in files:
            try:
                if path.suffix.lower() in _TABLE_SUFFIXES:
                    self._read_table(path)
                elif path.suffix.lower() not in _STATE_SUFFIXES and not _is_database(path):
                    self._miss("file", path, _NEITHER, _NO_PLACE)
                else:
                    self._read_state(path)
            except (TableError, StateFileError) as problem:
                self._miss("file", path, problem.why, problem.remedy)
        self._miss_inputs()

    def _files(self, place: Path) -> Iterator[Path]:
        if place.is_file():
            yield place
            return
        if not place.is_dir():
            raise UnreadableInputError(utf8_safe(str(place)), "there is no such folder or file", _NO_PLACE)
        for folder, below, names in os.walk(place, onerror=self._miss_folder):
            below[:] = [each for each in below if not each.startswith(".")]
            for name in names:
                path = Path(folder, name)
                if path.suffix.lower() in _TABLE_SUFFIXES | _STATE_SUFFIXES and not name.startswith("."):
                    yield path

    def _read_table(self, path: Path) -> None:
        kind = kind_of_table(path)
        if kind is InputRow:
            self._inputs += [(path, each) for each in self._good_rows(path, InputRow)]
        elif kind is DeathRow:
            rows: list[DeathRow] = []
            with self._adding(path, "triage", rows):
                rows.extend(self._good_rows(path, DeathRow))

    def _good_rows(self, path: Path, kind: type[Row]) -> Iterator[Row]:
        good, bad = 0, []
        for each in read_rows(path, kind):
            if isinstance(each, BadRow):
                bad.append(f"row {each.number}: {each.problem}")
            else:
                good += 1
                yield each
        self._miss_rows(path, good, bad)

    def _read_state(self, path: Path) -> None:
        rows: list[DeathRow] = []
        bad: list[str] = []
        with self._adding(path, "watcher", rows):
            for each in read_kept_deaths(path):
                if isinstance(each, UnreadableDeath):
                    bad.append(f"death {each.id}: {each.problem}")
                else:
                    rows.append(death_row(each))
        self._miss_rows(path, len(rows), bad)
        for cluster, why in blind_clusters(path):
            self._miss("unseen", path, f"its watcher did not see {cluster} for a while: {why}")

    @contextmanager
    def _adding(self, path: Path, kind: TableKind, rows: Sequence[DeathRow]) -> Iterator[None]:
        """Add the *rows* read within. A file from which nothing can be read does not count as a table."""
        try:
            yield
        except (TableError, StateFileError):
            if rows:
                self._add_deaths(path, kind, rows)
            raise
        self._add_deaths(path, kind, rows)

    def _add_deaths(self, path: Path, kind: TableKind, rows: Sequence[DeathRow]) -> None:
        self.tables.append(FleetTable(path=utf8_safe(str(path)), kind=kind, row_count=len(rows)))
        self.deaths.append([_dated(each) for each in rows])

    def _miss_inputs(self) -> None:
        """Note the logs that no triage could read. A log counts as read if one of several triages could read it."""
        done = {(each.url, each.first_byte) for _, each in self._inputs if each.status != "failed"}
        failed: dict[Path, list[InputRow]] = {}
        for path, each in self._inputs:
            if each.status == "failed" and (each.url, each.first_byte) not in done:
                failed.setdefault(path, []).append(each)
        for path, rows in failed.items():
            first = rows[0]
            what = f"{len(rows):,} of the logs that triage read could not be read to their end"
            self._miss("input", path, f"{what}, the first: {first.url}: {first.reason}", _LOOK_AGAIN)

    def _miss_rows(self, path: Path, good_count: int, bad: Sequence[str]) -> None:
        if bad:
            rows = f"{len(bad):,} of {good_count + len(bad):,} rows cannot be read, the first: {bad[0]}"
            self._miss("rows", path, rows, _WRITE_AGAIN)

    def _miss_folder(self, problem: OSError) -> None:
        self._miss("file", Path(problem.filename), problem.strerror or error_text(problem))

    def _miss(self, part: MissingPart, path: Path, detail: str, remedy: str = "") -> None:
        safe = redact_text(utf8_safe(detail))
        gap = FleetGap(part=part, path=utf8_safe(str(path)), detail=safe, remedy=remedy)
        self.gaps.append(gap)


def _is_database(path: Path) -> bool:
    """Whether the file begins as a database. A file that cannot be opened says why when it is read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_DATABASE_HEAD)) == _DATABASE_HEAD
    except OSError:
        return True


def _dated(row: DeathRow) -> DeathRow:
    """Return the row without a time before 1970, which is invalid: Python's calendar begins in the year 1."""
    return evolve(row, died_at=None) if row.died_at is not None and row.died_at < 0 else row


def death_row(death: KeptDeath) -> DeathRow:
    """Return the row of a death in a watcher's state. Its place is its id, which is the same in each state file."""
    who = death.identity
    return DeathRow(
        case=death.case_key or f"not judged: {death.id}",
        cause=death.cause,
        family=death.cause.partition(".")[0] if death.cause is not None else None,
        probability=death.probability,
        outcome="explained" if death.cause is not None else "unknown",
        blame=death.blame,
        stop_requested=death.is_expected,
        host=who.host,
        worker=who.worker,
        nanny=who.nanny,
        name=who.name,
        pid=who.pid,
        died_at=death.at,
        scheduler=death.cluster,
        run=death.cluster,
        lost_compute_s=death.lost_compute_s,
        url=f"watched:{death.id}",
        offset=0,
        knowledge="",
    )
