"""Diagnoses of given evidence, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

import workerdiag
from workerdiag import Diagnosis, LogText
from workerdiag.model.diagnosis import Decision, RetryPolicy
from workerdiag.model.evidence import Evidence

#: A log with one death that a rule explains.
KILLED = "distributed.nanny - INFO - Worker process 7 was killed by signal 11\n"
GOOD = LogText(KILLED)


@frozen
class FixedSource:
    """A source that yields the given *pieces*."""

    pieces: tuple[Evidence, ...]
    name: str = "told"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the pieces, whatever the time budget."""
        assert budget_s > 0
        yield from self.pieces


def shown(diagnosis: Diagnosis, folder: Path | None = None) -> list[bytes]:
    """Return every form of a diagnosis as bytes. With *folder*, save it there too."""
    forms = (
        str(diagnosis),
        diagnosis.to_text(full=True),
        diagnosis.to_markdown(),
        diagnosis.to_html(),
        diagnosis.to_json(),
    )
    assert workerdiag.Diagnosis.from_json(diagnosis.to_json()) == diagnosis
    if folder is not None:
        diagnosis.save(folder / "death.zip")
    return [each.encode() for each in forms]


def first_cause(diagnosis: Diagnosis) -> str | None:
    """Return the id of the likeliest cause."""
    return diagnosis.causes[0].id if diagnosis.causes else None


def diagnosis_with(policy: RetryPolicy) -> Diagnosis:
    """Return a diagnosis with this retry *policy*."""
    return Diagnosis(outcome="explained", summary="A worker died.", decision=Decision(policy=policy))
