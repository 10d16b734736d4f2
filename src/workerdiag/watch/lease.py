"""The lease on a state file: only one watcher uses it at a time.

The lease is a row in the file, with its holder and its expiry time. The watcher renews it. After a kill it
stays behind, and the next watcher takes it over: at once if the process is known to be gone, else when it
expires. A watcher that has lost its lease, after being stopped for long, cannot write any more.
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
from workerdiag.procfs_and_cgroups import boot_id, is_running, pid_namespace, process_identity
from workerdiag.watch.state_file import StateFile

#: Seconds after which a lease expires without renewal; it is renewed three times as often.
LEASE_S = 30.0
#: Seconds between two looks while waiting for a lease.
_POLL_S = 0.5


@frozen(kw_only=True)
class LeaseHolder:
    """The watcher that holds the lease."""

    #: A random id of the watcher.
    id: str
    #: As returned by `process_identity`.
    process: Mapping[str, str]
    #: Seconds since the epoch.
    expires_at: float

    def describe(self) -> str:
        """``pid 4711 on host-a``."""
        return f"pid {self.process.get('pid', '?')} on {self.process.get('host', 'an unknown host')}"

    def is_seen_running(self) -> bool | None:
        """Whether its process is running; None if that cannot be seen from here."""
        who = self.process
        here = {"boot_id": boot_id(), "pid_namespace": pid_namespace()}
        if not all(value and who.get(name) == value for name, value in here.items()):
            return None
        try:
            return is_running(int(who["pid"]), int(who["started_ms"]))
        except (KeyError, ValueError):
            return None


def lease_holder(file: StateFile) -> LeaseHolder | None:
    """Return the holder of the lease of a state file, even if it has expired; None if there is none."""
    with file.transaction() as connection:
        return _read_holder(connection)


class Lease:
    """The right to use a state file, whose transactions fail once another watcher has the lease.

    It expires *length_s* seconds after it was last renewed.
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
        """Acquire the lease, and renew it until `release`.

        If another watcher has it, this raises at once if that one is seen running, else as soon as it renews
        the lease; if it does neither, this returns once the lease has expired. If it *waits*, it waits for as
        long as the other watcher lives.

        Raises:
            StateInUseError: Another watcher has it, or `release` was called meanwhile.
            StateFileError: The file cannot be written.
            RuntimeError: The system cannot start another thread.
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
        """Extend it by `length_s`.

        Raises:
            StateInUseError: Another watcher has taken it over.
            StateFileError: The file cannot be written.
        """
        with self._file.transaction() as connection:
            self._check(connection)
            self._write(connection)

    def release(self) -> None:
        """Release it. If the file cannot be written, it expires later."""
        self._is_over.set()
        self._file.guard = None
        with suppress(StateFileError), self._file.transaction() as connection:
            connection.execute("DELETE FROM lease WHERE holder = ?", (self._id,))

    def _take(self) -> LeaseHolder | None:
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
            who = "a watcher that has ended since" if holder is None else holder.describe()
            raise StateInUseError(self._file.name, who)

    def _renew_always(self) -> None:
        while not self._is_over.wait(self._length_s / 3):
            try:
                self.renew()
            except StateInUseError:  # the next transaction of the watcher raises it too
                return
            except StateFileError:  # a full disk may have room again; nor can another watcher take it
                continue


def _read_holder(connection: sqlite3.Connection) -> LeaseHolder | None:
    row: tuple[str, str, float] | None = connection.execute(
        "SELECT holder, process, expires_at FROM lease"
    ).fetchone()
    return None if row is None else LeaseHolder(id=row[0], process=json.loads(row[1]), expires_at=row[2])
