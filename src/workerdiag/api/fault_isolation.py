"""Isolates pieces of evidence on which the pipeline fails, and diagnoses the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap

DiagnosePieces = Callable[[Sequence[Evidence]], Findings]

#: Maximum number of pieces, or ranges of pieces, to leave out.
_MAX_FAULTS = 5


def diagnose_without_faults(
    diagnose: DiagnosePieces, pieces: Sequence[Evidence], problem: Exception, *, deadline: Deadline
) -> Findings | None:
    """Return the findings without the faulty *pieces*; None if those are not found in time.

    *problem* is what *diagnose* raised for all pieces.
    """
    problem_text, left_out = describe_error(problem), 0
    for _ in range(_MAX_FAULTS):
        first, behind = _faulty_range(diagnose, pieces, deadline)
        if behind <= first:
            return None
        left_out += behind - first
        pieces = [*pieces[:first], *pieces[behind:]]
        detail = f"{left_out} pieces of evidence could not be used and were left out: {problem_text}"
        gap = Gap(
            source="workerdiag",
            place="workerdiag",
            reason="malformed",
            detail=detail[:500],
            remedy="report it, with the input",
        )
        findings = _findings_or_none(diagnose, [*pieces, gap])
        if findings is not None:
            return findings
    return None


def _faulty_range(diagnose: DiagnosePieces, pieces: Sequence[Evidence], deadline: Deadline) -> tuple[int, int]:
    first, behind = 0, len(pieces)
    while behind - first > 1:
        if deadline.is_over:
            return 0, 0
        middle = (first + behind) // 2
        if _findings_or_none(diagnose, pieces[first:middle]) is None:
            behind = middle
        elif _findings_or_none(diagnose, pieces[middle:behind]) is None:
            first = middle
        else:
            return middle, behind
    return first, behind


def _findings_or_none(diagnose: DiagnosePieces, pieces: Sequence[Evidence]) -> Findings | None:
    with guarded("diagnosing a part of the evidence"):
        return diagnose(pieces)
    return None
