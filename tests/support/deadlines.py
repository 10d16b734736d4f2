"""Deadlines that pass after a number of checks, whatever the speed of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from attrs import field, frozen

from workerdiag.deadline import Deadline


@frozen
class LooksDeadline(Deadline):
    """A deadline that passes after *looks* checks."""

    looks: int = field(kw_only=True)
    _counter: Iterator[int] = field(factory=count, init=False)

    @property
    def is_over(self) -> bool:
        return next(self._counter) >= self.looks
