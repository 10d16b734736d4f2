"""What an input is, by its first bytes and never by its name, and its content: decompressed, as UTF-8.

Memory is bounded whatever the decompressed size. Text may change its encoding: on Windows ``>`` writes UTF-16
in one shell and ASCII in another, and ``>>`` appends either to the other.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any, Literal, Protocol

from workerdiag.errors import UnreadableInputError, error_text
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.vocabulary import Stream
from workerdiag.values import frozen
from workerdiag.wire import BOX_MAGIC

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


def decoded_blocks(name: str, file: Readable) -> Iterator[bytes]:
    """Yield the content of a file in blocks, decompressed, and as UTF-8 if it has a byte order mark.

    Raises UnreadableInputError for broken data and what is neither text nor of a kind that `sniff` knows, once
    what could be read has been yielded; ImportError without the package that decompresses it.
    """
    blocks = _unpack(name, _PeekableFile(file))
    first = next(blocks, b"")
    if len(first) < MAGIC_BYTES:  # a pipe may give byte by byte
        first += next(blocks, b"")
    if encoding := next((encoding for bom, encoding in _BOMS if first.startswith(bom)), None):
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
        (_GZIP, "gzip", _gunzip),
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
        why = f"corrupt or truncated {kind} data: {error_text(problem)}"
        remedy = "copy or download it again, or decompress it by hand"
        raise UnreadableInputError(name, why, remedy) from problem


def _gunzip(file: _PeekableFile) -> Iterator[bytes]:
    fed: Any = SimpleNamespace(read=lambda size: file.read(min(size, _FEED_BYTES)))
    with gzip.GzipFile(fileobj=fed, mode="rb") as unpacked:
        while block := unpacked.read1(BLOCK_BYTES):
            yield block


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
    if first[257:262] == b"ustar":
        raise UnreadableInputError(name, "looks binary (a tar archive)", "unpack it and give the files in it")
    head = first[: 64 * 1024]
    # A log truncated while a process writes to it begins with one long run of NULs: that is text.
    runs = len(re.findall(rb"\x00+", head))
    text = head.replace(b"\0", b"")
    odd = runs + len(text) - len(text.translate(None, _CONTROL))
    if head and odd > (max(2, 0.02 * len(text)) if text else 0):  # a tenth of random bytes are odd
        raise UnreadableInputError(name, "looks binary", "give the log itself, as text")


_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: This many ASCII bytes in a row are not UTF-16 of any language; with a NUL after each they are not ASCII.
_ASCII = re.compile(rb"[\t\n\r -~]{48,}")
_WIDE = re.compile(rb"(?:[\t\n\r -~]\0{1,3}){24,}")


def reencoded(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield text with a byte order mark as UTF-8; once ASCII was appended, only ASCII is kept."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    is_mixed = False
    for block in blocks:
        if not is_mixed and (ascii_at := _ASCII.search(block)):
            is_mixed = True
            yield decoder.decode(block[: ascii_at.start()]).encode("utf-8", errors="replace")
            block = block[ascii_at.start() :]  # noqa: PLW2901  the rest of it
        if is_mixed:
            yield block.replace(b"\0", b"")
        else:
            yield decoder.decode(block).encode("utf-8", errors="replace")
    if not is_mixed:
        yield decoder.decode(b"", final=True).encode("utf-8", errors="replace")


def narrowed(block: bytes) -> bytes:
    """Return 8-bit text with appended UTF-16 converted to ASCII."""
    if b"\0" not in block:
        return block
    return _WIDE.sub(lambda wide: wide[0].replace(b"\0", b""), block)


#: Any text; a zip archive, which may be a death bundle; a black box; the flight recorder's records.
InputKind = Literal["text", "bundle", "box", "records"]
#: Number of first bytes that identify a black box or a zip archive.
MAGIC_BYTES = len(BOX_MAGIC)
#: Maximum sizes of a death bundle and of a black box (docs/black-box.md).
MAX_BUNDLE_BYTES, MAX_BOX_BYTES = 32 * 2**20, 4 * 2**20
#: Number of first bytes that show whether JSON is the flight recorder's.
_HEAD_BYTES = 16 * 1024


def sniff(head: bytes) -> InputKind:
    """Return the kind of an input whose decompressed content begins with *head*."""
    if head.startswith(b"PK\x03\x04"):
        return "bundle"
    if head.startswith(BOX_MAGIC):
        return "box"
    if not head.lstrip().startswith(b"{"):
        return "text"
    from workerdiag.sources.recorder.records import is_record_file

    return "records" if is_record_file(head[:_HEAD_BYTES]) else "text"


def sniff_blocks(blocks: Iterator[bytes]) -> tuple[InputKind, Iterator[bytes]]:
    """Return the kind of an input, and all its non-empty blocks."""
    head = b""
    for block in blocks:
        head += block
        if head and (not head.lstrip().startswith(b"{") or b"\n" in head or len(head) >= _HEAD_BYTES):
            break
    return sniff(head), (each for each in chain([head], blocks) if each)


def read_at_most(blocks: Iterator[bytes], most_bytes: int) -> bytes:
    """Return the whole input, or nothing if it is larger than *most_bytes*."""
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > most_bytes:
            return b""
    return bytes(data)


class Readable(Protocol):
    """The part of a file's interface that reading needs."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most *size* bytes; none at the end."""


@frozen(kw_only=True)
class LogHandle:
    """One unopened log."""

    #: Path, URL or other name under which a person finds it again, without passwords.
    origin: str
    #: Yields its content in blocks, text as UTF-8. Raises what reading raises, and `UnreadableInputError`.
    blocks: Callable[[], Iterator[bytes]]
    #: Equal for two handles of the same log; None for a log that cannot be given twice.
    key: str | None = None
    stream: Stream | None = None
    identity: Identity = NO_IDENTITY
    #: Returns faulthandler's output next to a black box; empty without any.
    fault: Callable[[], bytes] = bytes
