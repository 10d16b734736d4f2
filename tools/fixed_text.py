"""The fixed texts of a pattern: what a message must say to be meant by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

#: A pattern insists on its fixed texts of so many letters; shorter ones may be chance.
LEAST_LETTERS = 4


def fixed_runs(text: str) -> frozenset[str]:
    """The fixed texts of a pattern, of all its alternatives, lower-case."""
    return frozenset(
        run for run in _runs(sre_parser.parse(text, re.IGNORECASE)) if sum(map(str.isalpha, run)) >= LEAST_LETTERS
    )


def _runs(items: Any) -> Iterator[str]:
    run = ""
    for op, value in items:
        if op is sre.LITERAL:
            run += chr(value).lower()
            continue
        yield run
        run = ""
        if op is sre.SUBPATTERN or op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            yield from _runs(value[-1])
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from _runs(branch)
    yield run
