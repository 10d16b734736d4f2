"""
A death that can be judged: whose it is, all that is known of it, and how it is made of what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.sources.addresses import identity_of_death
from workerdiag.sources.recorder.evidence import evidence_of_one
from workerdiag.wire.recorded_death import RecordedDeath


@frozen(kw_only=True)
class WatchedDeath:
    """
    One worker that the scheduler lost, with the evidence that was there at once.
    """

    #: The same for the same death, however often and from wherever it is read.
    id: str
    #: When the scheduler noticed it, in seconds since the epoch, by its own clock.
    when: float
    identity: Identity
    #: Whether somebody asked for it: a deliberate stop is no incident.
    is_expected: bool = False
    #: What is known of this death alone; empty if it must be asked for.
    evidence: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)


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
        id=death.id,
        when=death.time,
        identity=identity_of_death(death),
        is_expected=is_expected,
        evidence=() if is_expected else tuple(evidence_of_one(death, deaths)),
    )
