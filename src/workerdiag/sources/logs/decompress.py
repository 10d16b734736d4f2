"""Decompresses files, converts text to UTF-8, and checks that it is text.

The first bytes of a file tell its kind, never its name. Memory is bounded whatever the decompressed size.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from workerdiag.errors import UnreadableInputError, error_text
from workerdiag.sources.logs.encodings import encoding_of, narrowed, reencoded
from workerdiag.sources.logs.input_kinds import MAGIC_BYTES, Readable, sniff

#: Bytes read at once, and the maximum size of a decompressed block.
BLOCK_BYTES = 1024 * 1024
#: Bytes given to a decompressor at once; a call that meets damage loses what it decompressed before.
_FEED_BYTES = 16 * 1024
#: The ``zstandard`` package has no limit on its output. This many bytes become at most 16 MiB: a block of
#: 128 KiB takes at least four bytes (RFC 8878, section 3.1.1.2).
_ZSTD_FEED_BYTES = 512
#: Memory for decompression: a window of ``zstd --long`` (128 MiB), or a dictionary of ``xz -9`` (64 MiB).
_WINDOW_LOG = 27
_XZ_MEMORY_BYTES = 96 * 2**20

_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00"

#: Control bytes that do not occur in logs; ``\b``, tab, line ends, form feed and escape do.
_CONTROL = bytes({*range(1, 32), 127} - set(b"\b\t\n\r\f\x1b"))
#: Text has at most this share of them, or of single NULs. A tenth of random bytes are such.
_MAX_CONTROL = 0.02
_SAMPLED_BYTES = 64 * 1024


def decoded_blocks(name: str, file: Readable) -> Iterator[bytes]:
    """Yield the content of a file in blocks, decompressed, and as UTF-8 if it has a byte order mark.

    Raises:
        UnreadableInputError: The compressed data is broken, or the file holds neither text nor
            a kind that `sniff` knows. What could be read has been yielded.
        ImportError: The package that decompresses it is not installed.
        OSError: Reading the file failed.
    """
    blocks = _unpack(name, _PeekableFile(file))
    first = next(blocks, b"")
    if len(first) < MAGIC_BYTES:  # a pipe may give byte by byte
        first += next(blocks, b"")
    if encoding := encoding_of(first):
        yield from reencoded(chain([first], blocks), encoding)
        return
    first = first.removeprefix(codecs.BOM_UTF8)
    if sniff(first) in ("bundle", "box"):
        yield first
        yield from blocks
        return
    first = narrowed(first)
    _check_text(name, first)
    yield first
    yield from map(narrowed, blocks)


class _PeekableFile:
    """A file whose first bytes can be read in advance."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.head = b""
        while len(self.head) < len(_XZ) and (more := file.read(BLOCK_BYTES)):
            self.head += more

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        if self.head:
            first, self.head = self.head[:size], self.head[size:]
            return first
        return self._file.read(BLOCK_BYTES if size < 0 else size) or b""


def _unpack(name: str, file: _PeekableFile) -> Iterator[bytes]:
    kinds: tuple[tuple[bytes, str, Callable[[_PeekableFile], Iterator[bytes]]], ...] = (
        (_GZIP, "gzip", lambda file: _decompress(file, _Gunzip)),
        (_BZIP2, "bzip2", lambda file: _decompress(file, bz2.BZ2Decompressor)),
        (_XZ, "xz", lambda file: _decompress(file, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES))),
        (_ZSTD, "zstd", _unzstd),
    )
    for magic, kind, unpack in kinds:
        if file.head.startswith(magic):
            yield from _translate_errors(name, kind, unpack(file))
            return
    while block := file.read():
        yield block


def _translate_errors(name: str, kind: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks; convert errors in the compressed data, and let those in reading the file pass."""
    try:
        yield from blocks
    except ImportError:
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        why = f"broken or cut off {kind} data: {error_text(problem)}"
        raise UnreadableInputError(name, why, "copy or download it again, or unpack it by hand") from problem


class _Gunzip:
    """A gzip decompressor with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # with gzip's header and checks

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._unpacker.decompress(self._unpacker.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def needs_input(self) -> bool:
        return not self.eof and not self._unpacker.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data


def _decompress(file: _PeekableFile, new: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the decompressed streams of a file; *new* makes a decompressor like `bz2.BZ2Decompressor`."""
    unpacker, data, ended = new(), file.read(_FEED_BYTES), False
    while True:
        block = unpacker.decompress(data, BLOCK_BYTES)
        if block:
            yield block
        data = b""
        if unpacker.eof:  # another stream may follow, after padding
            data = unpacker.unused_data.lstrip(b"\0") or file.read(_FEED_BYTES).lstrip(b"\0")
            if not data:
                return
            unpacker = new()
        elif unpacker.needs_input:
            data = file.read(_FEED_BYTES)
            if ended and not block:
                raise EOFError("the data ends before its end mark")
            ended = not data  # the decompressor may still hold output


def _unzstd(file: _PeekableFile) -> Iterator[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        yield from _unzstd_by_package(file)
        return
    options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    yield from _decompress(file, lambda: zstd.ZstdDecompressor(options=options))


def _unzstd_by_package(file: _PeekableFile) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as problem:
        raise ImportError("pip install 'workerdiag[zstd]'", name="zstandard") from problem
    unpackers = zstandard.ZstdDecompressor(max_window_size=2**_WINDOW_LOG)
    unpacker, data = unpackers.decompressobj(), memoryview(b"")
    while data := data or memoryview(file.read(_FEED_BYTES)):
        if unpacker.eof:  # another frame follows
            unpacker = unpackers.decompressobj()
        fed = data[:_ZSTD_FEED_BYTES]
        block = unpacker.decompress(fed)
        for at in range(0, len(block), BLOCK_BYTES):
            yield block[at : at + BLOCK_BYTES]
        unused = unpacker.unused_data if unpacker.eof else b""
        data = data[len(fed) - len(unused) :]
    if not unpacker.eof:
        raise EOFError("the data ends in the middle of a frame")


def _check_text(name: str, first: bytes) -> None:
    if kind := _archive_kind(first):
        raise UnreadableInputError(name, f"looks binary ({kind})", "unpack it and give the files in it")
    head = first[:_SAMPLED_BYTES]
    # A log truncated while a process writes to it begins with one long run of NULs: that is text.
    runs = len(re.findall(rb"\x00+", head))
    text = head.replace(b"\0", b"")
    odd = runs + len(text) - len(text.translate(None, _CONTROL))
    if head and odd > (max(2, _MAX_CONTROL * len(text)) if text else 0):
        raise UnreadableInputError(name, "looks binary", "give the log itself, as text")


def _archive_kind(first: bytes) -> str:
    return "a tar archive" if first[257:262] == b"ustar" else ""
