"""The store: deaths, cursors, cases and the outbox in one SQLite file.

Related changes are written in one `Store.transaction`. After a kill the watcher resumes at the last commit,
which has both a death and the notice about it.

The outbox has a delivery for each notice and sink. It is ``sending`` while its sink works on it. One that is
``sending`` at the start was interrupted by a kill, and may have arrived: it is sent again with the same id.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar, cast, get_args

from attrs.validators import ge, gt

from workerdiag.errors import StateFileError, describe_error
from workerdiag.guard import guarded
from workerdiag.incidents import WatchedDeath
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import DeliveryState
from workerdiag.values import field, frozen
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.feed.events import Cursor
from workerdiag.watch.sinks.base import Delivery
from workerdiag.watch.state_file import (
    CHANGED_REMEDY,
    StateFile,
    evidence_from_json,
    evidence_to_json,
    merge_evidence,
    value_from_json,
    value_to_json,
)


@frozen(kw_only=True)
class StoredDelivery:
    """One notice for one sink in the outbox."""

    #: `delivery_id`: the same in every attempt.
    id: str
    sink: str
    state: DeliveryState
    #: Number of attempts, including one that is ``sending``.
    attempts: int = 0
    #: Error of the last failed attempt; empty if none failed.
    problem: str = ""
    #: When to try it again, in seconds since the epoch.
    due_at: float
    #: None if the file has no valid notice.
    notice: WatchedCase | None = field(repr=False)


def delivery_id(notice_id: str, sink: str) -> str:
    """Return the id of a notice at a sink: equal for all senders, and valid in a header."""
    return hashlib.sha256(f"{notice_id}\n{sink}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


@frozen(kw_only=True)
class SinkStatus:
    """The status of a sink, by its deliveries."""

    name: str
    counts: Mapping[DeliveryState, int] = field(factory=dict, hash=False)
    #: Start of its current delivery, in seconds since the epoch: long ago if it hangs. None: no delivery.
    sending_since: float | None = None
    #: Why the latest unsent delivery failed; or why the state file cannot be written.
    problem: str = ""


@frozen(kw_only=True)
class RetrySettings:
    """Exponential back-off with jitter: waits double, and half of each is random."""

    #: Wait before the second attempt, in seconds.
    first_s: float = field(default=1.0, validator=gt(0))
    #: Longest wait after failures, in seconds.
    longest_s: float = field(default=600.0, validator=gt(0))
    #: Longest wait that a receiver can ask for, in seconds.
    longest_retry_after_s: float = field(default=86400.0, validator=gt(0))
    #: Attempts before it becomes a dead letter: with the waits above, 18 to 24 hours.
    max_attempts: int = field(default=150, validator=ge(1))

    def wait_s(self, failures: int, retry_after_s: float | None, random: Callable[[], float]) -> float:
        """Return the seconds until the next attempt after some *failures*, at least *retry_after_s*."""
        step = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 60))  # a larger one may overflow
        wait = step * (0.5 + 0.5 * random())
        if retry_after_s is not None and retry_after_s > 0:  # a NaN is not
            asked = min(retry_after_s, self.longest_retry_after_s)
            return max(wait, asked + self.first_s * random())
        return wait


#: No older notice of the same case waits for the same sink: notices of a case keep their order.
_IS_FIRST = (
    " NOT EXISTS (SELECT 1 FROM delivery AS older INDEXED BY unsent_of_case"
    " WHERE older.sink = d.sink AND older.case_id = d.case_id"
    " AND older.number < d.number AND older.state IN ('pending', 'sending'))"
)
#: SQLite uses a partial index only if its condition is repeated.
_WAITS = "d.state IN ('pending', 'sending') AND d.state = 'pending'"
_NEXT = f"""
    SELECT d.id, d.attempts + 1, d.attempts + 1 - d.earlier_attempts, d.case_id, n.body
    FROM delivery AS d INDEXED BY unsent_of_sink JOIN notice AS n ON n.id = d.notice_id
    WHERE d.sink = ? AND {_WAITS} AND d.due_at <= ? AND {_IS_FIRST} ORDER BY d.number LIMIT 1
"""  # noqa: S608  a constant of ours
_NEXT_DUE = f"""
    SELECT min(d.due_at) FROM delivery AS d INDEXED BY unsent_of_sink
    WHERE d.sink = ? AND {_WAITS} AND {_IS_FIRST}
"""  # noqa: S608  as above
#: Receipt of a waiting delivery whose receiver asked for a pause, which holds for the whole sink.
_PAUSE = '{"is_pause": true}'
_PAUSED_UNTIL = """
    SELECT max(d.due_at) FROM delivery AS d INDEXED BY unsent_of_sink
    WHERE d.sink = ? AND d.state IN ('pending', 'sending') AND d.state = 'pending' AND d.receipt = ?
"""
_LAST_RECEIPT = """
    SELECT receipt FROM delivery WHERE case_id = ? AND sink = ? AND state = 'sent'
    ORDER BY changed_at DESC, number DESC LIMIT 1
"""
#: The last notices of open cases that a sink has taken.
_CURRENT = """
    SELECT d.id, d.attempts, d.receipt, n.body
    FROM delivery AS d JOIN notice AS n ON n.id = d.notice_id JOIN watch_case AS c ON c.id = d.case_id
    WHERE d.sink = :sink AND d.state = 'sent' AND c.state NOT IN ('resolved', 'ended')
    AND (:cluster IS NULL OR c.cluster = :cluster) AND NOT EXISTS (
        SELECT 1 FROM delivery AS later WHERE later.case_id = d.case_id AND later.sink = d.sink
        AND later.state = 'sent' AND later.number > d.number)
    ORDER BY d.number
"""
_STORED = """
    SELECT d.id, d.sink, d.state, d.attempts, d.problem, d.due_at, n.body
    FROM delivery AS d JOIN notice AS n ON n.id = d.notice_id
    WHERE :state IS NULL OR d.state = :state ORDER BY d.number
"""
_RESEND_DEAD = """
    UPDATE delivery SET state = 'pending', earlier_attempts = attempts, due_at = :now, changed_at = :now
    WHERE state = 'dead' AND (:id IS NULL OR id = :id) AND (:sink IS NULL OR sink = :sink)
"""
_COUNTS = """
    SELECT sink, state, count(*), min(changed_at) FROM delivery GROUP BY sink, state ORDER BY sink
"""
#: SQLite takes the other columns from the row that has the maximum.
_PROBLEMS = """
    SELECT sink, problem FROM (
        SELECT sink, problem, max(changed_at) FROM delivery
        WHERE state != 'sent' AND problem != '' GROUP BY sink)
"""
#: The last delivery sent for an open case is kept: the next one needs its receipt.
_PRUNE = """
    DELETE FROM delivery WHERE state IN ('sent', 'dead') AND changed_at < ? AND NOT (
        state = 'sent' AND case_id IN (SELECT id FROM watch_case) AND NOT EXISTS (
            SELECT 1 FROM delivery AS later WHERE later.case_id = delivery.case_id
            AND later.sink = delivery.sink AND later.state = 'sent' AND later.number > delivery.number))
"""
_STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)


class DeliveryTable:
    """The outbox in the state file. Methods are transactions, and raise like those of `Store`."""

    def __init__(self, file: StateFile, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock

    def enqueue(self, notice: WatchedCase, sink_names: Iterable[str]) -> None:
        """Add a notice for each sink that does not have it yet."""
        now = self._clock()
        with self._file.transaction():
            values = (notice.notice_id, value_to_json(notice), now)
            self._file.run("INSERT OR IGNORE INTO notice VALUES (?, ?, ?)", values)
            for sink in sink_names:
                self._file.run(
                    "INSERT OR IGNORE INTO delivery (id, notice_id, case_id, sink, state, due_at, changed_at)"
                    " VALUES (?, ?, ?, ?, 'pending', ?, ?)",
                    (delivery_id(notice.notice_id, sink), notice.notice_id, notice.id, sink, now, now),
                )

    def recover(self, sink: str, *, longest_wait_s: float) -> None:
        """Recover the deliveries of an earlier process. None waits longer, even if the clock was set back."""
        now = self._clock()
        with self._file.transaction():
            self._file.run(
                "UPDATE delivery SET state = 'pending', problem = '', due_at = ?, changed_at = ?"
                " WHERE sink = ? AND state = 'sending'",
                (now, now, sink),
            )
            self._file.run(
                "UPDATE delivery SET due_at = min(due_at, ?) WHERE sink = ? AND state = 'pending'",
                (now + longest_wait_s, sink),
            )

    def claim(self, sink: str) -> tuple[Delivery, int] | None:
        """Mark the next delivery of a sink as ``sending``; return it with its tries since it was put in."""
        now = self._clock()
        with self._file.transaction():
            for id_, attempt, tries, case_id, body in self._file.run(_NEXT, (sink, now)):
                notice = _notice(body)
                if notice is None:
                    problem = "its notice in the state file cannot be read"
                    self._change(id_, "pending", state="dead", attempts=attempt, problem=problem)
                    return self.claim(sink)
                self._change(id_, "pending", state="sending", attempts=attempt)
                last = self._file.run(_LAST_RECEIPT, (case_id, sink))
                receipt = json.loads(last[0][0]) if last else {}
                return Delivery(id=id_, notice=notice, attempt=attempt, receipt=receipt), tries
        return None

    def current(self, sink: str, cluster: str | None) -> tuple[Delivery, ...]:
        """Return the last delivery of each open case, of one cluster or of all, that a sink has taken."""
        rows = self._file.run(_CURRENT, {"sink": sink, "cluster": cluster})
        return tuple(
            Delivery(id=id_, notice=notice, attempt=attempts + 1, receipt=json.loads(receipt))
            for id_, attempts, receipt, body in rows
            if (notice := _notice(body)) is not None
        )

    def next_due_at(self, sink: str) -> float | None:
        """Return when the next delivery of a sink is due; None if none waits."""
        return cast("float | None", self._file.run(_NEXT_DUE, [sink])[0][0])

    def paused_until(self, sink: str) -> float | None:
        """Return the end of the pause that the receiver of a sink asked for; None if there is none."""
        return cast("float | None", self._file.run(_PAUSED_UNTIL, (sink, _PAUSE))[0][0])

    def note_sent(self, id_: str, receipt: Mapping[str, str]) -> None:
        """Note that it was sent, with the receipt of the sink."""
        self._change(id_, "sending", state="sent", problem="", receipt=json.dumps(dict(receipt)))

    def note_failed(self, id_: str, problem: str, due_at: float, *, is_pause: bool = False) -> None:
        """Note that it failed, and when to retry it; *is_pause*: the receiver asked for that."""
        receipt = _PAUSE if is_pause else "{}"
        self._change(id_, "sending", state="pending", problem=problem, due_at=due_at, receipt=receipt)

    def note_dead(self, id_: str, problem: str) -> None:
        """Note that it failed, and is given up."""
        self._change(id_, "sending", state="dead", problem=problem, receipt="{}")

    def resend_dead(self, id_: str | None = None, *, sink: str | None = None) -> int:
        """Send dead letters again, with their ids: one, those of a sink, or all. Returns their number."""
        with self._file.transaction():
            self._file.run(_RESEND_DEAD, {"id": id_, "sink": sink, "now": self._clock()})
            ((count,),) = self._file.run("SELECT changes()")
        return int(count)

    def stored(self, state: DeliveryState | None = None) -> tuple[StoredDelivery, ...]:
        """Return the deliveries, oldest first: all, or those in one state."""
        names = ("id", "sink", "state", "attempts", "problem", "due_at")
        return tuple(
            StoredDelivery(**dict(zip(names, values, strict=True)), notice=_notice(body))
            for *values, body in self._file.run(_STORED, {"state": state})
        )

    def sinks(self) -> tuple[SinkStatus, ...]:
        """Return the status of all sinks that had deliveries."""
        with self._file.transaction():
            groups = self._file.run(_COUNTS)
            problems = dict(self._file.run(_PROBLEMS))
        found = {(name, state): (count, since) for name, state, count, since in groups}
        return tuple(
            SinkStatus(
                name=name,
                counts={state: found.get((name, state), (0, None))[0] for state in _STATES},
                sending_since=found.get((name, "sending"), (0, None))[1],
                problem=problems.get(name, ""),
            )
            for name in dict.fromkeys(name for name, *_ in groups)
        )

    def prune(self, before: float) -> None:
        """Delete what was sent or given up before a time, except the last delivery of a known case."""
        with self._file.transaction():
            self._file.run(_PRUNE, [before])
            self._file.run("DELETE FROM notice WHERE id NOT IN (SELECT notice_id FROM delivery)")

    def _change(self, id_: str, before: DeliveryState, **values: object) -> None:
        """Change columns of a delivery, if it still is in the state *before*."""
        columns = ", ".join(f"{name} = :{name}" for name in (*values, "changed_at"))
        self._file.run(
            f"UPDATE delivery SET {columns} WHERE id = :id AND state = :before",  # noqa: S608  our own names
            {**values, "changed_at": self._clock(), "id": id_, "before": before},
        )


def _notice(body: str) -> WatchedCase | None:
    with guarded("reading a notice"):
        return value_from_json(body, WatchedCase)
    return None


#: Seconds after which closed things are deleted: 30 days.
KEEP_S = 30 * 86400.0

_T = TypeVar("_T")


class Store:
    """The watcher's state. Threads may share it. Each method is a transaction, or a part of the one around it.

    Every method raises `StateFileError` if the file cannot be read or written; then nothing is written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        must_exist: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the state in a file, created unless it *must_exist*; without a path, a state in memory."""
        self.file = StateFile(path, must_exist=must_exist)
        self.clock = clock
        self.outbox = DeliveryTable(self.file, clock=clock)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def transaction(self) -> AbstractContextManager[object]:
        """Run a transaction: everything is written, or nothing if it raises. Keep it short: others wait."""
        return self.file.transaction()

    def cursor(self, cluster: str) -> Cursor | None:
        """Return the cursor of a cluster; None if it is new."""
        rows = self.file.run("SELECT epoch, position FROM cursor WHERE cluster = ?", [cluster])
        return Cursor(epoch=rows[0][0], position=rows[0][1]) if rows else None

    def set_cursor(self, cluster: str, cursor: Cursor) -> None:
        """Store the cursor of a cluster."""
        values = (cluster, cursor.epoch, cursor.position, self.clock())
        self.file.run("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?, ?)", values)

    def clusters(self) -> dict[str, float]:
        """Return when each cluster was last read, in seconds since the epoch, by its name."""
        return dict(self.file.run("SELECT cluster, seen_at FROM cursor ORDER BY cluster"))

    def add_deaths(self, cluster: str, deaths: Iterable[WatchedDeath]) -> int:
        """Store new deaths, and add evidence to known ones that are pending. Returns the number of new deaths."""
        with self.transaction():
            return sum(self._add_death(cluster, each) for each in deaths)

    def pending_deaths(self, cluster: str | None = None) -> tuple[WatchedDeath, ...]:
        """Return the deaths that are not assigned yet, with their evidence, oldest first."""
        rows = self.file.run(
            "SELECT id, at, identity, is_expected, evidence FROM death"
            " WHERE is_judged = 0 AND cluster = coalesce(?, cluster) ORDER BY at, rowid",
            [cluster],
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
        wanted = "SELECT id, case_id FROM death WHERE id = ? AND case_id IS NOT NULL"
        with self.transaction():
            return dict(row for each in death_ids for row in self.file.run(wanted, [each]))

    def assign(self, death_ids: Iterable[str], case_id: str | None) -> None:
        """Note that deaths were judged, and their case (None: no case). Their evidence is deleted."""
        with self.transaction():
            for death_id in death_ids:
                statement = "UPDATE death SET is_judged = 1, case_id = ?, evidence = NULL WHERE id = ?"
                self.file.run(statement, [case_id, death_id])

    def cases(self, cluster: str | None = None) -> tuple[WatchedCase, ...]:
        """Return the cases of one cluster or of all, in the order of their last changes."""
        rows = self.file.run(
            "SELECT id, body FROM watch_case WHERE cluster = coalesce(?, cluster) ORDER BY changed_at, id",
            [cluster],
        )
        return tuple(self._read(f"case {id_}", body, WatchedCase) for id_, body in rows)

    def case(self, case_id: str) -> WatchedCase | None:
        """Return the case with that id."""
        rows = self.file.run("SELECT body FROM watch_case WHERE id = ?", [case_id])
        return self._read(f"case {case_id}", rows[0][0], WatchedCase) if rows else None

    def put_case(self, case: WatchedCase) -> None:
        """Store the current state of a case."""
        values = (case.id, case.cluster, case.state, value_to_json(case), self.clock())
        self.file.run("INSERT OR REPLACE INTO watch_case VALUES (?, ?, ?, ?, ?)", values)

    def prune(self) -> None:
        """Delete what has been over for 30 days; waiting deliveries, and the last receipt of an open case, stay."""
        before = self.clock() - KEEP_S
        with self.transaction():
            self.file.run("DELETE FROM death WHERE is_judged = 1 AND added_at < ?", [before])
            self.file.run(
                "DELETE FROM watch_case WHERE state IN ('resolved', 'ended') AND changed_at < ? AND id NOT IN"
                " (SELECT case_id FROM delivery WHERE state IN ('pending', 'sending'))",
                [before],
            )
            self.outbox.prune(before)
        self.file.shrink()

    def _add_death(self, cluster: str, death: WatchedDeath) -> bool:
        evidence = evidence_to_json(death.evidence)
        known = self.file.run("SELECT is_judged, evidence FROM death WHERE id = ?", [death.id])
        if not known:
            values = (death.id, cluster, death.when, death.is_expected, value_to_json(death.identity), evidence)
            self.file.run(
                "INSERT INTO death (id, cluster, at, is_expected, identity, evidence, added_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [*values, self.clock()],
            )
        elif not known[0][0] and known[0][1] != evidence:
            merged = merge_evidence(known[0][1], evidence)
            self.file.run("UPDATE death SET evidence = ? WHERE id = ?", [merged, death.id])
        return not known

    def _read(self, what: str, text: str, kind: type[_T]) -> _T:
        try:
            return value_from_json(text, kind)
        except Exception as problem:
            raise StateFileError(self.file.name, f"{what}: {describe_error(problem)}", CHANGED_REMEDY) from problem
