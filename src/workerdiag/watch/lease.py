"""
Who may watch with a state file: one watcher at a time.

The lease is a row in the file, with a holder and the time at which it expires. A watcher renews it; one that
was killed leaves it behind, and the next one takes it over: at once if the process is seen to be gone, else
when it expires. A watcher that lost it (it was stopped for long) can write no more.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress

from attrs import frozen

from workerdiag.deadline import start_thread
from workerdiag.errors import StateFileError, StateInUseError
from workerdiag.procfs.processes import boot_id, is_running, pid_namespace, process_identity
from workerdiag.watch.state_file import StateFile

#: A lease that nobody renewed for this long is free, in seconds; it is renewed three times as often.
LEASE_S = 30.0
#: Who waits for a lease looks this often, in seconds.
_POLL_S = 0.5


@frozen(kw_only=True)
class LeaseHolder:
    """
    The watcher that has a state file.
    """

    #: Drawn anew by each watcher.
    id: str
    #: As `process_identity` has it.
    process: Mapping[str, str]
    #: Seconds since the epoch.
    expires_at: float

    def describe(self) -> str:
        """
        ``pid 4711 on host-a``.
        """
        return f"pid {self.process.get('pid', '?')} on {self.process.get('host', 'an unknown host')}"

    def is_seen_running(self) -> bool | None:
        """
        Whether its process is there; None if it cannot be told from here.
        """
        who = self.process
        here = {"boot_id": boot_id(), "pid_namespace": pid_namespace()}
        if not all(value and who.get(name) == value for name, value in here.items()):
            return None
        try:
            return is_running(int(who["pid"]), int(who["started_ms"]))
        except (KeyError, ValueError):
            return None


def lease_holder(file: StateFile) -> LeaseHolder | None:
    """
    Who has the lease of a state file, also if it expired; None: nobody.
    """
    with file.transaction() as connection:
        return _read_holder(connection)


class Lease:
    """
    The right to watch with a state file.

    Args:
        file: Every transaction in it fails once another watcher has the lease.
        clock: Seconds since the epoch.
        length_s: How long it holds without being renewed.
    """

    def __init__(
        self, file: StateFile, *, clock: Callable[[], float] = time.time, length_s: float = LEASE_S
    ) -> None:
        self._file = file
        self._clock = clock
        self._length_s = length_s
        self._id = uuid.uuid4().hex
        self._is_over = threading.Event()

    def acquire(self, *, waits: bool = False) -> None:
        """
        Get the lease, and renew it until `release`.

        If another watcher has it, this raises at once where that one is seen running, else as soon as it
        renews; if it does neither, this returns once it has expired.

        Args:
            waits: Whether to stand by for as long as the other one lives.

        Raises:
            StateInUseError: Another watcher has it, or `release` was called meanwhile.
            StateFileError: The file cannot be written.
            RuntimeError: The system gives no more threads.
        """
        first: LeaseHolder | None = None
        while (other := self._take()) is not None:
            first = first or other
            is_alive = other.is_seen_running() or other.expires_at > first.expires_at
            if (is_alive and not waits) or self._is_over.wait(min(_POLL_S, self._length_s / 3)):
                raise StateInUseError(self._file.name, other.describe())
        if self._is_over.is_set():
            self.release()
            raise StateInUseError(self._file.name, "this one was closed")
        self._file.guard = self._check
        try:
            start_thread("workerdiag-lease", self._renew_always)
        except RuntimeError:
            self.release()
            raise

    def renew(self) -> None:
        """
        Let it hold for another `length_s`.

        Raises:
            StateInUseError: Another watcher took it over.
            StateFileError: The file cannot be written.
        """
        with self._file.transaction() as connection:
            self._check(connection)
            self._write(connection)

    def release(self) -> None:
        """
        Let another watcher have it; where the file cannot be written, as soon as it expires.
        """
        self._is_over.set()
        self._file.guard = None
        with suppress(StateFileError), self._file.transaction() as connection:
            connection.execute("DELETE FROM lease WHERE holder = ?", (self._id,))

    def _take(self) -> LeaseHolder | None:
        """
        Take the lease; who has it if that is not possible.
        """
        with self._file.transaction() as connection:
            other = _read_holder(connection)
            is_free = other is None or other.expires_at <= self._clock() or other.is_seen_running() is False
            if is_free:
                self._write(connection)
        return None if is_free else other

    def _write(self, connection: sqlite3.Connection) -> None:
        process = json.dumps(dict(process_identity()))
        expires_at = self._clock() + self._length_s
        connection.execute("DELETE FROM lease")
        connection.execute("INSERT INTO lease VALUES (?, ?, ?)", (self._id, process, expires_at))

    def _check(self, connection: sqlite3.Connection) -> None:
        holder = _read_holder(connection)
        if holder is None or holder.id != self._id:
            who = "one that is gone again" if holder is None else holder.describe()
            raise StateInUseError(self._file.name, who)

    def _renew_always(self) -> None:
        while not self._is_over.wait(self._length_s / 3):
            try:
                self.renew()
            except StateInUseError:  # the next transaction of the watcher raises it, too
                return
            except StateFileError:  # a full disk may have room again; nor can another one take it
                continue


def _read_holder(connection: sqlite3.Connection) -> LeaseHolder | None:
    row: tuple[str, str, float] | None = connection.execute(
        "SELECT holder, process, expires_at FROM lease"
    ).fetchone()
    return None if row is None else LeaseHolder(id=row[0], process=json.loads(row[1]), expires_at=row[2])
