"""
Values found by the names of the processes that they are about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from workerdiag.model.identity import Identity


class HasIdentity(Protocol):
    """
    Evidence that says which process it is about.
    """

    @property
    def identity(self) -> Identity:
        """
        Whose it is.
        """


_T = TypeVar("_T")
_E = TypeVar("_E", bound=HasIdentity)


class NameIndex(Generic[_T]):
    """
    Numbered values by the worker addresses and pids that they name.
    """

    def __init__(self) -> None:
        self._named: dict[str | int, dict[int, _T]] = {}

    @staticmethod
    def by_identity(pieces: Iterable[_E]) -> NameIndex[_E]:
        """
        Pieces of evidence in their order.
        """
        index: NameIndex[_E] = NameIndex()
        for number, piece in enumerate(pieces):
            index.add(number, piece, piece.identity)
        return index

    def add(self, number: int, value: _T, *identities: Identity) -> None:
        """
        Add a value, or further *identities* of the one with that *number*.
        """
        for identity in identities:
            for name in (identity.worker, identity.pid):
                if name is not None:
                    self._named.setdefault(name, {})[number] = value

    def find(self, *identities: Identity) -> list[_T]:
        """
        The values that share a name with one of *identities*, by their numbers.
        """
        found: dict[int, _T] = {}
        for identity in identities:
            for name in (identity.worker, identity.pid):
                if name is not None:
                    found |= self._named.get(name, {})
        return [found[number] for number in sorted(found)]
