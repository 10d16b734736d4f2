"""Watched deaths with their evidence, and incidents with their diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import field, frozen

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.diagnosis import SURE_ENOUGH, Death
from workerdiag.model.evidence import Event, Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.rules import Rulebook
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.rendering.wording import one_line
from workerdiag.sources.recorder.source import evidence_of_one
from workerdiag.wire.recorded_death import RecordedDeath, identity_of_death

#: ``PRAGMA application_id`` of our files: "wdia" in ASCII.
APPLICATION_ID: Final = 0x77646961
#: ``PRAGMA user_version``, increased with each change that older versions cannot read.
SCHEMA_VERSION: Final = 1
#: Key of the case that is open while the watcher is blind.
BLIND_KEY: Final = "blind"
#: Minimum probability for counting a stop as deliberate.
_SURE_OF_STOP = 0.8
_SIGKILL = 9
#: A nanny kills a worker four seconds after asking it to stop (0.8 * 5 s, ``kill`` in nanny.py). An earlier
#: silent end has another reason.
LEAST_KILL_S = 3.0


@frozen(kw_only=True)
class WatchedDeath:
    """A worker that the scheduler lost, with the first evidence."""

    #: The same in every reading of the death, from any place.
    id: str
    #: When the scheduler noticed it, in seconds since the epoch by its clock.
    when: float
    identity: Identity
    #: Whether it was requested: a deliberate stop is not an incident.
    is_expected: bool = False
    #: Whether the scheduler lost it before it announced its end.
    is_unannounced: bool = False
    #: Evidence about this death alone; empty if it must be asked for.
    evidence: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)


def watched_deaths(deaths: Iterable[RecordedDeath]) -> tuple[WatchedDeath, ...]:
    """Return the deaths with their evidence, oldest first; deliberate stops have none, as they are not judged."""
    known = sorted(deaths, key=lambda each: each.time)
    return tuple(_watched_death(each, known) for each in known)


def _watched_death(death: RecordedDeath, deaths: Sequence[RecordedDeath]) -> WatchedDeath:
    record = death.record
    is_expected = record is not None and is_deliberate(
        announced=record.is_expected, close_reason=record.close_reason
    )
    is_unannounced = record is not None and not is_expected and record.close_reason is None
    evidence = () if is_expected else tuple(evidence_of_one(death, deaths))
    if is_unannounced and _was_killed_while_awake(death):
        evidence = tuple(each for each in evidence if not _is_order(each))
    return WatchedDeath(
        id=death.id,
        when=death.time,
        identity=identity_of_death(death),
        is_expected=is_expected,
        is_unannounced=is_unannounced,
        evidence=evidence,
    )


def _was_killed_while_awake(death: RecordedDeath) -> bool:
    """Whether a SIGKILL ended a worker whose event loop was running just before.

    A nanny kills only a worker that does not stop, and a running event loop announces the end as soon as it
    is asked. So this worker was killed by something else, and the request came too late.
    """
    record, report = death.record, death.report
    ending = report.exit if report is not None else None
    if record is None or ending is None or ending.signal != _SIGKILL:
        return False
    age_s = record.last_heartbeat.age_s
    return age_s is not None and 0 <= age_s < LEAST_KILL_S


def _is_order(piece: Evidence) -> bool:
    return isinstance(piece, Event) and piece.fields.get("action") == "asked-to-stop"


@frozen(kw_only=True)
class WatchedIncident:
    """Deaths of one trouble that belong together, with a common diagnosis; or a standstill."""

    #: `Diagnosis.fingerprint`: equal for repeats of the same trouble.
    key: str
    diagnosis: Diagnosis
    #: Oldest first: the first one is the first victim. Empty for a standstill.
    deaths: tuple[WatchedDeath, ...] = ()
    #: Its start, in seconds since the epoch.
    when: float
    #: Whether neither an exit nor a cause is known of any of the deaths.
    is_unexplained: bool = False


def is_likely(diagnosis: Diagnosis) -> bool:
    """Whether its first cause is more likely than not; else it is a guess."""
    top = diagnosis.top
    return diagnosis.outcome == "explained" and top is not None and top.probability >= SURE_ENOUGH


def title_of(diagnosis: Diagnosis) -> str:
    """Return the likeliest cause in one line, or that it is not known."""
    top = diagnosis.top
    if top is None:
        return "cause unknown"
    title = one_line(top.title)
    return title if is_likely(diagnosis) else f"cause unknown, best guess: {title}"


def victim_name(identity: Identity) -> str:
    """Return a short name of the worker: its address, else its name, else its process id."""
    pid = f"pid {identity.pid}" if identity.pid is not None else ""
    return one_line(identity.worker or identity.name or pid)


def is_deliberate_stop(death: Death, book: Rulebook) -> bool:
    """Whether it was requested: a rule may know that even if the scheduler does not.

    A stop by the platform (SIGTERM from outside) is not the user's request.
    """
    if death.stop_requested:
        return True
    cause = book.cause(death.cause) if death.cause is not None else None
    is_stop = cause is not None and cause.ends == "stopped" and cause.blame != "platform"
    return is_stop and death.probability >= _SURE_OF_STOP
