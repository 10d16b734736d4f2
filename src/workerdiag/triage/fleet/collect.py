"""Read the deaths in folders, tables and state files of watchers, each once, and note what could not be read."""

from __future__ import annotations

import json
import os
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

from attrs import asdict, define, evolve, field

from workerdiag.errors import (
    StateFileError,
    TableError,
    UnreadableInputError,
    describe_error,
    error_text,
    utf8_safe,
)
from workerdiag.guard import guarded
from workerdiag.incidents import APPLICATION_ID, BLIND_KEY, SCHEMA_VERSION
from workerdiag.model.identity import Identity, differ, is_ip_address
from workerdiag.model.vocabulary import Verdict
from workerdiag.redaction.secrets import redact_text
from workerdiag.triage.fleet.report import FleetGap, FleetTable, MissingPart, TableKind
from workerdiag.triage.tables import TABLE_FORMATS, DeathRow, InputRow, Row, read_table
from workerdiag.wire.messages import DeathIdentity, same_death

#: Deaths that are judged and have no case were no incident.
_DEATHS = """
SELECT id, cluster, at, is_expected OR (is_judged AND case_id IS NULL), identity, case_id
FROM death ORDER BY at, id
"""
_REMEDY = "give a state file that `workerdiag watch` of this version wrote, with its -wal and -shm files"
#: The beginning of the place of a death that a watcher saw; the rest is its id.
WATCHED = "watched:"


def read_watched_deaths(path: Path) -> Iterator[DeathRow | str]:
    """Yield the deaths and stops in a watcher's state file, oldest first, and what is wrong with invalid ones.

    The place of a death is its id, which is the same in each state file. Raises StateFileError.
    """
    with _reading(path) as connection:
        cases = dict(connection.execute("SELECT id, body FROM watch_case"))
        read_case = cache(lambda id_: _case(cases.get(id_)))
        for *values, case_id in connection.execute(_DEATHS):
            with guarded("reading a kept death") as reading:
                row = _row(*values, case=read_case(case_id))
            bad = reading.problem
            yield row if bad is None else f"death {utf8_safe(str(values[0]))}: {describe_error(bad)}"


def blind_clusters(path: Path) -> tuple[tuple[str, str], ...]:
    """Return the clusters for which the watcher was blind, and why; raises StateFileError."""
    with _reading(path) as connection:
        rows = connection.execute(
            "SELECT cluster, json_extract(body, '$.what') FROM watch_case"
            " WHERE json_valid(body) AND json_extract(body, '$.key') = ? ORDER BY cluster",
            (BLIND_KEY,),
        )
        return tuple((str(cluster), str(title or "")) for cluster, title in rows)


def _case(body: str | None) -> dict[str, Any]:
    """Return a case, and as ``costs`` the seconds lost by worker, as far as its last diagnosis has them."""
    said: dict[str, Any] = json.loads(body or "{}")
    diagnosis = json.loads(said.get("diagnosis_json") or "{}")
    return said | {"costs": tuple(_costs(diagnosis.get("timeline", {}).get("histories", ())))}


def _costs(histories: Iterable[dict[str, Any]]) -> Iterator[tuple[Identity, float]]:
    for each in histories:
        running = [task for task in each["tasks"] if task["ended_at"] is None]
        if each["when"] is not None and running:
            yield (
                Identity(**each["identity"]),
                sum(max(0.0, each["when"] - task["started_at"]) for task in running),
            )


def _row(id_: str, cluster: str, at: float, is_expected: int, identity: str, *, case: dict[str, Any]) -> DeathRow:
    who, cause = Identity(**json.loads(identity)), case.get("cause")
    return DeathRow(
        case=case.get("key") or f"not judged: {id_}",
        cause=cause,
        family=cause.partition(".")[0] if cause is not None else None,
        probability=case.get("probability", 0.0),
        outcome="explained" if cause is not None else "unknown",
        blame=case["blame"] if case.get("blame") in get_args(Verdict) else "unknown",
        stop_requested=bool(is_expected),
        host=who.host,
        worker=who.worker,
        nanny=who.nanny,
        name=who.name,
        pid=who.pid,
        died_at=float(at),
        scheduler=cluster,
        run=cluster,
        lost_compute_s=next((cost_s for worker, cost_s in case["costs"] if worker.same_process(who)), None),
        url=f"{WATCHED}{id_}",
        offset=0,
        knowledge="",
    )


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    name = utf8_safe(str(path))
    place = path.absolute()
    # Without this file nobody has it open; a read-only folder needs no lock then.
    mode = "mode=ro" if Path(f"{place}-wal").exists() else "immutable=1"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(os.fsencode(place))}?{mode}", uri=True, timeout=10.0)
        ) as connection:
            application, version = (
                connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version")
            )
            if application != APPLICATION_ID:
                raise StateFileError(name, "it is not the state of a watcher", _REMEDY)
            if version != SCHEMA_VERSION:
                why = f"its tables have version {version}; this workerdiag reads version {SCHEMA_VERSION}"
                raise StateFileError(name, why, _REMEDY)
            yield connection
    except sqlite3.Error as problem:
        raise StateFileError(name, error_text(problem), _REMEDY) from problem


_STATE_SUFFIXES = frozenset({".db", ".sqlite", ".sqlite3"})
_TABLE_SUFFIXES = frozenset(f".{each}" for each in TABLE_FORMATS)
_NO_PLACE = "give the folder that workerdiag triage --output wrote, or a watcher's state file"
#: The first bytes of each SQLite database (https://sqlite.org/fileformat.html).
_DATABASE_HEAD = b"SQLite format 3\0"


@define
class Collector:
    """Reads files one by one. A file that cannot be read becomes a gap; reading continues with the next."""

    tables: list[FleetTable] = field(factory=list)
    #: The deaths and stops of each table.
    deaths: list[list[DeathRow]] = field(factory=list)
    gaps: list[FleetGap] = field(factory=list)
    #: What triages say of their inputs, with the table that says it.
    inputs: list[tuple[Path, InputRow]] = field(factory=list)

    def read(self, places: Iterable[str | os.PathLike[str]]) -> None:
        """Read all tables and state files at and below the places; raises UnreadableInputError if there is none."""
        given = [Path(each) for each in places]
        files = sorted({path.absolute() for each in given for path in self._files(each)})
        if not files and not self.gaps:
            names = ", ".join(utf8_safe(str(each)) for each in given)
            raise UnreadableInputError(names, "there is no table of triage and no watcher's state file", _NO_PLACE)
        for path in files:
            try:
                if path.suffix.lower() in _TABLE_SUFFIXES:
                    self._read_table(path)
                elif path.suffix.lower() not in _STATE_SUFFIXES and not _is_database(path):
                    neither = "it is neither a table of triage (.parquet, .csv, .jsonl) nor a watcher's state file"
                    self._miss("file", path, neither, _NO_PLACE)
                else:
                    self._read_state(path)
            except (TableError, StateFileError) as problem:
                self._miss("file", path, problem.why, problem.remedy)
        self._miss_inputs()

    def add_triage(self, path: Path, deaths: Sequence[DeathRow], inputs: Iterable[InputRow]) -> None:
        """Add both tables of a triage without reading them; *path* stands for them."""
        self._add_deaths(path, "triage", deaths)
        self.inputs += [(path, each) for each in inputs]
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
        kind, rows = read_table(path)
        if kind is InputRow:
            self.inputs += [(path, each) for each in self._good(path, rows, InputRow)]
        elif kind is DeathRow:
            self._read_deaths(path, "triage", rows)

    def _good(self, path: Path, rows: Iterable[object], kind: type[Row]) -> Iterator[Row]:
        good, bad = 0, []
        for each in rows:
            if isinstance(each, kind):
                good += 1
                yield each
            else:
                bad.append(each)
        if bad:
            what = f"{len(bad):,} of {good + len(bad):,} rows cannot be read, the first: {bad[0]}"
            self._miss("rows", path, what, "write the table again")

    def _read_state(self, path: Path) -> None:
        self._read_deaths(path, "watcher", read_watched_deaths(path))
        for cluster, why in blind_clusters(path):
            self._miss("unseen", path, f"its watcher did not see {cluster} for a while: {why}")

    def _read_deaths(self, path: Path, kind: TableKind, rows: Iterable[object]) -> None:
        """Add the deaths, also those before a failure. A file from which none can be read is then no table."""
        deaths: list[DeathRow] = []
        try:
            deaths.extend(self._good(path, rows, DeathRow))
        except (TableError, StateFileError):
            if deaths:
                self._add_deaths(path, kind, deaths)
            raise
        self._add_deaths(path, kind, deaths)

    def _add_deaths(self, path: Path, kind: TableKind, rows: Sequence[DeathRow]) -> None:
        self.tables.append(FleetTable(path=utf8_safe(str(path)), kind=kind, row_count=len(rows)))
        # a time before 1970 is invalid: Python's calendar begins in the year 1
        self.deaths.append([evolve(each, died_at=None) if (each.died_at or 0) < 0 else each for each in rows])

    def _miss_inputs(self) -> None:
        """Note the logs that no triage could read. A log counts as read if one of several triages could read it."""
        done = {(each.url, each.first_byte) for _, each in self.inputs if each.status != "failed"}
        failed: dict[Path, list[InputRow]] = {}
        for path, each in self.inputs:
            if each.status == "failed" and (each.url, each.first_byte) not in done:
                failed.setdefault(path, []).append(each)
        for path, rows in failed.items():
            first = rows[0]
            what = f"{len(rows):,} of the logs that triage read could not be read to their end"
            self._miss("input", path, f"{what}, the first: {first.url}: {first.reason}", "triage them again")

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


#: Reports further apart than this are two deaths, whatever they name; `same_death` allows no more.
_MOST_APART_S = 600.0
#: Distance of two reports of the same place in the same log.
_SAME_PLACE = -1.0


def merge_tables(tables: Iterable[Sequence[DeathRow]]) -> MergedDeaths:
    """Merge the deaths of several tables, in the order of the tables. Each is there once, with all known data.

    Two different rows of one table are two deaths, because its writer has already merged them. So a worker
    that dies repeatedly under one address and one pid, as in a container, counts each time.
    """
    merged = MergedDeaths()
    for rows in tables:
        merged.add_table(rows)
    return merged


@define
class MergedDeaths:
    """Deaths without duplicates, with an index to find those that another report may describe."""

    deaths: list[DeathRow] = field(factory=list)
    duplicate_count: int = 0
    #: Time and position of each death, sorted by time, by worker, process or place in a log.
    _index: dict[Hashable, list[tuple[float, int]]] = field(factory=dict, init=False)

    def add_table(self, rows: Sequence[DeathRow]) -> None:
        """Add the rows of one table."""
        unique = list(dict.fromkeys(rows))
        pairs = sorted(
            (apart_s, number, place)
            for number, row in enumerate(unique)
            for apart_s, place in self._candidates(row)
        )
        place_of: dict[int, int] = {}
        taken: set[int] = set()
        for _, number, place in pairs:
            if number not in place_of and place not in taken:
                place_of[number] = place
                taken.add(place)
        for number, row in enumerate(unique):
            if (known := place_of.get(number)) is not None:
                self.deaths[known] = _merged(self.deaths[known], row)
            else:
                self.deaths.append(row)
            self._note(row, known if known is not None else len(self.deaths) - 1)
        for entries in self._index.values():
            entries.sort()
        self.duplicate_count += len(rows) - len(unique) + len(place_of)

    def _candidates(self, row: DeathRow) -> Iterator[tuple[float, int]]:
        """Yield the known deaths that *row* may describe, with their distance from it in seconds."""
        at = row.died_at if row.died_at is not None else 0.0
        for key in _keys(row):
            entries = self._index.get(key, ())
            begin = bisect_left(entries, (at - _MOST_APART_S, -1))
            end = bisect_right(entries, (at + _MOST_APART_S, len(self.deaths)))
            for _, place in entries[begin:end]:
                if (apart_s := _report_distance_s(self.deaths[place], row)) is not None:
                    yield apart_s, place

    def _note(self, row: DeathRow, place: int) -> None:
        at = row.died_at if row.died_at is not None else 0.0
        for key in _keys(row):
            self._index.setdefault(key, []).append((at, place))


def _keys(row: DeathRow) -> Iterator[Hashable]:
    """Yield the keys that find other reports of the same death. Undated reports match only undated reports."""
    dated = row.died_at is not None
    yield "place", row.url, row.offset
    if row.worker is not None:
        yield "worker", row.worker, dated
    if row.nanny is not None and row.pid is not None:
        yield "process", row.nanny, row.pid, dated


def _report_distance_s(known: DeathRow, row: DeathRow) -> float | None:
    one, other = _identity(known), _identity(row)
    if (known.url, known.offset) == (row.url, row.offset):
        return None if one.conflicts_with(other) or differ(known.worker, row.worker) else _SAME_PLACE
    if differ(_address(known.scheduler), _address(row.scheduler)) or not same_death(one, other):
        return None
    if known.died_at is not None and row.died_at is not None:
        return abs(known.died_at - row.died_at)
    # Without a time an address says little: ports are reused.
    is_sure = known.pid is not None and known.pid == row.pid and known.scheduler == row.scheduler is not None
    return 0.0 if is_sure else None


def _identity(row: DeathRow) -> DeathIdentity:
    return DeathIdentity(
        worker=row.worker,
        name=row.name,
        pid=row.pid,
        nanny=row.nanny,
        # A machine reports its name, others report its address: these cannot be compared.
        host=row.host if row.host is not None and not is_ip_address(row.host) else None,
        noticed_at=row.died_at,
    )


def _address(scheduler: str | None) -> str | None:
    """Return the scheduler if it is an address: a watcher may know it only by its cluster's name."""
    return scheduler if scheduler is not None and "://" in scheduler else None


def _merged(known: DeathRow, row: DeathRow) -> DeathRow:
    """Merge both reports. The surer cause counts, and so does whatever only one of them knows."""
    first, second = (row, known) if _sureness(row) > _sureness(known) else (known, row)
    changes: dict[str, Any] = {
        name: value for name, value in asdict(second).items() if value is not None and getattr(first, name) is None
    }
    changes["stop_requested"] = first.stop_requested or second.stop_requested
    if first.lost_compute_s is not None and second.lost_compute_s is not None:
        changes["lost_compute_s"] = max(first.lost_compute_s, second.lost_compute_s)
    return evolve(first, **changes)


def _sureness(row: DeathRow) -> float:
    return row.probability if row.cause is not None else 0.0
