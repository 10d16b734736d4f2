"""
Stage one: where in a block of bytes does any of many fixed texts stand?

Hyperscan does it in one pass over the bytes. Where its wheel is missing, ``bytes.find``
does: the same places, much slower.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from workerdiag.matching import database

if TYPE_CHECKING:
    import hyperscan


class LiteralScan:
    """
    A set of literals to look for, ignoring case. Safe to share between threads.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: tuple[bytes, ...] = tuple(each.lower().encode() for each in dict.fromkeys(texts))
        self._database: hyperscan.Database | None = None
        self._lock = threading.Lock()

    def hits(self, block: bytes) -> list[tuple[int, int]]:
        """
        Pairs of (offset of the last byte found, index of the text), in no promised order.

        Args:
            block: The bytes to look through, less than 4 GiB.
        """
        if not self.texts:
            return []
        return self._scanned(block) if database.available() else self._found_one_by_one(block)

    def _found_one_by_one(self, block: bytes) -> list[tuple[int, int]]:
        lowered = block.lower()
        hits = []
        for index, text in enumerate(self.texts):
            at = lowered.find(text)
            while at >= 0:
                hits.append((at + len(text) - 1, index))
                at = lowered.find(text, at + 1)
        return hits

    def _scanned(self, block: bytes) -> list[tuple[int, int]]:
        hits: list[tuple[int, int]] = []

        def found(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            hits.append((end - 1, index))

        with self._lock:  # scratch space is not shared between threads
            if self._database is None:
                self._database = database.database(self.texts)
            self._database.scan(block, match_event_handler=found)
        return hits
