"""Detects the encoding of a text and converts it to UTF-8.

On Windows ``>`` writes UTF-16 in one shell and ASCII in another, and ``>>`` appends either to the other.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: This many ASCII bytes in a row are not UTF-16 of any language; with a NUL after each they are not ASCII.
_ASCII = re.compile(rb"[\t\n\r -~]{48,}")
_WIDE = re.compile(rb"(?:[\t\n\r -~]\0{1,3}){24,}")


def encoding_of(first: bytes) -> str | None:
    """Return the encoding that a byte order mark shows; None without one, and for UTF-8."""
    return next((encoding for bom, encoding in _BOMS if first.startswith(bom)), None)


def reencoded(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield text with a byte order mark as UTF-8; once ASCII was appended, only ASCII is kept."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    is_mixed = False
    for block in blocks:
        if not is_mixed and (ascii_at := _ASCII.search(block)):
            is_mixed = True
            yield decoder.decode(block[: ascii_at.start()]).encode("utf-8", errors="replace")
            block = block[ascii_at.start() :]  # noqa: PLW2901  the rest of it
        if is_mixed:
            yield block.replace(b"\0", b"")
        else:
            yield decoder.decode(block).encode("utf-8", errors="replace")
    if not is_mixed:
        yield decoder.decode(b"", final=True).encode("utf-8", errors="replace")


def narrowed(block: bytes) -> bytes:
    """Return 8-bit text with appended UTF-16 converted to ASCII."""
    if b"\0" not in block:
        return block
    return _WIDE.sub(lambda wide: wide[0].replace(b"\0", b""), block)
