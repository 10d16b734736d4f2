"""Selects the records of a log that may be about one death."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from workerdiag.incidents.log_excerpts import RECORD_TIME, log_records
from workerdiag.incidents.watched_incident import LEAST_KILL_S, WatchedDeath

#: Log lines within these seconds before and after a death may be about it.
_BEFORE_S, _AFTER_S = 120.0, 60.0
#: The process in messages of nannies (nanny.py, worker_memory.py).
_PID = re.compile(r"Worker process (\d{1,9}) |\(pid=(\d{1,9})\)")
#: Messages of a nanny about the end of a process, and after each end (nanny.py, 2024.8.1 to 2026.8.0).
_END = re.compile(r"Worker process \d{1,9} (?:was killed|exited)")
_FOLLOWERS = ("Unregistering worker", "Restarting worker")
#: Message of the scheduler that it retires workers (scheduler.py, ``retire_workers``).
_ORDER = "Retire worker "


def records_about(death: WatchedDeath, text: str, others: Collection[str] = ()) -> Iterator[str]:
    """Yield the records of a log that may be about the death: they name it, or have its time and name no other.

    In a log of several nannies, messages that follow each end name nobody; those after another end are
    dropped.
    """
    records = [
        (each, _is_around(each, death, others))
        for each in log_records(text)
        if not _is_unanswered_order(each, death)
    ]
    is_shared = any(_END.search(record) and not is_about for record, is_about in records)
    awaited = set(() if is_shared else _FOLLOWERS)
    for record, is_about in records:
        kind = next((each for each in _FOLLOWERS if each in record), None)
        if is_about and _END.search(record):
            awaited = {*_FOLLOWERS}
        if is_about and (kind is None or kind in awaited):
            yield record
        if is_shared and kind:
            awaited.discard(kind)


def _is_around(record: str, death: WatchedDeath, others: Collection[str]) -> bool:
    """Whether a record may be about the death: it names the victim, or has its time and names no other."""
    victim = death.identity
    if victim.worker is not None and victim.worker in record:
        return True
    pids = {int(pid) for found in _PID.findall(record) for pid in found if pid}
    if victim.pid is not None and pids:
        return victim.pid in pids
    found = RECORD_TIME.match(record)
    if found is None or any(each in record for each in others):
        return False
    return -_BEFORE_S <= _utc_timestamp(found[1]) - death.when <= _AFTER_S


def _is_unanswered_order(record: str, death: WatchedDeath) -> bool:
    """Whether a record is an order to stop that did not end the worker.

    A worker that stops says so first. This one did not, and was gone before a nanny would have killed it: it
    crashed, or was killed, while its cluster was closing.
    """
    found = RECORD_TIME.match(record) if death.is_unannounced and _ORDER in record else None
    return found is not None and death.when - _utc_timestamp(found[1]) < LEAST_KILL_S


def _utc_timestamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
