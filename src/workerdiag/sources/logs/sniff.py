"""
What an input is, by its first bytes and never by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

from workerdiag.wire.constants import BOX_MAGIC

#: Text of any kind; a zip archive, which may be a death bundle; a black box; the flight recorder's records.
InputKind = Literal["text", "bundle", "box", "records"]

#: The first bytes that tell a black box or a zip archive.
MAGIC_BYTES = len(BOX_MAGIC)
#: No death bundle is larger, and no black box (docs/black-box.md).
MAX_BUNDLE_BYTES, MAX_BOX_BYTES = 32 * 2**20, 4 * 2**20
#: The first bytes that tell whether JSON is the flight recorder's.
_HEAD_BYTES = 16 * 1024
_ZIP_MAGIC = b"PK\x03\x04"


def sniff(head: bytes) -> InputKind:
    """
    The kind of an input that begins with *head*, after decompression.
    """
    if head.startswith(_ZIP_MAGIC):
        return "bundle"
    if head.startswith(BOX_MAGIC):
        return "box"
    if not head.lstrip().startswith(b"{"):
        return "text"
    from workerdiag.sources.recorder.record_lines import is_record_file

    return "records" if is_record_file(head[:_HEAD_BYTES]) else "text"


def sniff_blocks(blocks: Iterator[bytes]) -> tuple[InputKind, Iterator[bytes]]:
    """
    The kind of an input, and its blocks from the first on, without empty ones.
    """
    head = b""
    for block in blocks:
        head += block
        if head and (not head.lstrip().startswith(b"{") or b"\n" in head or len(head) >= _HEAD_BYTES):
            break
    return sniff(head), (each for each in chain([head], blocks) if each)


def read_at_most(blocks: Iterator[bytes], most_bytes: int) -> bytes:
    """
    All of an input; nothing if it is larger than that.
    """
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > most_bytes:
            return b""
    return bytes(data)
