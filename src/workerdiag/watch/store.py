"""The store: deaths, cursors, cases and the outbox in one SQLite file.

Related changes are written in one `Store.transaction`. After a kill the watcher resumes at the last commit,
which has both a death and the notice about it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from workerdiag.errors import StateFileError, describe_error, utf8_safe
from workerdiag.incidents.incident import WatchedDeath
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import DeliveryState
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.deliveries import DeliveryTable, StoredDelivery
from workerdiag.watch.feed.feed import Cursor
from workerdiag.watch.state_file import (
    CHANGED_REMEDY,
    StateFile,
    evidence_from_json,
    evidence_to_json,
    merge_evidence,
    value_from_json,
    value_to_json,
)

#: Seconds after which closed things are deleted: 30 days.
KEEP_S = 30 * 86400.0

_T = TypeVar("_T")


class Store:
    """The watcher's state. Threads may share it. Each method is a transaction, or a part of the one around it.

    Every method raises `StateFileError` if the file cannot be read or written; then nothing is written.
    """

    def __init__(self, file: StateFile, *, clock: Callable[[], float] = time.time) -> None:
        self.file = file
        self.clock = clock
        self.outbox = DeliveryTable(file, clock=clock)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        must_exist: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open the state in the file at *path*, and create it if necessary; without a path, a state in memory.

        With *must_exist* a missing file is an error, for readers.
        """
        return cls(StateFile(path, must_exist=must_exist), clock=clock)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction: everything is written, or nothing if it raises. Keep it short: others wait."""
        with self.file.transaction():
            yield

    def cursor(self, cluster: str) -> Cursor | None:
        """Return the cursor of a cluster; None if it is new."""
        rows = self._rows("SELECT epoch, position FROM cursor WHERE cluster = ?", cluster)
        return Cursor(epoch=rows[0][0], position=rows[0][1]) if rows else None

    def set_cursor(self, cluster: str, cursor: Cursor) -> None:
        """Store the cursor of a cluster."""
        values = (cluster, cursor.epoch, cursor.position, self.clock())
        self._rows("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?, ?)", *values)

    def clusters(self) -> dict[str, float]:
        """Return when each cluster was last read, in seconds since the epoch, by its name."""
        rows = self._rows("SELECT cluster, seen_at FROM cursor ORDER BY cluster")
        return {cluster: seen_at for cluster, seen_at in rows}  # noqa: C416  a row is no pair for types

    def add_deaths(self, cluster: str, deaths: Iterable[WatchedDeath]) -> int:
        """Store new deaths, and add evidence to known ones that are pending. Returns the number of new deaths."""
        with self.transaction():
            return sum(self._add_death(cluster, each) for each in deaths)

    def pending_deaths(self, cluster: str | None = None) -> tuple[WatchedDeath, ...]:
        """Return the deaths that are not assigned yet, with their evidence, oldest first."""
        rows = self._rows(
            "SELECT id, at, identity, is_expected, evidence FROM death"
            " WHERE is_judged = 0 AND cluster = coalesce(?, cluster) ORDER BY at, rowid",
            cluster,
        )
        return tuple(
            WatchedDeath(
                id=id_,
                when=when,
                identity=self._read(f"death {id_}", identity, Identity),
                is_expected=bool(is_expected),
                evidence=evidence_from_json(evidence),
            )
            for id_, when, identity, is_expected, evidence in rows
        )

    def case_ids(self, death_ids: Iterable[str]) -> dict[str, str]:
        """Return the id of the case of each death that was assigned to one."""
        with self.transaction():
            rows = [
                row
                for each in death_ids
                for row in self._rows("SELECT id, case_id FROM death WHERE id = ? AND case_id IS NOT NULL", each)
            ]
        return {row[0]: row[1] for row in rows}

    def assign(self, death_ids: Iterable[str], case_id: str | None) -> None:
        """Note that deaths were judged, and their case (None: no case). Their evidence is deleted."""
        with self.transaction():
            for death_id in death_ids:
                statement = "UPDATE death SET is_judged = 1, case_id = ?, evidence = NULL WHERE id = ?"
                self._rows(statement, case_id, death_id)

    def cases(self, cluster: str | None = None) -> tuple[WatchedCase, ...]:
        """Return the cases of one cluster or of all, in the order of their last changes."""
        rows = self._rows(
            "SELECT id, body FROM watch_case WHERE cluster = coalesce(?, cluster) ORDER BY changed_at, id",
            cluster,
        )
        return tuple(self._read(f"case {id_}", body, WatchedCase) for id_, body in rows)

    def case(self, case_id: str) -> WatchedCase | None:
        """Return the case with that id."""
        rows = self._rows("SELECT body FROM watch_case WHERE id = ?", case_id)
        return self._read(f"case {case_id}", rows[0][0], WatchedCase) if rows else None

    def put_case(self, case: WatchedCase) -> None:
        """Store the current state of a case."""
        values = (case.id, case.cluster, case.state, value_to_json(case), self.clock())
        self._rows("INSERT OR REPLACE INTO watch_case VALUES (?, ?, ?, ?, ?)", *values)

    def enqueue(self, notice: WatchedCase, sink_names: Iterable[str]) -> None:
        """Put a notice into the outbox, once for each sink. An existing one stays unchanged."""
        self.outbox.enqueue(notice, sink_names)

    def deliveries(self, state: DeliveryState | None = None) -> tuple[StoredDelivery, ...]:
        """Return the deliveries in the outbox, oldest first: all, or those in one state."""
        return self.outbox.stored(state)

    def prune(self, *, keep_s: float = KEEP_S) -> None:
        """Delete judged deaths, cases and deliveries that have been over for *keep_s* seconds.

        Waiting deliveries, and the last receipt of an open case, stay.
        """
        before = self.clock() - keep_s
        with self.transaction():
            self._rows("DELETE FROM death WHERE is_judged = 1 AND added_at < ?", before)
            self._rows(
                "DELETE FROM watch_case WHERE state IN ('resolved', 'ended') AND changed_at < ? AND id NOT IN"
                " (SELECT case_id FROM delivery WHERE state IN ('pending', 'sending'))",
                before,
            )
            self.outbox.prune(before)
        self.file.shrink()

    def _add_death(self, cluster: str, death: WatchedDeath) -> bool:
        evidence = evidence_to_json(death.evidence)
        known = self._rows("SELECT is_judged, evidence FROM death WHERE id = ?", death.id)
        if not known:
            self._rows(
                "INSERT INTO death (id, cluster, at, is_expected, identity, evidence, added_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(death.id, cluster, death.when, death.is_expected),
                *(value_to_json(death.identity), evidence, self.clock()),
            )
        elif not known[0][0] and known[0][1] != evidence:
            merged = merge_evidence(known[0][1], evidence)
            self._rows("UPDATE death SET evidence = ? WHERE id = ?", merged, death.id)
        return not known

    def _rows(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        with self.file.transaction() as connection:
            safe = [utf8_safe(each) if isinstance(each, str) else each for each in values]
            return connection.execute(statement, safe).fetchall()

    def _read(self, what: str, text: str, kind: type[_T]) -> _T:
        try:
            return value_from_json(text, kind)
        except Exception as problem:
            raise StateFileError(self.file.name, f"{what}: {describe_error(problem)}", CHANGED_REMEDY) from problem
