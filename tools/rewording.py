"""
What the newest release words otherwise than the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rule_check import CheckedText
    from vocabulary import Utterance, Vocabulary

#: How alike two messages must be for one to be taken for the other's new wording (difflib's ratio).
_ALIKE = 0.5
_MOST_SHOWN = 3


def rewordings(held: CheckedText, older: Vocabulary, newer: Vocabulary) -> Iterator[str]:
    """
    What of a rule *older* says and *newer* does not, and what *newer* may say instead.
    """
    gone = sorted(map(shown, held.wordings(older) - held.wordings(newer)))
    if not gone:
        return
    yield from (f"no longer said: {each!r}" for each in gone[:_MOST_SHOWN])
    fresh = sorted(map(shown, held.wordings(newer) - held.wordings(older))) or _closest(gone, older, newer)
    yield from (f"said instead: {each!r}" for each in fresh[:_MOST_SHOWN])


def shown(utterance: Utterance) -> str:
    """
    An utterance for people: what varies in it is an ellipsis.
    """
    return "…".join(utterance) if isinstance(utterance, tuple) else str(utterance)


def _closest(gone: list[str], older: Vocabulary, newer: Vocabulary) -> list[str]:
    """
    Of all that is new in *newer*, what is most like what is gone.
    """
    new = [*(newer.templates - older.templates), *(newer.events - older.events)]
    texts = sorted(map(shown, new))
    return [each for text in gone for each in get_close_matches(text, texts, n=1, cutoff=_ALIKE)]
