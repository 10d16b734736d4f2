"""Evidence with parts missing: the diagnosis keeps its key as long as its cause."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache

from attrs import evolve

from workerdiag import load_rulebook
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.pipeline import diagnose


@cache
def shipped() -> tuple[Rulebook, Matcher]:
    """Return the shipped rules, ready to run."""
    book = load_rulebook(packs=False)
    return book, Matcher(book)


def findings_of(evidence: Sequence[Evidence]) -> Findings:
    """Return the findings by the shipped rules."""
    book, matcher = shipped()
    return diagnose(evidence, book, matcher=matcher)


def without_lines(piece: Evidence, share: int, offset: int) -> Evidence:
    """Return the piece; a log loses every *share*-th line."""
    if not isinstance(piece, LogChunk):
        return piece
    lines = piece.data.splitlines(keepends=True)
    return evolve(piece, data=b"".join(each for n, each in enumerate(lines) if n % share != offset))


def has_key_of(thinned: Findings, whole: Findings) -> bool:
    """Whether both have the same key. Also true if they have no sure cause in common."""
    same_cause = whole.top and thinned.top and whole.top.id == thinned.top.id
    if not same_cause or min(whole.top.probability, thinned.top.probability) < 0.5:
        return True
    return thinned.fingerprint == whole.fingerprint


def keys_that_changed(evidence: Sequence[Evidence], *, times: int = 20) -> list[list[Evidence]]:
    """Return the random thinnings, of *times*, that changed the key but not the cause."""
    whole = findings_of(evidence)
    assert whole.top is not None
    return [each for each in _thinned(evidence, times) if not has_key_of(findings_of(each), whole)]


def _thinned(evidence: Sequence[Evidence], times: int) -> Iterator[list[Evidence]]:
    chance = random.Random(0)
    for _ in range(times):
        kept = [each for each in evidence if chance.random() < 0.7]
        share = chance.choice([2, 3, 8])
        yield [without_lines(each, share, chance.randrange(share)) for each in kept]
