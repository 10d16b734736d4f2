"""
From what a recorder or a scheduler says of a death to what can be judged of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workerdiag.incidents.deaths import WatchedDeath
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.sources.recorder.evidence import evidence_of_one
from workerdiag.sources.recorder.identity import identity_of_death
from workerdiag.wire.death_id import death_id
from workerdiag.wire.recorded_death import RecordedDeath


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
