"""Text in logs that proves nothing: guesses at a reason, and the ends of programs that are not workers.

"This could be caused by a segmentation fault or by excessive memory usage" names two causes, and the
program that wrote it saw neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workerdiag.matching.regex import pattern
from workerdiag.model.diagnosis import Match
from workerdiag.model.vocabulary import MatchRole

#: Landmarks and signs that say that a process ended, how, or why.
_OF_ENDS: tuple[MatchRole, ...] = ("sign", "exit-report", "death", "trouble")
#: Openings after which the rest of the sentence is a guess.
_MAY_BE = (
    r"\b(?:could|can|might|may|would)(?: (?:also|have|well|possibly))?(?: be| been)?"
    r" (?:caused by|due to|because|the result of|a result of|triggered by|lead to|result in|cause)\b"
    r"|\b(?:likely|possibly|probably|often|usually|typically|either)(?: \w+)? (?:caused by|due to|because)\b"
    r"|\b(?:perhaps|maybe)\b"
)
#: Openings after which the rest of the line lists guesses.
_LISTED = (
    r"\b(?:possible|potential|likely|probable|common|usual) (?:root )?(?:causes?|reasons?|explanations?)\b"
)
_SENTENCE_END = r"[.!?][)'\"]?(?:\s|$)|\n"
_LINE_END = r"\n"
#: One of these is in every guess. Finding them takes 1.4 microseconds, the patterns 12.
_WORDS = ("caus", "due to", "result", "triggered", "lead to", "perhaps", "maybe", "reason", "explanation")
#: Text without either of these has no guess.
OPENINGS = (_MAY_BE, _LISTED)


def without_other_programs(found: Sequence[Match]) -> list[Match]:
    """Return the matches, without the ends of programs that are not workers."""
    theirs = {line for each in found if each.role == "other-program" for line in _line_places(each)}
    if not theirs:
        return list(found)
    return [each for each in found if each.role not in _OF_ENDS or theirs.isdisjoint(_line_places(each))]


def _line_places(mark: Match) -> Iterator[tuple[str, int]]:
    for line in range(mark.line, max(mark.line, mark.last_line) + 1):
        yield mark.origin, line


def guesses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the guesses in *text*."""
    lowered = text.lower()
    if not any(word in lowered for word in _WORDS):
        return
    for opening, ending in ((_MAY_BE, _SENTENCE_END), (_LISTED, _LINE_END)):
        for found in pattern(opening).finditer(text):
            start = found.span()[1]
            end = pattern(ending).search(text[start:])
            yield start, start + end.span()[0] if end else len(text)
