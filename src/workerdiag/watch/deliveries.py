"""The deliveries of the outbox, one for each notice and sink: when to retry them, and their rows in the state file.

A delivery is ``sending`` while its sink works on it. One that is ``sending`` at the start was interrupted by
a kill, and may have arrived: it is sent again with the same id.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import cast, get_args

from attrs import field, frozen
from attrs.validators import ge, gt

from workerdiag.errors import utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.vocabulary import DeliveryState
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.base import Delivery
from workerdiag.watch.state_file import StateFile, value_from_json, value_to_json

#: Exponent beyond which every wait is the longest; 2.0 to a larger one may overflow.
_MAX_DOUBLINGS = 60


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
    #: Since when it is in its state: a sink that hangs stays ``sending``.
    since: float
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
    #: Since when the oldest delivery waits; None: nothing waits.
    waiting_since: float | None = None
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
        step = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
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
    SELECT d.id, d.sink, d.state, d.attempts, d.problem, d.due_at, d.changed_at, n.body
    FROM delivery AS d JOIN notice AS n ON n.id = d.notice_id
    WHERE (:state IS NULL OR d.state = :state) AND (:sink IS NULL OR d.sink = :sink) ORDER BY d.number
"""
_RESEND_DEAD = """
    UPDATE delivery SET state = 'pending', earlier_attempts = attempts, due_at = :now, changed_at = :now
    WHERE state = 'dead' AND (:id IS NULL OR id = :id) AND (:sink IS NULL OR sink = :sink)
"""
_COUNTS = """
    SELECT d.sink, d.state, count(*), min(CASE d.state WHEN 'pending' THEN n.added_at ELSE d.changed_at END)
    FROM delivery AS d JOIN notice AS n ON n.id = d.notice_id GROUP BY d.sink, d.state ORDER BY d.sink
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
_UNREADABLE = "its notice in the state file cannot be read"
_STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)


class DeliveryTable:
    """The outbox in the state file. Methods are transactions, and raise like those of `Store`."""

    def __init__(self, file: StateFile, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock

    def enqueue(self, notice: WatchedCase, sink_names: Iterable[str]) -> None:
        """Add a notice for each sink that does not have it yet."""
        now, notice_id = self._clock(), utf8_safe(notice.notice_id)
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO notice VALUES (?, ?, ?)", (notice_id, value_to_json(notice), now)
            )
            connection.executemany(
                "INSERT OR IGNORE INTO delivery (id, notice_id, case_id, sink, state, due_at, changed_at)"
                " VALUES (?, ?, ?, ?, 'pending', ?, ?)",
                [
                    (delivery_id(notice_id, sink), notice_id, utf8_safe(notice.id), sink, now, now)
                    for sink in map(utf8_safe, sink_names)
                ],
            )

    def recover(self, sink: str, *, longest_wait_s: float) -> None:
        """Recover the deliveries of an earlier process. The caller must have taken the state.

        None waits longer than *longest_wait_s* from now, for example after the clock was set back.
        """
        now = self._clock()
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE delivery SET state = 'pending', problem = '', due_at = ?, changed_at = ?"
                " WHERE sink = ? AND state = 'sending'",
                (now, now, utf8_safe(sink)),
            )
            connection.execute(
                "UPDATE delivery SET due_at = min(due_at, ?) WHERE sink = ? AND state = 'pending'",
                (now + longest_wait_s, utf8_safe(sink)),
            )

    def claim(self, sink: str) -> tuple[Delivery, int] | None:
        """Mark the next delivery of a sink as ``sending``, and count the attempt.

        Returns it with its attempts since it was put into the outbox, or put back; None if none is due.
        """
        now, sink = self._clock(), utf8_safe(sink)
        with self._file.transaction() as connection:
            while (row := connection.execute(_NEXT, (sink, now)).fetchone()) is not None:
                id_, attempt, tries, case_id, body = row
                notice = _notice(body)
                state, problem = ("sending", None) if notice else ("dead", _UNREADABLE)
                connection.execute(
                    "UPDATE delivery SET state = ?, problem = coalesce(?, problem), attempts = ?,"
                    " changed_at = ? WHERE id = ?",
                    (state, problem, attempt, now, id_),
                )
                if notice is not None:
                    last = connection.execute(_LAST_RECEIPT, (case_id, sink)).fetchone()
                    receipt = {} if last is None else json.loads(last[0])
                    delivery = Delivery(id=id_, notice=notice, attempt=attempt, receipt=receipt)
                    return delivery, tries
        return None

    def current(self, sink: str, cluster: str | None) -> tuple[Delivery, ...]:
        """Return the last delivery of each open case, of one cluster or of all, that a sink has taken."""
        wanted = {"sink": utf8_safe(sink), "cluster": None if cluster is None else utf8_safe(cluster)}
        with self._file.transaction() as connection:
            rows = connection.execute(_CURRENT, wanted).fetchall()
        return tuple(
            Delivery(id=id_, notice=notice, attempt=attempts + 1, receipt=json.loads(receipt))
            for id_, attempts, receipt, body in rows
            if (notice := _notice(body)) is not None
        )

    def next_due_at(self, sink: str) -> float | None:
        """Return when the next delivery of a sink is due; None if none waits."""
        with self._file.transaction() as connection:
            found = connection.execute(_NEXT_DUE, (utf8_safe(sink),)).fetchone()[0]
        return None if found is None else float(found)

    def note_sent(self, id_: str, receipt: Mapping[str, str]) -> None:
        """Note that it was sent, with the receipt of the sink."""
        self._note(id_, "sent", receipt=json.dumps(dict(receipt)))

    def paused_until(self, sink: str) -> float | None:
        """Return the end of the pause that the receiver of a sink asked for; None if there is none."""
        with self._file.transaction() as connection:
            found = connection.execute(_PAUSED_UNTIL, (utf8_safe(sink), _PAUSE)).fetchone()[0]
        return None if found is None else float(found)

    def note_failed(self, id_: str, problem: str, due_at: float, *, is_pause: bool = False) -> None:
        """Note that it failed, and when to retry it; *is_pause*: the receiver asked for that."""
        self._note(id_, "pending", problem=problem, due_at=due_at, receipt=_PAUSE if is_pause else "{}")

    def note_dead(self, id_: str, problem: str) -> None:
        """Note that it failed, and is given up."""
        self._note(id_, "dead", problem=problem)

    def resend_dead(self, id_: str | None = None, *, sink: str | None = None) -> int:
        """Send dead letters again, with their ids: one, those of a sink, or all. Returns their number."""
        wanted = {"id": id_, "sink": None if sink is None else utf8_safe(sink), "now": self._clock()}
        with self._file.transaction() as connection:
            return connection.execute(_RESEND_DEAD, wanted).rowcount

    def stored(self, state: DeliveryState | None = None, *, sink: str | None = None) -> tuple[StoredDelivery, ...]:
        """Return the deliveries, oldest first; all, or those in a state or of a sink."""
        wanted = {"state": state, "sink": None if sink is None else utf8_safe(sink)}
        with self._file.transaction() as connection:
            rows = connection.execute(_STORED, wanted).fetchall()
        return tuple(
            StoredDelivery(
                id=id_,
                sink=sink_,
                state=cast("DeliveryState", state_),
                attempts=attempts,
                problem=problem,
                due_at=due_at,
                since=since,
                notice=_notice(body),
            )
            for id_, sink_, state_, attempts, problem, due_at, since, body in rows
        )

    def sinks(self) -> tuple[SinkStatus, ...]:
        """Return the names of all sinks that had deliveries."""
        with self._file.transaction() as connection:
            groups = connection.execute(_COUNTS).fetchall()
            problems = dict(connection.execute(_PROBLEMS).fetchall())
        names = dict.fromkeys(name for name, _, _, _ in groups)
        found = {(name, state): (count, since) for name, state, count, since in groups}
        return tuple(
            SinkStatus(
                name=name,
                counts={state: found.get((name, state), (0, None))[0] for state in _STATES},
                sending_since=found.get((name, "sending"), (0, None))[1],
                waiting_since=found.get((name, "pending"), (0, None))[1],
                problem=problems.get(name, ""),
            )
            for name in names
        )

    def prune(self, before: float) -> None:
        """Delete what was sent or given up before a time, except the last delivery of a known case."""
        with self._file.transaction() as connection:
            connection.execute(_PRUNE, (before,))
            connection.execute("DELETE FROM notice WHERE id NOT IN (SELECT notice_id FROM delivery)")

    def _note(
        self, id_: str, state: DeliveryState, *, problem: str = "", receipt: str = "{}", due_at: float = 0.0
    ) -> None:
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE delivery SET state = ?, problem = ?, receipt = ?, due_at = ?, changed_at = ?"
                " WHERE id = ? AND state = 'sending'",
                (state, utf8_safe(problem), receipt, due_at, self._clock(), id_),
            )


def _notice(body: str) -> WatchedCase | None:
    with guarded("reading a notice"):
        return value_from_json(body, WatchedCase)
    return None
