"""
Sentences in which a program guesses why something happened.

"This could be caused by a segmentation fault or by excessive memory usage" names two causes, and the
program that wrote it saw neither.
"""

from __future__ import annotations

from collections.abc import Iterator

from workerdiag.matching.regex import pattern

#: The rest of the sentence is a guess.
_MAY_BE = (
    r"\b(?:could|can|might|may|would)(?: (?:also|have|well|possibly))?(?: be| been)?"
    r" (?:caused by|due to|because|the result of|a result of|triggered by|lead to|result in|cause)\b"
    r"|\b(?:likely|possibly|probably|often|usually|typically|either)(?: \w+)? (?:caused by|due to|because)\b"
    r"|\b(?:perhaps|maybe)\b"
)
#: The rest of the line lists guesses.
_LISTED = (
    r"\b(?:possible|potential|likely|probable|common|usual) (?:root )?(?:causes?|reasons?|explanations?)\b"
)
_SENTENCE_END = r"[.!?][)'\"]?(?:\s|$)|\n"
_LINE_END = r"\n"
#: One of these stands in every guess. To look for them takes 1.4 microseconds, for the patterns 12.
_WORDS = ("caus", "due to", "result", "triggered", "lead to", "perhaps", "maybe", "reason", "explanation")


#: Where neither of these is, nothing is a guess.
OPENINGS = (_MAY_BE, _LISTED)


def guesses(text: str) -> Iterator[tuple[int, int]]:
    """
    From where to where *text* guesses.
    """
    lowered = text.lower()
    if not any(word in lowered for word in _WORDS):
        return
    for opening, ending in ((_MAY_BE, _SENTENCE_END), (_LISTED, _LINE_END)):
        for found in pattern(opening).finditer(text):
            start = found.span()[1]
            end = pattern(ending).search(text[start:])
            yield start, start + end.span()[0] if end else len(text)
