"""Causes found by words, as a person or a program would look for them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workerdiag.model.rules import Cause, LogSign, Rulebook

#: What a word in this part of a cause is worth.
_ID, _TITLE, _WHY, _SIGN = 8.0, 4.0, 2.0, 1.0
_WORD = re.compile(r"[a-z0-9_]{2,}")
#: Letters of a word that are compared: "killing" finds "killed".
_STEM = 5


def search_causes(book: Rulebook, query: str, *, most: int = 10) -> tuple[Cause, ...]:
    """The causes in which most words of *query* stand, the best first; deprecated ones come last.

    A line of a log is a query, too: it finds the causes that have such lines for signs.
    """
    wanted = _stems(query)
    scored = [(score, each) for each in book.causes if (score := _score(each, wanted)) > 0]
    scored.sort(key=lambda pair: (pair[1].status != "stable", -pair[0], pair[1].id))
    return tuple(cause for _, cause in scored[:most])


def _score(cause: Cause, wanted: frozenset[str]) -> float:
    parts = (
        (_ID, cause.id),
        (_TITLE, cause.title),
        (_WHY, cause.why),
        (_SIGN, " ".join(_sign_texts(cause))),
    )
    found = [(worth, wanted & _stems(text)) for worth, text in parts]
    words = frozenset[str]().union(*(each for _, each in found))
    return len(words) * sum(worth * len(each) for worth, each in found)


def _sign_texts(cause: Cause) -> Iterable[str]:
    for sign in cause.signs:
        yield sign.name
        if isinstance(sign, LogSign):
            yield from sign.seen


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:_STEM] for word in _WORD.findall(text.lower()))
