"""
What to do when evidence cannot be judged: find the pieces that are at fault, and judge the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap

DiagnosePieces = Callable[[Sequence[Evidence]], Findings]

#: So many pieces, or runs of pieces, are given up one after the other.
_MAX_FAULTS = 5


def diagnose_without_faults(
    judge: DiagnosePieces, pieces: Sequence[Evidence], problem: Exception, *, deadline: Deadline
) -> Findings | None:
    """
    What the evidence says without the pieces that cannot be judged; None if it says nothing in time.

    Args:
        judge: The pipeline; it raises for some of the pieces.
        pieces: What it raised for.
        problem: What it raised.
        deadline: When to stop trying.
    """
    problem_text, left_out = describe_error(problem), 0
    for _ in range(_MAX_FAULTS):
        first, behind = _faulty_range(judge, pieces, deadline)
        if behind <= first:
            return None
        left_out += behind - first
        pieces = [*pieces[:first], *pieces[behind:]]
        detail = f"{left_out} pieces of evidence could not be judged and were left out: {problem_text}"
        gap = Gap(
            source="workerdiag",
            place="workerdiag",
            reason="malformed",
            detail=detail[:500],
            remedy="report it, with the input",
        )
        findings = _findings_or_none(judge, [*pieces, gap])
        if findings is not None:
            return findings
    return None


def _faulty_range(judge: DiagnosePieces, pieces: Sequence[Evidence], deadline: Deadline) -> tuple[int, int]:
    """
    From where to where the pieces are at fault, by halves; where only both halves together are, the second.
    """
    first, behind = 0, len(pieces)
    while behind - first > 1:
        if deadline.is_over:
            return 0, 0
        middle = (first + behind) // 2
        if _findings_or_none(judge, pieces[first:middle]) is None:
            behind = middle
        elif _findings_or_none(judge, pieces[middle:behind]) is None:
            first = middle
        else:
            return middle, behind
    return first, behind


def _findings_or_none(judge: DiagnosePieces, pieces: Sequence[Evidence]) -> Findings | None:
    try:
        return judge(pieces)
    except Exception:  # noqa: BLE001  that is what is looked for
        return None
