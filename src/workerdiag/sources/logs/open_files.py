"""
Files that are open already: the caller's, and standard input.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from workerdiag.sources.logs.decompress import Readable


class Stdin:
    """
    Standard input, without waiting for more than there is.

    Not through ``sys.stdin.buffer`` where it can be helped: a thread that waits there holds a lock
    that the interpreter needs to end.
    """

    def read(self, size: int) -> bytes:
        """
        At most *size* bytes; none at the end.
        """
        try:
            return os.read(sys.stdin.fileno(), size)
        except (OSError, ValueError, AttributeError):  # replaced, as by pytest or click's test runner
            return OpenFile(sys.stdin).read(size)


class OpenFile:
    """
    An open file of the caller, text or binary, from where it stands; it stays open.
    """

    def __init__(self, file: Any) -> None:
        self._file: Readable = file
        self._read = getattr(file, "read1", file.read)

    def read(self, size: int) -> bytes:
        """
        At most *size* bytes or characters, as UTF-8; none at the end.
        """
        data: bytes | str | None = self._read(size)
        return encode_text(data) if isinstance(data, str) else bytes(data or b"")


def encode_text(text: str) -> bytes:
    """
    Text as UTF-8; bytes that were none when they were read are themselves again.
    """
    try:
        return text.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="replace")
