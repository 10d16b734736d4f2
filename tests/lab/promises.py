"""Checks that hold for every diagnosis, whatever died."""

from __future__ import annotations

import pytest
from distributed.scheduler import KilledWorker

import workerdiag
from workerdiag.model.vocabulary import LATE_NOTE, NOTE_START

WIDTH = 80
#: From this probability a note must name the same cause; each note has this many characters of its title.
_NEARLY_SURE, _TITLE_CHARS = 0.9, 40


def check_promises(diagnosis: workerdiag.Diagnosis) -> None:
    """Assert what every diagnosis promises."""
    chances = [cause.probability for cause in diagnosis.causes]
    assert chances == sorted(chances, reverse=True), "causes are ranked"
    assert sum(chances) + diagnosis.unknown_probability == pytest.approx(1), "chances sum to 1"
    first_three = str(diagnosis).splitlines()[:3]
    assert len(first_three) == 3, "who is in a hurry reads three lines"
    assert max(map(len, first_three)) <= WIDTH, "the first lines fit a terminal"
    assert workerdiag.Diagnosis.from_json(diagnosis.to_json()) == diagnosis, "JSON holds it all"


def check_note(exc: BaseException | None, *, is_noted: bool) -> str | None:
    """Return the note that `workerdiag.auto` added to a killed task's exception, after a check that it exists.

    Its answer may differ from a later one: when the exception is raised, a nanny may not have reported yet, and
    a nanny that ends later may still be alive.
    """
    if not isinstance(exc, KilledWorker):
        return None
    notes = [each for each in getattr(exc, "__notes__", []) if each.startswith(NOTE_START)]
    assert LATE_NOTE not in notes
    assert [len(each.splitlines()) for each in notes] == [3] * is_noted, "one answer, in three lines"
    return notes[0] if notes else None


def check_agreement(note: str, diagnosis: workerdiag.Diagnosis) -> None:
    """Assert that a note names the same cause as a diagnosis a moment later, if that is nearly sure."""
    if diagnosis.top is not None and diagnosis.top.probability >= _NEARLY_SURE:
        cause = note.splitlines()[0]
        assert cause.startswith(f"{NOTE_START}Cause: {diagnosis.top.title[:_TITLE_CHARS]}"), cause


def named_cause(diagnosis: workerdiag.Diagnosis) -> str:
    """Return the id of the likeliest cause, or the outcome without one."""
    if diagnosis.outcome != "explained" or diagnosis.top is None:
        return diagnosis.outcome
    return diagnosis.top.id


def claimed_causes(diagnosis: workerdiag.Diagnosis) -> set[str]:
    """Return the causes that a reader would take for an answer."""
    return {cause.id for cause in diagnosis.causes if cause.probability >= 0.5}
