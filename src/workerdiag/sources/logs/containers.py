"""
Files that are no logs and may still tell of deaths: zip archives, and black boxes of the flight recorder.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from workerdiag.errors import UnreadableInputError
from workerdiag.wire.constants import BOX_MAGIC

_ZIP = b"PK\x03\x04"
_IS_ZIP = ("looks binary (a zip archive)", "unpack it and give the files in it")
#: Larger than any death bundle.
_MAX_ZIP_BYTES = 32 * 2**20
#: How a black box begins, and the most that one has (docs/black-box.md).
_IS_BOX = ("looks binary (a black box of a worker)", "workerdiag blackbox prints it")
_MAX_BOX_BYTES = 4 * 2**20
#: So many bytes tell what a file is.
HEAD_BYTES = len(BOX_MAGIC)


@define(eq=False)
class ZipArchiveError(UnreadableInputError):
    """
    What is in a file is a zip archive, which may be a death bundle.
    """

    #: All of it; empty if it is too large for a bundle.
    data: bytes = field(default=b"", repr=False)


@define(eq=False)
class BlackBoxFileError(UnreadableInputError):
    """
    What is in a file is a black box of the flight recorder.
    """

    #: All of it; empty if it is too large for one.
    data: bytes = field(default=b"", repr=False)


def check_container(name: str, first: bytes, blocks: Iterator[bytes]) -> None:
    """
    Look whether a file with these first bytes, and these blocks behind them, is text as far as is known here.

    Raises:
        ZipArchiveError: It is a zip archive.
        BlackBoxFileError: It is a black box.
    """
    if first.startswith(_ZIP):
        raise ZipArchiveError(name, *_IS_ZIP, data=_read_all(first, blocks, _MAX_ZIP_BYTES))
    if is_black_box(first):
        raise BlackBoxFileError(name, *_IS_BOX, data=_read_all(first, blocks, _MAX_BOX_BYTES))


def is_black_box(head: bytes) -> bool:
    """
    Whether a file that begins so is a black box.
    """
    return head.startswith(BOX_MAGIC)


def _read_all(first: bytes, blocks: Iterator[bytes], most_bytes: int) -> bytes:
    """
    All that there is; nothing if it is more than that.
    """
    data = bytearray(first)
    for block in blocks:
        data += block
        if len(data) > most_bytes:
            return b""
    return bytes(data)
