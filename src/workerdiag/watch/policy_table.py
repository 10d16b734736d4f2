"""The rows of the state file for silences and held-back notices."""

from __future__ import annotations

from workerdiag.errors import StateFileError, describe_error, utf8_safe
from workerdiag.watch.notice_policy import PolicyState
from workerdiag.watch.silences import Silence
from workerdiag.watch.state_file import CHANGED_REMEDY, StateFile
from workerdiag.watch.store_values import value_from_json, value_to_json


class PolicyTable:
    """Silences of all clusters, and the policy state of each cluster; `Store` delegates to it."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def silences(self) -> tuple[Silence, ...]:
        """Return all silences, including expired ones, ordered by their end."""
        with self._file.transaction() as connection:
            rows = connection.execute("SELECT id, body FROM silence").fetchall()
        try:
            kept = [value_from_json(body, Silence) for _, body in rows]
        except Exception as problem:
            raise self._unreadable("a silence", problem) from problem
        return tuple(sorted(kept, key=lambda each: (each.until, each.id)))

    def add_silence(self, silence: Silence) -> None:
        """Store a silence."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO silence VALUES (?, ?)", (silence.id, value_to_json(silence))
            )

    def remove_silence(self, silence_id: str) -> bool:
        """Delete a silence. Returns whether it existed."""
        with self._file.transaction() as connection:
            ended = connection.execute("DELETE FROM silence WHERE id = ?", (utf8_safe(silence_id),))
            return ended.rowcount > 0

    def state(self, cluster: str) -> PolicyState:
        """Return the policy state of a cluster."""
        with self._file.transaction() as connection:
            rows = connection.execute(
                "SELECT body FROM policy WHERE cluster = ?", (utf8_safe(cluster),)
            ).fetchall()
        try:
            return value_from_json(rows[0][0], PolicyState) if rows else PolicyState()
        except Exception as problem:
            raise self._unreadable("what was held back", problem) from problem

    def set_state(self, cluster: str, state: PolicyState) -> None:
        """Store the policy state of a cluster."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO policy VALUES (?, ?)", (utf8_safe(cluster), value_to_json(state))
            )

    def prune(self, before: float) -> None:
        """Delete the silences that ended before that time."""
        for each in self.silences():
            if each.until < before:
                self.remove_silence(each.id)

    def _unreadable(self, what: str, problem: Exception) -> StateFileError:
        return StateFileError(self._file.name, f"{what}: {describe_error(problem)}", CHANGED_REMEDY)
