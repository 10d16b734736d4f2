"""
What an input is, by its first bytes and never by its name; and what is read of each kind.
"""

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

#: Text of any kind; a zip archive, which may be a death bundle; a black box; the flight recorder's records.
InputKind = Literal["text", "bundle", "box", "records"]
#: The first bytes that tell a black box or a zip archive.
MAGIC_BYTES = len(BOX_MAGIC)
#: No death bundle is larger, and no black box (docs/black-box.md).
MAX_BUNDLE_BYTES, MAX_BOX_BYTES = 32 * 2**20, 4 * 2**20
#: The first bytes that tell whether JSON is the flight recorder's.
_HEAD_BYTES = 16 * 1024
_ZIP_MAGIC = b"PK\x03\x04"
#: Name and bytes of a zip archive to the evidence in it; None: it is no death bundle.
Unbundle = Callable[[str, bytes], Sequence[Evidence] | None]
#: Place and bytes of a black box, and what faulthandler wrote beside it, to the report of its worker's
#: death; None: the worker may still run.
Unbox = Callable[[str, bytes, bytes], "DeathReport | None"]


def sniff(head: bytes) -> InputKind:
    """
    The kind of an input that begins with *head*, after decompression.
    """
    if head.startswith(_ZIP_MAGIC):
        return "bundle"
    if head.startswith(BOX_MAGIC):
        return "box"
    if not head.lstrip().startswith(b"{"):
        return "text"
    from workerdiag.sources.recorder.record_lines import is_record_file

    return "records" if is_record_file(head[:_HEAD_BYTES]) else "text"


def sniff_blocks(blocks: Iterator[bytes]) -> tuple[InputKind, Iterator[bytes]]:
    """
    The kind of an input, and its blocks from the first on, without empty ones.
    """
    head = b""
    for block in blocks:
        head += block
        if head and (not head.lstrip().startswith(b"{") or b"\n" in head or len(head) >= _HEAD_BYTES):
            break
    return sniff(head), (each for each in chain([head], blocks) if each)


def read_at_most(blocks: Iterator[bytes], most_bytes: int) -> bytes:
    """
    All of an input; nothing if it is larger than that.
    """
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > most_bytes:
            return b""
    return bytes(data)


class Readable(Protocol):
    """
    What is needed of a file: its next bytes, none at its end.
    """

    def read(self, size: int, /) -> bytes | None:
        """
        At most *size* bytes.
        """


@frozen(kw_only=True)
class LogHandle:
    """
    One log, not opened yet.
    """

    #: Path, URL or other name under which a person would find it again; without passwords.
    origin: str
    #: Its content, text as UTF-8, block by block. Raises what reading raises, and `UnreadableInputError`.
    blocks: Callable[[], Iterator[bytes]]
    #: What tells that two are the same log; None: no two are.
    key: str | None = None
    stream: Stream | None = None
    identity: Identity = NO_IDENTITY
    #: Of a black box, what faulthandler wrote beside it; empty if nothing.
    fault: Callable[[], bytes] = bytes


class ContainerOpeners(NamedTuple):
    """
    What makes something of files that are no logs; None: nothing does.
    """

    unbundle: Unbundle | None = None
    unbox: Unbox | None = None


class LogBlock(NamedTuple):
    """
    The next bytes of a log.
    """

    log: LogHandle
    data: bytes


class BundlePiece(NamedTuple):
    """
    A piece of evidence out of a bundle.
    """

    piece: Evidence


class RecordPiece(NamedTuple):
    """
    A record of a death.
    """

    record: ParsedRecord


ReaderPiece = LogBlock | BundlePiece | RecordPiece | Gap | Inspected
