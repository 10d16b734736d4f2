"""Tells the kind of an input by its first bytes, never by its name, and has the types read from each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from attrs import frozen

from workerdiag.model.evidence import Evidence, Gap, Inspected
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.vocabulary import Stream
from workerdiag.wire.constants import BOX_MAGIC

if TYPE_CHECKING:
    from workerdiag.sources.recorder.record_lines import ParsedRecord
    from workerdiag.wire.messages import DeathReport

#: Any text; a zip archive, which may be a death bundle; a black box; the flight recorder's records.
InputKind = Literal["text", "bundle", "box", "records"]
#: Number of first bytes that identify a black box or a zip archive.
MAGIC_BYTES = len(BOX_MAGIC)
#: Maximum sizes of a death bundle and of a black box (docs/black-box.md).
MAX_BUNDLE_BYTES, MAX_BOX_BYTES = 32 * 2**20, 4 * 2**20
#: Number of first bytes that show whether JSON is the flight recorder's.
_HEAD_BYTES = 16 * 1024
_ZIP_MAGIC = b"PK\x03\x04"
#: Maps name and bytes of a zip archive to its evidence, or to None if it is not a death bundle.
Unbundle = Callable[[str, bytes], Sequence[Evidence] | None]
#: Maps place and bytes of a black box, and faulthandler's output, to the report of its worker's death, or to
#: None if the worker may still run.
Unbox = Callable[[str, bytes, bytes], "DeathReport | None"]


def sniff(head: bytes) -> InputKind:
    """Return the kind of an input whose decompressed content begins with *head*."""
    if head.startswith(_ZIP_MAGIC):
        return "bundle"
    if head.startswith(BOX_MAGIC):
        return "box"
    if not head.lstrip().startswith(b"{"):
        return "text"
    from workerdiag.sources.recorder.record_lines import is_record_file

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


class ContainerOpeners(NamedTuple):
    """Functions that read files other than logs; None for none."""

    unbundle: Unbundle | None = None
    unbox: Unbox | None = None


class LogBlock(NamedTuple):
    """The next bytes of a log."""

    log: LogHandle
    data: bytes


class BundlePiece(NamedTuple):
    """A piece of evidence from a bundle."""

    piece: Evidence


class RecordPiece(NamedTuple):
    """One death record."""

    record: ParsedRecord


ReaderPiece = LogBlock | BundlePiece | RecordPiece | Gap | Inspected
