"""Handmade deaths, incidents and cases, for tests of what a watcher does with them."""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields

from support.findings import explained, nanny_kill, unknown
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.incidents import WatchedDeath, WatchedIncident
from workerdiag.model.diagnosis import Findings
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import NoticeReason
from workerdiag.watch.case import WatchedCase, WatchSettings, with_incident

#: 2026-11-21 10:02:03 UTC.
START = 1795255323.0
CLUSTER = "prod"
SETTINGS = WatchSettings()


def watched(number: int = 1, *, when: float = START, host: str = "10.0.0.4", **more: Any) -> WatchedDeath:
    """Return the death of a worker on *host*."""
    identity = Identity(worker=f"tcp://{host}:{10_000 + number}", pid=number, host=host)
    return WatchedDeath(**({"id": f"death-{number}", "when": when, "identity": identity} | more))


def diagnosis_of(findings: Findings) -> Diagnosis:
    """Return *findings* as a public diagnosis."""
    return Diagnosis(**{each.name: getattr(findings, each.name) for each in fields(Findings)})


def sure_of(cause: str = "nanny.memory-terminate", **changes: Any) -> Diagnosis:
    """Return a diagnosis that is sure of *cause*, with a separate key."""
    causes = (nanny_kill(id=cause, family=cause.partition(".")[0], **changes),)
    return diagnosis_of(explained(causes=causes, unknown_probability=0.03, fingerprint=f"key-{cause}"))


def unsure(key: str = "key-unsure") -> Diagnosis:
    """Return a diagnosis that is only a guess."""
    return diagnosis_of(unknown(fingerprint=key))


def incident(*deaths: WatchedDeath, diagnosis: Diagnosis | None = None, when: float = START) -> WatchedIncident:
    """Return one incident of the *deaths*, or of a standstill if there are none."""
    judged = diagnosis or sure_of()
    return WatchedIncident(
        key=judged.fingerprint,
        diagnosis=judged,
        deaths=deaths,
        when=min((each.when for each in deaths), default=when),
    )


def opened(*deaths: WatchedDeath, now: float = START, **changes: Any) -> WatchedCase:
    """Return the case of *deaths* (default: one death) at its first notice."""
    case, reason = with_incident(None, incident(*(deaths or (watched(),))), CLUSTER, now, SETTINGS)
    assert reason == "new"
    return evolve(case, **changes)


REASONS_OF_A_CASE: tuple[NoticeReason, ...] = (
    "new",
    "recurring",
    "escalating",
    "changed",
    "resolved",
    "ended",
)
