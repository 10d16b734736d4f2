"""
The matches of one sign in one log that stay: its first and its last ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from workerdiag.matching.scan.confirmation import PatternHit
from workerdiag.model.diagnosis import Match

#: Of one sign in one log, so many matches are kept from the start, and as many from the end.
MATCHES_PER_END = 400


@define
class OutermostMatches:
    """
    The first and the last matches of one sign, in bounded memory.
    """

    first: list[tuple[int, Match]] = field(factory=list)
    last: list[tuple[int, Match]] = field(factory=list)
    #: Found since; only those are made matches that stay.
    _new_first: list[PatternHit] = field(factory=list)
    _new_last: list[PatternHit] = field(factory=list)
    _waiting: list[PatternHit] = field(factory=list)

    @property
    def has_plenty(self) -> bool:
        """
        Whether only later matches are still of interest, the last of them.
        """
        return len(self.first) + len(self._new_first) >= MATCHES_PER_END

    def add(self, place: PatternHit) -> None:
        """
        Note a place; those that come before there is plenty come in order.
        """
        if self.has_plenty:
            self._new_last.append(place)
        else:
            self._new_first.append(place)

    def take_new(self, *, at_end: bool) -> Iterator[tuple[PatternHit, list[tuple[int, Match]]]]:
        """
        Each new place that stays, and where its match belongs; that is to be added before the next are taken.

        Before the end, places in messages that are held by themselves can wait.
        """
        first, self._new_first = self._new_first, []
        yield from ((place, self.first) for place in first)
        if not self._new_last and not at_end:
            return
        new = self._waiting + self._new_last
        self._new_last, self._waiting = [], []
        ends = sorted((*(at for at, _ in self.last), *(place.at for place in new)))
        least = ends[-MATCHES_PER_END:][0] if ends else 0
        self.last = [each for each in self.last if each[0] >= least]
        for place in new:
            if place.at < least:
                continue
            if at_end or not place.record.window.is_small:
                yield place, self.last
            else:
                self._waiting.append(place)

    def places(self) -> set[int]:
        """
        Where its matches are.
        """
        return {at for at, _ in (*self.first, *self.last)}
