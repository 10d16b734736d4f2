"""Opens inputs: the caller's open files, standard input, and URLs with the package that each needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from workerdiag.errors import UnreadableInputError
from workerdiag.sources.logs.input_kinds import Readable

#: URL scheme -> fsspec's extra that installs the package (fsspec's ``pyproject.toml``).
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
    """Standard input, read as data arrives.

    It avoids ``sys.stdin.buffer`` if possible: a thread that waits there holds a lock that the interpreter
    needs to exit.
    """

    def read(self, size: int) -> bytes:
        """Return at most *size* bytes; none at the end."""
        try:
            return os.read(sys.stdin.fileno(), size)
        except (OSError, ValueError, AttributeError):  # replaced, as by pytest or click's test runner
            return OpenFile(sys.stdin).read(size)


class OpenFile:
    """The caller's open file, text or binary, read from its position and left open."""

    def __init__(self, file: Any) -> None:
        self._file: Readable = file
        self._read = getattr(file, "read1", file.read)

    def read(self, size: int) -> bytes:
        """Return at most *size* bytes or characters, as UTF-8; none at the end."""
        data: bytes | str | None = self._read(size)
        return encode_text(data) if isinstance(data, str) else bytes(data or b"")


def encode_text(text: str) -> bytes:
    """Encode text as UTF-8; undecodable bytes, read as surrogates, are restored."""
    try:
        return text.encode("utf-8", errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", errors="replace")


@contextmanager
def naming_packages(url: str) -> Iterator[None]:
    """Convert the errors of a missing package for *url*.

    Raises:
        ImportError: The package is missing; the message says what to install.
        UnreadableInputError: fsspec does not know the URL's scheme.
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
