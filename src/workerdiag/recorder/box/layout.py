"""Format 1 of a black box, little-endian, and the files next to a box. docs/black-box.md has it byte by byte.

A box is a header, written once, and regions of equal cells. Each cell carries a checksum and the number of its
write, so a reader recognises a cell that is being written. Standard library only: every worker loads this.
"""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from workerdiag.wire import BOX_MAGIC

#: A reader refuses another major number; a new minor one only adds regions, or to the end of payloads.
MAJOR, MINOR = 1, 1

DEFAULT_BYTES = 256 * 1024
MAX_BYTES = 4 * 2**20
MAX_SLOTS = 256
MAX_REGIONS = 32

#: Magic, checksum of all that follows within the header, bytes of the header.
HEADER_HEAD = Struct("<8sII")
#: Major and minor format, number of regions, bytes of the file, when it was made (epoch seconds).
HEADER_BODY = Struct("<HHIQd")
#: Name, offset in the file, bytes of a cell, number of cells.
HEADER_REGION = Struct("<8sIII")
HEADER_BYTES = 1024

#: Checksum (CRC-32 of what follows: the rest of the head, and the payload).
CELL_SUM = Struct("<I")
#: Bytes of the payload, flags, number of the write (from 1).
CELL_HEAD = Struct("<HHQ")
CELL_OVERHEAD = CELL_SUM.size + CELL_HEAD.size

#: Flags of a cell: a task is running; its key is longer than what is here; the line has more pieces.
RUNNING, CLIPPED, CONTINUED = 1, 2, 4

#: Since when, by the wall clock and the monotonic one (seconds); thread id; bytes of key and thread name.
EXECUTING = Struct("<ddQHH")
#: Begun and ended (epoch seconds), seconds it took; number of the write that said it began; slot;
#: bytes of key and of outcome.
FINISHED = Struct("<dddQHHH")
#: When, by the wall clock and by the monotonic one.
MOMENT = Struct("<dd")
#: When, by both clocks; seconds the event loop was late; contention of the GIL, 0 to 1 (NaN: not known).
LAG = Struct("<dddd")
#: When; number of the line; which piece of it, from 0.
LINE = Struct("<dQI")

KEY_BYTES = 200
NAME_BYTES = 48
OUTCOME_BYTES = 32
STATE_BYTES = 224
IDENTITY_BYTES = 4096 - CELL_OVERHEAD

#: Numbers of a sample in the order they are written, each a signed 64-bit integer.
SAMPLE_NUMBERS = (
    "process_rss_bytes",
    "managed_bytes",
    "spilled_bytes",
    "memory_limit_bytes",
    "cgroup_current_bytes",
    "cgroup_limit_bytes",
    "cgroup_oom_kills",
    "host_available_bytes",
    "open_files",
    "open_files_limit",
    "thread_count",
    "process_data_bytes",
)
#: What stands for a number that is not known; a reader takes any below 0 for it, as all are counts and sizes.
UNKNOWN = -(2**63)
NUMBER = Struct("<q")

#: Samples and lags come once a second; this many are the last minute, unless memory rose.
SAMPLES = 64
#: Of the largest objects, as JSON.
CENSUS_BYTES = 2048 - CELL_OVERHEAD
_CENSUSES = 4
LINE_CELL_BYTES = 256
LINE_PIECE_BYTES = LINE_CELL_BYTES - CELL_OVERHEAD - LINE.size
_MIN_CELLS = 16


class Region(NamedTuple):
    """Equal cells, one behind the other. Cell number *n* was last written with a number that leaves *n*."""

    name: str
    offset: int
    cell_bytes: int
    cells: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.cell_bytes * self.cells


def _cell_bytes(payload_bytes: int) -> int:
    """Bytes of a cell for such a payload: whole lines of a processor's cache."""
    return -(-(CELL_OVERHEAD + payload_bytes) // 64) * 64


#: Name, bytes of a cell, number of cells. "identity", "state" and each slot of "running" are pairs, of
#: which the older is written over, so that one of the two is always whole. The others are rings.
_FIXED = (
    ("identity", _cell_bytes(IDENTITY_BYTES), 2),
    ("state", _cell_bytes(MOMENT.size + STATE_BYTES), 2),
    ("samples", _cell_bytes(MOMENT.size + NUMBER.size * len(SAMPLE_NUMBERS)), SAMPLES),
    ("lags", _cell_bytes(LAG.size), SAMPLES),
    ("objects", _cell_bytes(CENSUS_BYTES), _CENSUSES),
)
_EXECUTING_CELL = _cell_bytes(EXECUTING.size + KEY_BYTES + NAME_BYTES)
_FINISHED_CELL = _cell_bytes(FINISHED.size + KEY_BYTES + OUTCOME_BYTES)


def plan_regions(size_bytes: int, slots: int) -> tuple[int, dict[str, Region]]:
    """Bytes of the file, and its regions by name, for *slots* threads.

    What the fixed regions and the slots leave is shared by finished tasks and lines. The file gets
    larger than asked where it would hold too little to be of use, and never larger than 4 MiB.
    """
    fixed = (*_FIXED, ("running", _EXECUTING_CELL, 2 * slots))
    used_bytes = HEADER_BYTES + sum(cell * cells for _, cell, cells in fixed)
    least = used_bytes + _MIN_CELLS * (_FINISHED_CELL + LINE_CELL_BYTES)
    size_bytes = min(max(size_bytes, least), MAX_BYTES)
    half = (size_bytes - used_bytes) // 2
    growing = (
        ("finished", _FINISHED_CELL, half // _FINISHED_CELL),
        ("lines", LINE_CELL_BYTES, half // LINE_CELL_BYTES),
    )
    regions, offset = {}, HEADER_BYTES
    for name, cell, cells in (*fixed, *growing):
        regions[name] = Region(name, offset, cell, cells)
        offset = regions[name].end
    return size_bytes, regions


def pack_header(size_bytes: int, regions: dict[str, Region], created_at: float) -> bytes:
    """The header of a box, as it is written at its beginning."""
    body = HEADER_BODY.pack(MAJOR, MINOR, len(regions), size_bytes, created_at)
    table = b"".join(
        HEADER_REGION.pack(each.name.encode(), each.offset, each.cell_bytes, each.cells)
        for each in regions.values()
    )
    size = HEADER_HEAD.size + len(body) + len(table)
    following = size.to_bytes(4, "little") + body + table
    return BOX_MAGIC + crc32(following).to_bytes(4, "little") + following


def unpack_header(data: bytes) -> tuple[float, dict[str, Region]]:
    """Return when the box was created, and its regions.

    Raises:
        ValueError: This release does not understand the header; the text says why.
    """
    try:
        magic, checksum, size = HEADER_HEAD.unpack_from(data)
        if magic != BOX_MAGIC:
            raise ValueError("it does not begin as one")
        if not HEADER_HEAD.size + HEADER_BODY.size <= size <= HEADER_BYTES or crc32(data[12:size]) != checksum:
            raise ValueError("its header is damaged")
        major, minor, count, _, created_at = HEADER_BODY.unpack_from(data, HEADER_HEAD.size)
        if major != MAJOR:
            raise ValueError(f"it has format {major}.{minor}, and this release reads {MAJOR}")
        if count > MAX_REGIONS or not isfinite(created_at):
            raise ValueError("its header is damaged")
        start = HEADER_HEAD.size + HEADER_BODY.size
        table = [HEADER_REGION.unpack_from(data[:size], start + each * HEADER_REGION.size) for each in range(count)]
    except error:
        raise ValueError("it is too short") from None
    regions = {name.rstrip(b"\0").decode("ascii", "replace"): rest for name, *rest in table}
    made = {name: Region(name, *rest) for name, rest in regions.items()}
    if (
        any(
            each.offset < HEADER_BYTES or each.cell_bytes < CELL_OVERHEAD or each.end > MAX_BYTES
            for each in made.values()
        )
        or sum(each.end - each.offset for each in made.values()) > MAX_BYTES
    ):
        raise ValueError("its header is damaged")
    return created_at, made


def fault_path(path: Path) -> Path:
    """The file next to a box to which `faulthandler` writes."""
    return path.with_name(path.name + ".fault")


def message_path(box: Path) -> Path:
    """The file next to a box that keeps an undelivered report."""
    return box.with_name(box.name + ".death")
