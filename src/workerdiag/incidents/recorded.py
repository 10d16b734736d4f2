"""
From what a recorder or a scheduler says of a death to what can be judged of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from workerdiag.incidents.deaths import WatchedDeath
from workerdiag.model.stop_reasons import is_dask_stop_request
from workerdiag.sources.recorder.evidence import evidence_of_one
from workerdiag.sources.recorder.identity import identity_of_death
from workerdiag.wire.recorded_death import RecordedDeath

_ID_CHARS = 24


def removal_id(worker: str | None, stimulus_id: str | None) -> str:
    """
    The id of a death that the scheduler noticed; the same in its events, in the recorder and in a journal.

    A stimulus has the time in it, and removes a worker once (``stimulus_id`` in scheduler.py).
    """
    return _hash("removal", worker, stimulus_id)


def death_id(death: RecordedDeath) -> str:
    """
    The id of a recorded death, which stays when more becomes known of it.

    Of one that only a nanny, or whoever found the box, knows, that is a matter of the process: such a worker
    was not, or no longer, known to the scheduler.
    """
    if death.record is not None:
        return removal_id(death.record.worker_address, death.record.stimulus_id)
    who = death.identity
    return _hash("process", who.worker, who.pid, who.boot_id, who.nanny)


def watched_deaths(deaths: Iterable[RecordedDeath]) -> tuple[WatchedDeath, ...]:
    """
    The deaths with their evidence, oldest first; deliberate stops have none, as nobody judges them.
    """
    known = sorted(deaths, key=lambda each: each.time)
    return tuple(_watched_death(each, known) for each in known)


def _watched_death(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> WatchedDeath:
    record = death.record
    is_expected = record is not None and is_deliberate(
        announced=record.is_expected, close_reason=record.close_reason
    )
    return WatchedDeath(
        id=death_id(death),
        when=death.time,
        identity=identity_of_death(death),
        is_expected=is_expected,
        evidence=() if is_expected else tuple(evidence_of_one(death, deaths)),
    )


def is_deliberate(*, announced: bool, close_reason: object) -> bool:
    """
    Whether a part of Dask asked for the stop.

    Signals and nannies that close are judged by the evidence: a platform that takes a machine does so too.
    """
    return announced or (isinstance(close_reason, str) and is_dask_stop_request(close_reason))


def _hash(*parts: object) -> str:
    text = "\0".join("" if each is None else str(each) for each in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]
