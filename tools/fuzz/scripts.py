"""Some bytes as a list of decisions, so that Hypothesis draws one thing for an input and not fifty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from attrs import define

T = TypeVar("T")

#: Enough for what one input decides; a longer one reads its script again from the beginning.
SCRIPT_BYTES = 64


@define
class Script:
    """Decisions, taken one after the other."""

    _data: bytes
    _at: int = 0

    def number(self) -> int:
        """A number from 0 to 255."""
        self._at += 1
        return self._data[(self._at - 1) % len(self._data)]

    def share(self) -> float:
        """A number from 0 to 1."""
        return (self.number() * 256 + self.number()) / 65535

    def one_of(self, choices: Sequence[T]) -> T:
        """One of some things."""
        return choices[(self.number() * 256 + self.number()) % len(choices)]

    def span(self, data: bytes) -> tuple[int, int]:
        """Two places in the data, the first not behind the second."""
        one, two = (int(self.share() * len(data)) for _ in range(2))
        return min(one, two), max(one, two)
