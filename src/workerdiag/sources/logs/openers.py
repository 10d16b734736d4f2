"""
How inputs are opened: open files of the caller, standard input, and which package opens a URL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from workerdiag.errors import UnreadableInputError
from workerdiag.sources.logs.input_kinds import Readable

#: How URLs begin -> the extra of fsspec that brings the package (its ``pyproject.toml``).
_EXTRAS: Mapping[str, str] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "abfs",
    "abfs": "abfs",
    "abfss": "abfs",
    "http": "http",
    "https": "http",
    "hdfs": "hdfs",
    "sftp": "sftp",
    "ssh": "ssh",
    "smb": "smb",
    "oci": "oci",
}


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


@contextmanager
def naming_packages(url: str) -> Iterator[None]:
    """
    Say what to install where the package for *url* is missing, or that there is none.

    Raises:
        ImportError: With what to install.
        UnreadableInputError: fsspec has no package for what the URL begins with.
    """
    protocol = url.partition("://")[0]
    try:
        yield
    except ImportError as problem:
        extra = _EXTRAS.get(protocol)
        raise ImportError(f"pip install 'fsspec[{extra}]'" if extra else str(problem)) from problem
    except ValueError as problem:
        from fsspec.registry import known_implementations, registry

        if protocol in known_implementations or protocol in registry:
            raise
        raise UnreadableInputError(
            f"{protocol}://", "fsspec knows no such URLs", "they begin as s3://, gs:// or https://"
        ) from problem
