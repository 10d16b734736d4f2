"""
Patterns of whose signs there are plenty in a log: of these only the last matches are still of interest.
"""

from __future__ import annotations

from collections.abc import Iterable

from workerdiag.matching.scan.candidates import Candidate


class SaturatedPatterns:
    """
    The patterns that have matched often enough, and what that leaves to do.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        #: Of patterns that are tried together, those that have not.
        self._fresh: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, text: str) -> None:
        """
        Note that the pattern *text* has matched often enough.
        """
        self._texts.add(text)
        self._fresh.clear()

    def begin_block(self) -> None:
        """
        Forget which patterns stood together in the block before.
        """
        self._fresh.clear()

    def without(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """
        The patterns of whose signs more are wanted.
        """
        if not self._texts:
            return texts
        if texts not in self._fresh:
            self._fresh[texts] = tuple(each for each in texts if each not in self._texts)
        return self._fresh[texts]

    def spots(self, spots: Iterable[Candidate]) -> dict[str, list[Candidate]]:
        """
        For each pattern of whose signs there are plenty its spots, in order.
        """
        alike: dict[tuple[str, ...], list[Candidate]] = {}
        for spot in spots if self._texts else ():
            alike.setdefault(spot.texts, []).append(spot)
        found: dict[str, list[Candidate]] = {}
        for texts, those in alike.items():
            for text in texts:
                if text in self._texts:
                    found[text] = found[text] + those if text in found else those
        return {text: sorted(those, key=lambda spot: spot.at) for text, those in found.items()}
