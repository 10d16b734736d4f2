"""
Stage one: where in a block of bytes does any of many fixed texts stand?

Hyperscan does it in one pass over the bytes. For short blocks, and where its wheel is
missing, ``bytes.find`` does: slower per byte, but with nothing to compile first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

try:
    import hyperscan
except ImportError:  # no wheel for this platform
    hyperscan = None

#: Below this, finding text by text is over before hyperscan has compiled its database
#: (33 ms for 300 literals on the reference machine).
SMALL_BYTES = 512 * 1024


class LiteralScan:
    """
    A set of literals to look for, ignoring case. Safe to share between threads.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: tuple[bytes, ...] = tuple(each.lower().encode() for each in dict.fromkeys(texts))
        self._database: hyperscan.Database | None = None
        self._lock = threading.Lock()

    def hits(self, block: bytes, *, thorough: bool) -> list[tuple[int, int]]:
        """
        Pairs of (offset of the last byte found, index of the text), in no promised order.

        Args:
            block: The bytes to look through, less than 4 GiB.
            thorough: Much more text is coming: compiling for speed pays.
        """
        if hyperscan is None or not self.texts or not (thorough or self._database):
            return self._found_one_by_one(block)
        return self._scanned(block)

    def _found_one_by_one(self, block: bytes) -> list[tuple[int, int]]:
        lowered = block.lower()
        hits = []
        for index, text in enumerate(self.texts):
            at = lowered.find(text)
            while at >= 0:
                hits.append((at + len(text) - 1, index))
                at = lowered.find(text, at + len(text))
        return hits

    def _scanned(self, block: bytes) -> list[tuple[int, int]]:
        hits: list[tuple[int, int]] = []

        def found(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            hits.append((end - 1, index))

        with self._lock:  # scratch space is not shared between threads
            if self._database is None:
                self._database = _compiled(self.texts)
            self._database.scan(block, match_event_handler=found)
        return hits


def _compiled(texts: Sequence[bytes]) -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=list(texts),
        ids=list(range(len(texts))),
        elements=len(texts),
        flags=hyperscan.HS_FLAG_CASELESS,
        literal=True,
    )
    return database
