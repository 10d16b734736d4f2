"""The SQLite file with the watcher's state: its tables, its transactions, and values as JSON text.

A committed transaction survives a kill and a power failure (``synchronous=FULL``). Every error of SQLite
becomes a `StateFileError`; the file is never replaced, emptied or repaired.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workerdiag.bundle.evidence_json import piece_from_dict, piece_to_dict
from workerdiag.errors import StateFileError, StateInUseError, describe_error, error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.incidents import APPLICATION_ID, SCHEMA_VERSION
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.serialization import strict_converter

if TYPE_CHECKING:
    from cattrs import Converter

#: Seconds to wait for another process that writes.
BUSY_S = 10.0
#: What to do about a row that cannot be read.
CHANGED_REMEDY = "it was changed by hand or by another version; keep a copy of it and name another file"
_TABLES = """
CREATE TABLE cursor (cluster TEXT PRIMARY KEY, epoch TEXT NOT NULL, position INTEGER NOT NULL, seen_at REAL NOT NULL);
CREATE TABLE death (
    id TEXT PRIMARY KEY, cluster TEXT NOT NULL, at REAL NOT NULL, is_expected INTEGER NOT NULL, identity TEXT NOT NULL,
    evidence TEXT, is_judged INTEGER NOT NULL DEFAULT 0, case_id TEXT, added_at REAL NOT NULL);
CREATE INDEX pending_death ON death (cluster, at) WHERE is_judged = 0;
CREATE TABLE watch_case (
    id TEXT PRIMARY KEY, cluster TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL, changed_at REAL NOT NULL);
CREATE TABLE notice (id TEXT PRIMARY KEY, body TEXT NOT NULL, added_at REAL NOT NULL);
CREATE TABLE delivery (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, notice_id TEXT NOT NULL, case_id TEXT NOT NULL,
    sink TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    earlier_attempts INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL, changed_at REAL NOT NULL,
    problem TEXT NOT NULL DEFAULT '', receipt TEXT NOT NULL DEFAULT '{}');
CREATE INDEX unsent_of_sink ON delivery (sink, number) WHERE state IN ('pending', 'sending');
CREATE INDEX unsent_of_case ON delivery (sink, case_id, number) WHERE state IN ('pending', 'sending');
CREATE INDEX delivery_of_case ON delivery (case_id, sink, number);
CREATE INDEX delivery_of_notice ON delivery (notice_id);
CREATE TABLE watcher (process TEXT NOT NULL);
"""  # noqa: E501  one table, one statement

#: Advice by SQLite's primary result code (https://sqlite.org/rescode.html).
_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "name another file; this one was left as it is",
    sqlite3.SQLITE_CORRUPT: "keep a copy of it and name another file",
    sqlite3.SQLITE_READONLY: "make it and its folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "make it and its folder readable and writable for this user",
    sqlite3.SQLITE_PERM: "make it and its folder writable for this user",
    sqlite3.SQLITE_FULL: "make room on its disk; what was written before is safe",
    sqlite3.SQLITE_IOERR: "see whether its disk is full or broken; what was written before is safe",
    sqlite3.SQLITE_BUSY: "end the process that has it open for writing",
    sqlite3.SQLITE_LOCKED: "end the process that has it open for writing",
}


class StateFile:
    """An open state file, or without a *path* a state in memory. Threads may share it: transactions take turns."""

    def __init__(self, path: str | os.PathLike[str] | None, *, must_exist: bool = False) -> None:
        self.name = "memory" if path is None else utf8_safe(str(path))
        self._path = None if path is None else Path(path)
        self._lock = threading.RLock()
        #: Holds the lock of a watcher, in a database of its own beside the file.
        self._own: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        is_new = self._path is not None and self._is_new(self._path, must_exist=must_exist)
        with self._naming_errors():
            self._connection = sqlite3.connect(
                ":memory:" if self._path is None else self._path,
                timeout=BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(is_new=is_new)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction, or a part of the one around it: everything is written, or nothing if it raises."""
        with self._lock, self._naming_errors():
            is_part = self._connection.in_transaction
            if is_part:
                yield self._connection
                return
            if self._path is not None and self._inode is not None and _inode(self._path) != self._inode:
                why = "it was removed or replaced while in use"  # what is written to it would be lost
                raise StateFileError(self.name, why, "start the watcher again")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite rolls back by itself if the disk is full
                    self._connection.execute("ROLLBACK")
                raise

    def run(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Return the rows of a statement, in the transaction or in one of its own. Text becomes valid Unicode."""
        if isinstance(values, Mapping):
            safe: Any = {name: _valid(each) for name, each in values.items()}
        else:
            safe = [_valid(each) for each in values]
        with self.transaction() as connection:
            return connection.execute(statement, safe).fetchall()

    def take(self) -> None:
        """Take the state until `close` or the end of the process; raises StateInUseError if another has it."""
        with self._naming_errors():
            self._own = self._lock_file()
        if self._own is None:
            raise StateInUseError(self.name, self._last_watcher())
        with self.transaction():
            self.run("DELETE FROM watcher")
            self.run("INSERT INTO watcher VALUES (?)", (f"pid {os.getpid()} on {socket.gethostname()}",))

    def watcher(self) -> str | None:
        """Return the watcher that has the state, ``pid 4711 on host-a``; None if none is running."""
        with self._naming_errors():
            lock = self._lock_file()
        if lock is None:
            return self._last_watcher()
        lock.close()
        return None

    def _lock_file(self) -> sqlite3.Connection | None:
        """Return a connection that holds the lock, as long as its process; None if another one does."""
        path = ":memory:" if self._path is None else f"{self._path}-lock"
        lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            lock.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as problem:
            lock.close()
            if _result_code(problem) == sqlite3.SQLITE_BUSY:
                return None
            raise
        return lock

    def _last_watcher(self) -> str:
        rows = self.run("SELECT process FROM watcher")
        return str(rows[0][0]) if rows else "one that is just starting"

    def shrink(self) -> None:
        """Return free pages to the file system."""
        with self._lock, self._naming_errors():
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """Close it. Every later call raises `StateFileError`."""
        with self._lock, self._naming_errors():
            self._connection.close()
            if self._own is not None:
                self._own.close()

    def _is_new(self, path: Path, *, must_exist: bool) -> bool:
        """Whether the file does not exist yet. Raises if it cannot be created.

        The file is never opened here: closing it would release the locks of all connections of this process
        (https://sqlite.org/howtocorrupt.html, 2.2).
        """
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not path.exists():
                (path if must_exist else path.parent).stat()
                return True
        except OSError as problem:
            remedy = "give the path that the watcher was started with, in a folder that is there"
            raise StateFileError(self.name, problem.strerror or error_text(problem), remedy) from problem
        return False

    def _prepare(self, *, is_new: bool) -> None:
        run = self._connection.execute
        run("PRAGMA synchronous=FULL")
        run(f"PRAGMA journal_size_limit={2**20}")  # of the write-ahead log after a checkpoint
        if not self._check_version():
            run("PRAGMA auto_vacuum=INCREMENTAL")  # has an effect only before the first table
        if is_new and self._path is not None:
            # Diagnoses name hosts and tasks. The files that SQLite puts beside this one get the same mode.
            with suppress(OSError):  # file systems without modes
                self._path.chmod(0o600)
        run("PRAGMA journal_mode=WAL")
        with self.transaction():
            if not self._check_version():
                for statement in _TABLES.split(";\n"):
                    run(statement)
                run(f"PRAGMA application_id={APPLICATION_ID}")
                run(f"PRAGMA user_version={SCHEMA_VERSION}")
        if self._path is not None:
            self._inode = _inode(self._path)

    def _check_version(self) -> bool:
        """Whether the tables exist. Raises if they are not ours."""
        application, version, tables = (
            int(self._connection.execute(each).fetchone()[0])
            for each in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if application == APPLICATION_ID and version == SCHEMA_VERSION:
            return True
        if application == APPLICATION_ID:
            raise StateFileError(
                self.name,
                f"its tables have version {version}; this workerdiag reads version {SCHEMA_VERSION}",
                "use the workerdiag that wrote it, or name another file",
            )
        if application or version or tables:
            raise StateFileError(self.name, "it is the database of another program", "name another file")
        return False

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            remedy = _REMEDIES.get(_result_code(problem), "")
            raise StateFileError(self.name, error_text(problem), remedy) from problem


def _result_code(problem: sqlite3.Error) -> int:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF  # the higher bits are the extended code


def _valid(value: object) -> object:
    return utf8_safe(value) if isinstance(value, str) else value


def _inode(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


_T = TypeVar("_T")


def value_to_json(value: object) -> str:
    """Return a case, a notice or another attrs value as ASCII JSON, without defaults."""
    return _dump(_value_converter().unstructure(value))


def value_from_json(text: str, kind: type[_T]) -> _T:
    """Return the value that `value_to_json` wrote. Raises Exception if the text is not valid."""
    return _value_converter().structure(json.loads(text), kind)


def evidence_to_json(evidence: Iterable[Evidence]) -> str:
    """Return evidence as JSON, including the text of logs."""
    return _dump([piece_to_dict(each) for each in evidence])


def evidence_from_json(text: str) -> tuple[Evidence, ...]:
    """Return the evidence in JSON. A piece that cannot be read becomes a `Gap`."""
    return tuple(_piece(each) for each in json.loads(text))


def merge_evidence(kept: str, other: str) -> str:
    """Merge two lists of evidence: each piece once, and the longer text of a log that both have."""
    old, new = (_by_log(json.loads(each)) for each in (kept, other))
    better = {key: its for key, its in new.items() if _size(its) > _size(old.get(key, []))}
    stays = (its for key, its in old.items() if key not in better)
    return _dump([piece for its in (*stays, *better.values()) for piece in its])


def _by_log(pieces: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group the pieces of each log by its name; any other piece is alone."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in pieces:
        groups.setdefault(each["origin"] if each["kind"] == "LogChunk" else _dump(each), []).append(each)
    return groups


def _size(pieces: Iterable[dict[str, Any]]) -> int:
    return sum(len(each["data"]) if each["kind"] == "LogChunk" else 1 for each in pieces)


def _piece(plain: object) -> Evidence:
    with guarded("reading a piece of evidence") as reading:
        piece = piece_from_dict(plain)
    if reading.problem is not None:
        detail = describe_error(reading.problem)
        return Gap(source="the watcher's state", reason="malformed", detail=detail)
    return piece


def _dump(plain: object) -> str:
    """Return JSON in ASCII: SQLite does not accept half a surrogate pair."""
    return json.dumps(plain, separators=(",", ":"))


@cache
def _value_converter() -> Converter:
    converter = strict_converter("any", with_places=False)
    converter.register_unstructure_hook_func(lambda hint: hint == frozenset[str], sorted)
    converter.register_structure_hook_func(
        lambda hint: hint == frozenset[str], lambda value, _: frozenset(converter.structure(value, tuple[str, ...]))
    )
    return converter
