"""
Which package opens a URL where fsspec says that one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from workerdiag.errors import UnreadableInputError

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
