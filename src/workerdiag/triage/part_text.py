"""Read the text of one part: a range of a file, or all of a file that cannot be read from the middle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from workerdiag.errors import UnreadableInputError
from workerdiag.sources.logs.formats import (
    BLOCK_BYTES,
    InputKind,
    Readable,
    decoded_blocks,
    read_at_most,
    sniff_blocks,
)
from workerdiag.sources.logs.inputs import MOST_FAULT_BYTES, FileSystem
from workerdiag.triage.evidence_file import MOST_BYTES, EvidenceFile, NotALogError, check_size
from workerdiag.triage.parts import Part

#: Bytes per request: a request to a store takes as long as reading a few hundred KiB.
_REQUEST_BYTES: Final = 4 * 2**20
#: The first bytes of a file that show whether it can be read from the middle.
_HEAD_BYTES = 64 * 1024


class PartText:
    """Reads the text of one part.

    Args:
        part: The bytes to read.
        storage_options: Options for fsspec.
        overlap: Bytes before and after a range that are read with it.
    """

    def __init__(self, part: Part, storage_options: Mapping[str, object], *, overlap: int) -> None:
        self._part = part
        self._options = storage_options
        self._overlap = overlap
        #: Number of bytes read from the file.
        self.read_bytes = 0
        #: Whether the first part of the file reads all of it, because it cannot be read from the middle.
        self.is_read_elsewhere = False
        #: The content of a file that is not text, once it is read.
        self.evidence_file: EvidenceFile | None = None

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of text with their offsets. An empty block marks the end of the part; overlap follows.

        Raises:
            NotALogError: The file holds neither text nor a container.
            Exception: Reading failed, with any exception of the store; what was read before has been yielded.
        """
        from fsspec.core import url_to_fs

        system, path = url_to_fs(self._part.file.place, **self._options)
        part = self._part
        if part.end_byte is None:
            yield from self._whole(system, path)
        elif self._is_plain(system, path):
            yield from self._range(system, path)
        elif part.first_byte:
            self.is_read_elsewhere = True
        else:
            yield from self._whole(system, path)

    def _is_plain(self, system: FileSystem, path: str) -> bool:
        """Whether the file is plain text, neither packed nor a container."""
        head = system.cat_file(path, start=0, end=_HEAD_BYTES)
        self.read_bytes += len(head) if self._part.first_byte else 0
        kind, blocks = _sniffed(self._part.file.url, _Bytes(head))
        return kind == "text" and next(blocks, b"")[:_HEAD_BYTES] == head

    def _range(self, system: FileSystem, path: str) -> Iterator[tuple[int, bytes]]:
        first, end = self._part.first_byte, self._part.end_byte
        assert end is not None  # the caller checked
        size = self._part.file.size_bytes or end
        yield from self._requests(system, path, max(0, first - self._overlap), end)
        if end < size:
            yield end, b""
            yield from self._requests(system, path, end, min(size, end + self._overlap))

    def _requests(self, system: FileSystem, path: str, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        while at < end:
            data = system.cat_file(path, start=at, end=min(end, at + _REQUEST_BYTES))
            if not data:
                raise EOFError(f"the file ends at byte {at:,}, before it did when it was listed")
            self.read_bytes += len(data)
            yield at, data
            at += len(data)

    def _whole(self, system: FileSystem, path: str) -> Iterator[tuple[int, bytes]]:
        place = 0
        with system.open(path, "rb", block_size=_REQUEST_BYTES) as file:
            kind, blocks = _sniffed(self._part.file.url, _Counted(file, self))
            if kind != "text":
                data = read_at_most(blocks, MOST_BYTES[kind])
                check_size(kind, self._part.file.url, data)
                fault = _fault_beside(system, path) if kind == "box" else b""
                self.evidence_file = EvidenceFile(kind, self._part.file.url, data, fault)
                return
            for block in blocks:
                yield place, block
                place += len(block)


def _fault_beside(system: FileSystem, path: str) -> bytes:
    """Return the faulthandler dump that accompanies a black box; usually there is none."""
    with suppress(Exception):
        return bytes(system.cat_file(f"{path}.fault", start=0, end=MOST_FAULT_BYTES))
    return b""


def _sniffed(url: str, file: Readable) -> tuple[InputKind, Iterator[bytes]]:
    try:
        return sniff_blocks(decoded_blocks(url, file))
    except UnreadableInputError as problem:
        if problem.why.startswith("looks binary"):
            raise NotALogError(problem.why) from problem
        raise


class _Bytes:
    """A file-like object over the first bytes of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int, /) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        return data


class _Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, file: Any, counter: PartText) -> None:
        self._file = file
        self._counter = counter

    def read(self, size: int, /) -> bytes:
        data = bytes(self._file.read(min(size, BLOCK_BYTES)))
        self._counter.read_bytes += len(data)
        return data
