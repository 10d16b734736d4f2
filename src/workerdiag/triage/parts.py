"""Find the files behind the given URLs, and cut them into parts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from workerdiag.errors import describe_error, utf8_safe
from workerdiag.redaction.secrets import redact_text
from workerdiag.sources.logs.inputs import is_companion, naming_packages, url_without_secrets
from workerdiag.triage.rows import InputRow

MIB: Final = 2**20
#: Bytes that one task reads, if the file can be cut.
PART_BYTES: Final = 256 * MIB
#: Parts begin at a multiple of this. It is a multiple of the tiles in which the matcher reads text without
#: headers.
ALIGNMENT: Final = 64 * 1024
#: A rest that is smaller than a full part divided by this is read with the part before it.
_SMALL_REST = 8
#: Names of packed files, which cannot be read from the middle.
_PACKED = re.compile(r"\.(?:gz|tgz|bz2|xz|zst|zstd|zip|Z|lz4)$", re.IGNORECASE)
_GLOB = re.compile(r"[*?\[]")
#: Keys under which stores report the tag of a file's content, and the time of its last change.
_TAGS = ("ETag", "etag", "e_tag", "md5Hash", "content_md5")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


@frozen(kw_only=True)
class LogFile:
    """One file, with the data that shows whether it has changed."""

    #: The path or URL to open, which may contain a password.
    place: str = field(repr=False)
    #: The path or URL to show, without secrets.
    url: str
    etag: str | None = None
    size_bytes: int | None = None
    modified_at: float | None = None

    @property
    def is_packed(self) -> bool:
        """Whether its name says that it is packed."""
        return _PACKED.search(self.place) is not None


@frozen(kw_only=True)
class Part:
    """Bytes of a file that one task reads."""

    file: LogFile
    first_byte: int = 0
    #: The byte after its last byte; None: the part ends with the file.
    end_byte: int | None = None

    def row(self, *, reason: str = "", **values: Any) -> InputRow:
        """Return its row of the manifest, with its status. Errors of stores may quote secrets, rows do not."""
        return InputRow(
            url=self.file.url,
            etag=self.file.etag,
            size_bytes=self.file.size_bytes,
            modified_at=self.file.modified_at,
            first_byte=self.first_byte,
            end_byte=self.end_byte,
            reason=redact_text(reason),
            **values,
        )

    @property
    def expected_bytes(self) -> int:
        """Number of bytes to read, as far as it is known."""
        end = self.file.size_bytes if self.end_byte is None else self.end_byte
        return max(0, (end or 0) - self.first_byte)


@frozen(kw_only=True)
class Unlisted:
    """A path or URL behind which no file was found."""

    url: str
    reason: str

    def row(self, knowledge: str) -> InputRow:
        """Return its row of the manifest."""
        return InputRow(url=self.url, status="failed", reason=redact_text(self.reason), knowledge=knowledge)


def find_files(
    given: Iterable[str | os.PathLike[str]], storage_options: Mapping[str, object]
) -> Iterator[LogFile | Unlisted]:
    """Yield each file behind paths, folders (with all below them), patterns and URLs once."""
    seen: set[str] = set()
    for each in given:
        place = os.fspath(each)
        try:
            found = list(_files_at(place, storage_options))
        except Exception as problem:  # noqa: BLE001  fsspec and its backends raise anything
            yield Unlisted(url=public_url(place), reason=reason_of(problem))
            continue
        if not found:
            yield Unlisted(url=public_url(place), reason="no file is there: check the path or pattern")
        for file in found:
            if file.place not in seen:
                seen.add(file.place)
                yield file


def reason_of(problem: BaseException) -> str:
    """Return in one line why a file could not be read."""
    if isinstance(problem, FileNotFoundError):
        return "there is no such file: check the path or pattern"
    if isinstance(problem, ImportError):
        return f"a package that is needed to open it is not installed: {problem}"
    if isinstance(problem, PermissionError):
        return f"reading it is forbidden: {describe_error(problem)}"[:300]
    return describe_error(problem, most_chars=300).replace("\n", " ")


def cut(file: LogFile, part_bytes: int) -> Iterator[Part]:
    """Yield the parts of a file: one, unless it is larger than *part_bytes* and can be read from the middle."""
    size = file.size_bytes
    step = max(ALIGNMENT, part_bytes // ALIGNMENT * ALIGNMENT)
    if size is None or size <= step or file.is_packed:
        yield Part(file=file)
        return
    starts = range(0, size - step // _SMALL_REST, step)  # a small rest belongs to the part before it
    for first in starts:
        yield Part(file=file, first_byte=first, end_byte=size if first == starts[-1] else first + step)


def public_url(place: str) -> str:
    """Return a path or URL as tables show it: without secrets, local paths in full."""
    if "://" not in place:
        return utf8_safe(str(Path(place).expanduser().absolute()))
    return utf8_safe(url_without_secrets(place))


def _files_at(place: str, storage_options: Mapping[str, object]) -> Iterator[LogFile]:
    from fsspec.core import url_to_fs

    if "://" not in place:
        place = str(Path(place).expanduser().absolute())
    with naming_packages(place):
        system, path = url_to_fs(place, **storage_options)
    is_http = place.startswith(("http://", "https://"))  # HTTP has no folders; "?" may be anywhere
    if not is_http and _GLOB.search(path) and not system.exists(path):
        found = system.glob(path, detail=True)
    else:
        info = system.info(path)
        found = {path: info} if info.get("type") != "directory" else system.find(path, detail=True)
    for each in _sorted_files(found):
        name = place if is_http else system.unstrip_protocol(each["name"])
        name = name.removeprefix("file://") if "://" not in place else name
        yield _log_file(name, each)


def _sorted_files(found: Mapping[str, Any]) -> Sequence[Mapping[str, object]]:
    files = [each for each in found.values() if each.get("type") != "directory"]
    if len(files) > 1:
        files = [each for each in files if not is_companion(str(each["name"]))]
    return sorted(files, key=lambda each: str(each["name"]))


def _log_file(place: str, info: Mapping[str, object]) -> LogFile:
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    size = info.get("size")
    return LogFile(
        place=place,
        url=public_url(place),
        etag=None if tag is None else str(tag),
        size_bytes=size if isinstance(size, int) else None,
        modified_at=next((_timestamp(info[name]) for name in _TIMES if info.get(name)), None),
    )


def _timestamp(value: object) -> float | None:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, str):
        try:
            return _timestamp(datetime.fromisoformat(value))
        except ValueError:
            return None
    return round(float(value), 6) if isinstance(value, int | float) else None
