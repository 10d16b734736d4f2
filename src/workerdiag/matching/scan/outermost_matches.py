"""
The matches of one sign in one log that stay: its first and its last ones.
"""

from __future__ import annotations

from collections import deque

from attrs import define, field

from workerdiag.matching.scan.confirm import PatternHit
from workerdiag.model.diagnosis import Match

#: Of one sign in one log, so many matches are kept from the start, and as many from the end.
MATCHES_PER_END = 400


@define
class OutermostMatches:
    """
    The first and the last matches of one sign, in bounded memory.
    """

    first: list[tuple[int, Match]] = field(factory=list)
    last: deque[tuple[int, Match]] = field(factory=lambda: deque(maxlen=MATCHES_PER_END))
    #: Found in the block at hand; only those are made matches that stay.
    new_first: list[PatternHit] = field(factory=list)
    new_last: deque[PatternHit] = field(factory=lambda: deque(maxlen=MATCHES_PER_END))

    @property
    def has_plenty(self) -> bool:
        """
        Whether only later matches are still of interest, the last of them.
        """
        return len(self.first) + len(self.new_first) >= MATCHES_PER_END

    def add(self, place: PatternHit) -> None:
        """
        Note a place of the block at hand; they come in order.
        """
        if self.has_plenty:
            self.new_last.append(place)
        else:
            self.new_first.append(place)

    def places(self) -> set[int]:
        """
        Where its matches are.
        """
        return {at for at, _ in (*self.first, *self.last)}
