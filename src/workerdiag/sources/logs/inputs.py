"""Resolves the caller's inputs to logs, and opens them: paths, globs, folders, URLs, open files, text."""

from __future__ import annotations

import glob
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from workerdiag.errors import UnreadableInputError
from workerdiag.model.evidence import LogText
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.sources.logs.file_kinds import BLOCK_BYTES, LogHandle, Readable, decoded_blocks, sniff

LogInput = str | os.PathLike[str] | IO[str] | IO[bytes] | LogText

#: At most this many files of one folder or glob.
MAX_FILES = 1000
_GLOB = re.compile(r"[*?\[]")
#: Usual names of logs: worker.log.1.gz, slurm-12.out, job.e123, stderr, dmesg ...
_LOG_NAME = re.compile(
    r"(?:^|[._-])(?:logs?|out|err|stdout|stderr|output|console)(?:[._-]|\d|$)|\.txt(?:\.\w+)?$|\.[oe]\d+(?:\.\w+)?$"
    r"|^(?:dmesg|messages|syslog|journal)",
    re.IGNORECASE,
)
_LEVEL = rb"(?:INFO|WARN|ERROR|CRITICAL)"
_LOG_TEXT = re.compile(rb"distributed\.\w+.{0,20}" + _LEVEL + rb"|" + _LEVEL + rb".{0,20}distributed\.")
#: Files of the flight recorder (`workerdiag.recorder`: ``journal``, ``delivery``, ``box.directories``).
_RECORD_NAME = re.compile(r"^deaths\b.*\.jsonl(?:\.\w+)*$|\.box(?:\.death)?$")
_BATCH_NAME = re.compile(r"^deaths-.*-(\d{10,})-(\d{4,})\.jsonl$")
#: Suffixes of a black box's companions: faulthandler's output, and the nanny's undelivered report. Other
#: companions are not logs.
_FAULT, _DEATH = ".fault", ".death"
MOST_FAULT_BYTES = 128 * 1024
_COMPANION = re.compile(r"\.box\.(?!death$)")


def resolve_logs(given: LogInput, number: int) -> list[LogHandle]:
    """Return the logs that one input stands for; *number* counts the inputs of its kind, from 1.

    A folder stands for the files directly in it that look like logs, by name
    (``worker.log.1.gz``, ``slurm-12.out``, ``job.e123``, ``stderr``) or by lines of distributed
    at their beginning, and for the flight recorder's files, the newest records first.
    A pattern with ``*``, ``?`` or ``[`` stands for the files that it matches.
    Raises UnreadableInputError for what cannot be a log, and what the look-up raises.
    """
    if isinstance(given, LogText):
        return [_text_log(given, number)]
    if given in ("-", sys.stdin, getattr(sys.stdin, "buffer", None)):
        return [LogHandle(origin="<stdin>", key="-", blocks=lambda: decoded_blocks("<stdin>", Stdin()))]
    if isinstance(given, str | os.PathLike):
        place = os.fspath(given)
        return _url_logs(place) if "://" in place else _path_logs(place)
    if hasattr(given, "read"):
        name = getattr(given, "name", None)
        origin = name if isinstance(name, str) and name else f"<file {number}>"
        return [LogHandle(origin=origin, blocks=lambda: decoded_blocks(origin, OpenFile(given)))]
    why = f"is of type {type(given).__name__}"
    raise UnreadableInputError(repr(given)[:100], why, "give a path, a URL, an open file or a LogText")


def input_type(given: LogInput) -> str:
    """Return the name of an input's kind, for inputs without a name."""
    if isinstance(given, LogText):
        return "LogText"
    return "path" if isinstance(given, str | os.PathLike) else "file"


def input_name(given: object) -> str:
    """Return the name of an input before it is resolved."""
    if isinstance(given, str | Path):
        return url_without_secrets(str(given))[:300]
    name = given.name if isinstance(given, io.IOBase) and hasattr(given, "name") else None
    return name[:300] if isinstance(name, str) and name else f"<{type(given).__name__}>"


def is_companion(name: str) -> bool:
    """Whether a file of that name accompanies a black box, and so is not a log."""
    return _COMPANION.search(name) is not None


def url_without_secrets(place: str) -> str:
    """Return a URL without its password and query values: a signed URL is a credential."""
    if "://" not in place:
        return place
    try:
        parts = urlsplit(place)
    except ValueError:
        return place.partition("?")[0].rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    query = re.sub(r"=[^&]*", "=...", parts.query)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def _text_log(given: LogText, number: int) -> LogHandle:
    def blocks() -> Iterator[bytes]:
        for at in range(0, len(given.text), BLOCK_BYTES):
            yield encode_text(given.text[at : at + BLOCK_BYTES])

    identity = NO_IDENTITY
    if given.worker:
        is_address = "://" in given.worker
        identity = Identity(worker=given.worker) if is_address else Identity(name=given.worker)
    return LogHandle(origin=f"LogText {number}", blocks=blocks, stream=given.stream, identity=identity)


def _path_logs(place: str) -> list[LogHandle]:
    if "\n" in place:
        remedy = "wrap it: workerdiag.LogText(text)"
        raise UnreadableInputError(f"{place[:60]!r}...", "is text, not a path", remedy)
    place = os.path.expanduser(place)  # noqa: PTH111  a Path would drop what a glob needs
    if Path(place).is_dir():
        logs, others = files_of_folder(Path(place))
        if not logs and not others:
            raise FileNotFoundError("there is no file in that folder")
        if not logs:
            raise FileNotFoundError("no file in that folder looks like a log; give the paths of the files")
        return [_local_log(path) for path in logs]
    if _GLOB.search(place) and not os.path.lexists(place):
        found = (path for path in map(Path, glob.iglob(place, recursive=True)) if path.is_file())  # noqa: PTH207
        files = sorted(path for path, _ in zip(found, range(MAX_FILES), strict=False))
        if not files:
            raise FileNotFoundError("no file matches")
        return [_local_log(path) for path in files]
    death_message = Path(place + _DEATH)
    companions = [_local_log(death_message)] if place.endswith(".box") and death_message.is_file() else []
    return [_local_log(Path(place)), *companions]


def _local_log(path: Path) -> LogHandle:
    return _log(str(path), os.path.realpath(path), lambda suffix: Path(f"{path}{suffix}").open("rb", buffering=0))


def _remote_log(system: Any, path: str, place: str) -> LogHandle:
    return _log(url_without_secrets(place), place, lambda suffix: system.open(path + suffix, "rb"))


def _log(origin: str, key: str, opened: Callable[[str], Any]) -> LogHandle:
    """Return a log that *opened* opens, given a suffix: "" for the log itself, else of its companion."""

    def blocks() -> Iterator[bytes]:
        with opened("") as file:
            yield from decoded_blocks(origin, file)

    def fault() -> bytes:
        with suppress(Exception), opened(_FAULT) as file:  # it rarely exists
            return bytes(file.read(MOST_FAULT_BYTES))
        return b""

    return LogHandle(origin=origin, key=key, blocks=blocks, fault=fault)


def files_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder that are read as logs, and the others.

    Empty files count as logs only without any other: batch systems also create an output file for a job that
    writes nothing.
    """
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    files = sorted(files, key=lambda path: _sort_key(path.name))[:MAX_FILES]
    logs: list[Path] = []
    others: list[Path] = []
    for path in files:
        (logs if _is_named_like_a_log(path.name) or _has_log_lines(path) else others).append(path)
    written = [path for path in logs if path.stat().st_size]
    if not written:
        return logs, others
    return written, sorted({*logs, *others} - set(written))


def _sort_key(name: str) -> tuple[int, int, str]:
    """Sort by name, but batches of records by age, the newest first: there may not be time for all."""
    batch = _BATCH_NAME.search(name)
    return (-int(batch[1]), -int(batch[2]), name) if batch else (0, 0, name)


def _has_log_lines(path: Path) -> bool:
    """Whether a file begins like a log of Dask or a file of the flight recorder."""
    if is_companion(path.name):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(16 * 1024)
    except OSError:
        return False
    return sniff(head) in ("box", "records") or _LOG_TEXT.search(head) is not None


def _url_logs(place: str) -> list[LogHandle]:
    from fsspec.core import url_to_fs

    with naming_packages(place):
        system, path = url_to_fs(place)
    if place.startswith(("http://", "https://")):  # HTTP has no folders, and "?" may occur anywhere
        return [_remote_log(system, path, place)]
    if _GLOB.search(path):
        paths = sorted(system.glob(path))
        if not paths:
            raise FileNotFoundError("nothing matches")
    elif system.isdir(path):
        found = sorted(system.ls(path, detail=False), key=lambda each: _sort_key(_base_name(each)))
        paths = [each for each in found if _is_named_like_a_log(_base_name(each))]
        if not paths:
            raise FileNotFoundError("no file in that folder is named like a log; give the URLs of the files")
    else:
        return [_remote_log(system, path, place)]
    return [_remote_log(system, each, system.unstrip_protocol(each)) for each in paths[:MAX_FILES]]


def _is_named_like_a_log(name: str) -> bool:
    found = _LOG_NAME.search(name) or _RECORD_NAME.search(name)
    return bool(found) and not is_companion(name)


def _base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


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
    """Say what to install where the package for *url* is missing, or that fsspec does not know its scheme."""
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
        why, remedy = "fsspec does not know this kind of URL", "URLs begin with s3://, gs:// or https://"
        raise UnreadableInputError(f"{protocol}://", why, remedy) from problem
