"""
What holds of every diagnosis, whatever died.
"""

from __future__ import annotations

import pytest
from distributed.scheduler import KilledWorker

import workerdiag
from workerdiag.model.notes import LATE_NOTE, NOTE_START

WIDTH = 80
#: From here on a note has to name the same cause, of whose title so much stands in any note.
_NEARLY_SURE, _TITLE_CHARS = 0.9, 40


def check_promises(diagnosis: workerdiag.Diagnosis) -> None:
    """
    Assert what every diagnosis promises.
    """
    chances = [cause.probability for cause in diagnosis.causes]
    assert chances == sorted(chances, reverse=True), "causes are ranked"
    assert sum(chances) + diagnosis.unknown_probability == pytest.approx(1), "chances sum to 1"
    first_three = str(diagnosis).splitlines()[:3]
    assert len(first_three) == 3, "who is in a hurry reads three lines"
    assert max(map(len, first_three)) <= WIDTH, "the first lines fit a terminal"
    assert workerdiag.Diagnosis.from_json(diagnosis.to_json()) == diagnosis, "JSON holds it all"


def check_note(exc: BaseException | None, *, is_noted: bool) -> str | None:
    """
    The note that `workerdiag.auto` has put into the exception of a killed task, after a look that there is one.

    Which answer is another matter: as the exception comes, a nanny may not have spoken yet, and one may still
    live that is gone later.
    """
    if not isinstance(exc, KilledWorker):
        return None
    notes = [each for each in getattr(exc, "__notes__", []) if each.startswith(NOTE_START)]
    assert LATE_NOTE not in notes
    assert [len(each.splitlines()) for each in notes] == [3] * is_noted, "one answer, in three lines"
    return notes[0] if notes else None


def check_agreement(note: str, diagnosis: workerdiag.Diagnosis) -> None:
    """
    Assert that a note names the cause that is named a moment later, where that is nearly sure.
    """
    if diagnosis.top is not None and diagnosis.top.probability >= _NEARLY_SURE:
        cause = note.splitlines()[-1]
        assert cause.startswith(f"Cause: {diagnosis.top.title[:_TITLE_CHARS]}"), cause


def named_cause(diagnosis: workerdiag.Diagnosis) -> str:
    """
    The explanation given: the id of the likeliest cause, or the outcome where there is none.
    """
    if diagnosis.outcome != "explained" or diagnosis.top is None:
        return diagnosis.outcome
    return diagnosis.top.id


def claimed_causes(diagnosis: workerdiag.Diagnosis) -> set[str]:
    """
    The causes that a reader would take for an answer.
    """
    return {cause.id for cause in diagnosis.causes if cause.probability >= 0.5}
