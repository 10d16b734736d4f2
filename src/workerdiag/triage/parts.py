"""The files behind URLs, cut into parts: the text of one part, or its death bundle, black box or death records.

A part is a range of a file, or all of a file that cannot be read from the middle.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, assert_never

from workerdiag.errors import UnreadableInputError, describe_error, utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.redaction.secrets import redact_text
from workerdiag.sources.logs.file_kinds import (
    BLOCK_BYTES,
    MAX_BOX_BYTES,
    MAX_BUNDLE_BYTES,
    InputKind,
    Readable,
    decoded_blocks,
    read_at_most,
    sniff_blocks,
)
from workerdiag.sources.logs.inputs import MOST_FAULT_BYTES, is_companion, naming_packages, url_without_secrets
from workerdiag.sources.machine import to_timestamp
from workerdiag.triage.tables import InputRow
from workerdiag.values import define, field, frozen

MIB: Final = 2**20
#: Bytes that one task reads, if the file can be cut.
PART_BYTES: Final = 256 * MIB
#: Parts begin at a multiple of this, a multiple of the tiles in which the matcher reads text without headers.
ALIGNMENT: Final = 64 * 1024
#: Names of packed files, which cannot be read from the middle.
_PACKED = re.compile(r"\.(?:gz|tgz|bz2|xz|zst|zstd|zip|Z|lz4)$", re.IGNORECASE)
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
        """Whether its name ends as that of a packed file."""
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


def find_files(
    given: Iterable[str | os.PathLike[str]], storage_options: Mapping[str, object], knowledge: str
) -> Iterator[LogFile | InputRow]:
    """Yield each file behind paths, folders (with all below them), patterns and URLs once; a row for no file."""
    seen: set[str] = set()
    for each in given:
        place, found = os.fspath(each), list[LogFile]()
        with guarded("listing files") as listing:
            found = list(_files_at(place, storage_options))
        if not found:
            problem = listing.problem
            why = "no file found: check the path or pattern" if problem is None else reason_of(problem)
            yield InputRow(url=public_url(place), status="failed", reason=redact_text(why), knowledge=knowledge)
        new = {file.place: file for file in found if file.place not in seen}
        seen |= new.keys()
        yield from new.values()


def reason_of(problem: BaseException) -> str:
    """Return in one line why a file could not be read."""
    if isinstance(problem, FileNotFoundError):
        return "no such file: check the path or pattern"
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
    starts = range(0, size - step // 8, step)  # a small rest belongs to the part before it
    for first in starts:
        yield Part(file=file, first_byte=first, end_byte=size if first == starts[-1] else first + step)


def public_url(place: str) -> str:
    """Return a path or URL as tables show it: without secrets, local paths in full."""
    return utf8_safe(url_without_secrets(place) if "://" in place else str(Path(place).expanduser().absolute()))


def _files_at(place: str, storage_options: Mapping[str, object]) -> Iterator[LogFile]:
    from fsspec.core import url_to_fs

    if "://" not in place:
        place = str(Path(place).expanduser().absolute())
    with naming_packages(place):
        system, path = url_to_fs(place, **storage_options)
    is_http = place.startswith(("http://", "https://"))  # HTTP has no folders; "?" may be anywhere
    if not is_http and re.search(r"[*?\[]", path) and not system.exists(path):
        found = system.glob(path, detail=True)
    else:
        info = system.info(path)
        found = {path: info} if info.get("type") != "directory" else system.find(path, detail=True)
    files = [each for each in found.values() if each.get("type") != "directory"]
    for each in sorted(files, key=lambda each: str(each["name"])):
        if len(files) == 1 or not is_companion(str(each["name"])):
            name = place if is_http else system.unstrip_protocol(each["name"])
            yield _log_file(name.removeprefix("file://") if "://" not in place else name, each)


def _log_file(place: str, info: Mapping[str, object]) -> LogFile:
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    size = info.get("size")
    when = next((to_timestamp(info[name]) for name in _TIMES if info.get(name)), None)
    return LogFile(
        place=place,
        url=public_url(place),
        etag=None if tag is None else str(tag),
        size_bytes=size if isinstance(size, int) else None,
        modified_at=None if when is None else round(when, 6),
    )


#: Bytes per request: a request to a store takes as long as reading a few hundred KiB.
_REQUEST_BYTES: Final = 4 * 2**20
#: The first bytes of a file that show whether it can be read from the middle.
_HEAD_BYTES = 64 * 1024


@define(eq=False)
class PartText:
    """Reads the text of one part, with *overlap* bytes before and after a range."""

    _part: Part
    _options: Mapping[str, object]
    _overlap: int = field(kw_only=True)
    #: Number of bytes read from the file.
    read_bytes: int = field(default=0, init=False)
    #: Whether the first part of the file reads all of it, because it cannot be read from the middle.
    is_read_elsewhere: bool = field(default=False, init=False)
    #: The evidence in a file that is not text, once it is read.
    pieces: list[Evidence] | None = field(default=None, init=False)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of text with their offsets. An empty block marks the end of the part; overlap follows.

        Raises NotALogError, or any exception of the store or of `evidence_in`, after what was read before.
        """
        from fsspec.core import url_to_fs

        system, path = url_to_fs(self._part.file.place, **self._options)
        part = self._part
        if part.end_byte is not None and self._is_plain(system, path):
            yield from self._range(system, path, part.end_byte)
        elif part.first_byte:
            self.is_read_elsewhere = True
        else:
            yield from self._whole(system, path)

    def _is_plain(self, system: Any, path: str) -> bool:
        """Whether the file is plain text, neither packed nor a container."""
        head = system.cat_file(path, start=0, end=_HEAD_BYTES)
        self.read_bytes += len(head) if self._part.first_byte else 0
        kind, blocks = _sniffed(self._part.file.url, io.BytesIO(head))
        return kind == "text" and next(blocks, b"")[:_HEAD_BYTES] == head

    def _range(self, system: Any, path: str, end: int) -> Iterator[tuple[int, bytes]]:
        size = self._part.file.size_bytes or end
        yield from self._requests(system, path, max(0, self._part.first_byte - self._overlap), end)
        if end < size:
            yield end, b""
            yield from self._requests(system, path, end, min(size, end + self._overlap))

    def _requests(self, system: Any, path: str, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        while at < end:
            data = system.cat_file(path, start=at, end=min(end, at + _REQUEST_BYTES))
            if not data:
                raise EOFError(f"the file ends at byte {at:,}, before it did when it was listed")
            self.read_bytes += len(data)
            yield at, data
            at += len(data)

    def _whole(self, system: Any, path: str) -> Iterator[tuple[int, bytes]]:
        place = 0
        with system.open(path, "rb", block_size=_REQUEST_BYTES) as file:
            kind, blocks = _sniffed(self._part.file.url, _Counted(file, self))
            if kind != "text":
                data = read_at_most(blocks, MOST_BYTES[kind])
                if not data:
                    size = f"it has more than {MOST_BYTES[kind] // 2**20} MiB"
                    raise UnreadableInputError(self._part.file.url, size, "split it")
                fault = b""
                if kind == "box":
                    with suppress(Exception):  # mostly no dump of faulthandler is beside it
                        fault = bytes(system.cat_file(f"{path}.fault", start=0, end=MOST_FAULT_BYTES))
                self.pieces = list(evidence_in(kind, self._part.file.url, data, fault))
                return
            for block in blocks:
                yield place, block
                place += len(block)


def _sniffed(url: str, file: Readable) -> tuple[InputKind, Iterator[bytes]]:
    try:
        return sniff_blocks(decoded_blocks(url, file))
    except UnreadableInputError as problem:
        if problem.why.startswith("looks binary"):
            raise NotALogError(problem.why) from problem
        raise


class _Counted:
    def __init__(self, file: Any, counter: PartText) -> None:
        self._file = file
        self._counter = counter

    def read(self, size: int, /) -> bytes:
        data = bytes(self._file.read(min(size, BLOCK_BYTES)))
        self._counter.read_bytes += len(data)
        return data


EvidenceFileKind = Literal["bundle", "box", "records"]
#: Larger files are not read. A scheduler begins a new file of records after 8 MiB.
MOST_BYTES: Final[Mapping[EvidenceFileKind, int]] = {
    "bundle": MAX_BUNDLE_BYTES,
    "box": MAX_BOX_BYTES,
    "records": 128 * 2**20,
}
#: This many messages are compared at a time: messages of one death are near each other.
_TOGETHER = 500


class NotALogError(Exception):
    """The file holds no evidence."""


def evidence_in(kind: EvidenceFileKind, url: str, data: bytes, fault: bytes = b"") -> Iterator[Evidence]:
    """Yield the evidence in an input that is not text, none of a worker that may still run.

    *fault* is the faulthandler dump of a black box. A `Gap` with the *url* says what is missing.
    Raises NotALogError of a zip archive of others, BundleError and BadBoxError of what is damaged.
    """
    from workerdiag.bundle.bundle_file import bundle_evidence
    from workerdiag.recorder.delivery import death_message
    from workerdiag.sources.recorder.death_evidence import death_evidence
    from workerdiag.sources.recorder.records import RecordParser
    from workerdiag.wire.recorded_death import RecordedDeath, merge_messages

    match kind:
        case "bundle":
            pieces = bundle_evidence(url, data)
            if pieces is None:
                raise NotALogError("it is a zip archive but not a death bundle")
            yield from pieces
        case "box":
            report = death_message(url, data, fault)
            if report is not None:
                yield from death_evidence([RecordedDeath.of(report)])
        case "records":
            lines = RecordParser()
            records = [*lines.take(data), *lines.end()]
            messages = (each.message for each in records)
            while batch := list(islice(messages, _TOGETHER)):
                yield from death_evidence(merge_messages(batch))
            if (broken := lines.gap(url)) is not None:
                yield broken
        case _:
            assert_never(kind)


def failure_in(pieces: Iterator[Evidence] | list[Evidence], url: str) -> str:
    """Return what could not be read of the input; empty if it was read to its end."""
    return next((each.detail for each in pieces if isinstance(each, Gap) and each.source == url), "")
