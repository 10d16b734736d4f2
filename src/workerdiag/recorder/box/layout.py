"""Format 1 of a black box, and the files next to a box. docs/black-box.md describes it for other programs.

A box is a header, written once, and regions of equal cells, whose places follow from the header. Each cell
carries a checksum and the number of its write, so that a reader recognises one that is being written. Every worker
loads this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from workerdiag.wire import BOX_MAGIC

if TYPE_CHECKING:
    from workerdiag.wire.black_box import RegionName

#: A reader refuses another number.
FORMAT = 1

DEFAULT_BYTES = 256 * 1024
MAX_BYTES = 4 * 2**20
MAX_SLOTS = 256

#: Magic; checksum of all that follows within the header; format, slots, bytes of the file, when it was made (epoch
#: seconds).
HEADER = Struct("<8sIHHId")
HEADER_BYTES = 64

#: Checksum (CRC-32 of what follows: the rest of the head, and the payload).
CELL_SUM = Struct("<I")
#: Bytes of the payload, number of the write (from 1).
CELL_HEAD = Struct("<HQ")
CELL_OVERHEAD = CELL_SUM.size + CELL_HEAD.size

KEY_BYTES = 200
NAME_BYTES = 48
OUTCOME_BYTES = 32
STATE_BYTES = 224
IDENTITY_BYTES = 4096 - CELL_OVERHEAD

#: What stands in a cell of each region, in this order, as a list of msgpack; a later release may add to the end.
#: A slot of "running" that is free has nothing.
FIELDS: Mapping[RegionName, tuple[str, ...]] = {
    "identity": ("texts",),
    "state": ("at", "stage", "reason"),
    "running": ("key", "is_clipped", "thread_id", "thread_name", "started_at"),
    "finished": ("slot", "key", "is_clipped", "started_at", "ended_at", "duration_s", "outcome", "number"),
    "samples": (
        "at",
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
    ),
    "lags": ("at", "loop_s", "gil_contention"),
    "objects": ("at", "rss_bytes", "limit_bytes", "is_complete", "objects"),
    "lines": ("at", "number", "piece", "is_last", "data"),
}
SAMPLE_NUMBERS = FIELDS["samples"][1:]

#: Samples and lags come once a second; this many are the last minute, unless memory rose.
SAMPLES = 64

#: Of the largest objects.
CENSUS_BYTES = 2048 - CELL_OVERHEAD

LINE_CELL_BYTES = 256
#: Bytes that msgpack takes at most for a number, and for the beginning of a text or a list.
_NUMBER, _TEXT = 9, 3
LINE_PIECE_BYTES = LINE_CELL_BYTES - CELL_OVERHEAD - 4 * _NUMBER - 2 * _TEXT


class Region(NamedTuple):
    """Equal cells, one behind the other. Cell number *n* was last written with a number that leaves *n*."""

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
    ("state", _cell_bytes(_NUMBER + 3 * _TEXT + STATE_BYTES), 2),
    ("samples", _cell_bytes(_TEXT + _NUMBER * len(FIELDS["samples"])), SAMPLES),
    ("lags", _cell_bytes(_TEXT + 3 * _NUMBER), SAMPLES),
    ("objects", _cell_bytes(CENSUS_BYTES), 4),
)
_RUNNING_CELL = _cell_bytes(3 * _NUMBER + 3 * _TEXT + KEY_BYTES + NAME_BYTES)
_FINISHED_CELL = _cell_bytes(6 * _NUMBER + 3 * _TEXT + KEY_BYTES + OUTCOME_BYTES)


def plan_regions(size_bytes: int, slots: int) -> tuple[int, dict[str, Region]]:
    """Bytes of the file, and its regions by name, for *slots* threads.

    What the fixed regions and the slots leave is shared by finished tasks and lines. The file gets
    larger than asked where it would hold too little to be of use, and never larger than 4 MiB.
    """
    fixed = (*_FIXED, ("running", _RUNNING_CELL, 2 * slots))
    used_bytes = HEADER_BYTES + sum(cell * cells for _, cell, cells in fixed)
    least = used_bytes + 16 * (_FINISHED_CELL + LINE_CELL_BYTES)
    size_bytes = min(max(size_bytes, least), MAX_BYTES)
    half = (size_bytes - used_bytes) // 2
    growing = (
        ("finished", _FINISHED_CELL, half // _FINISHED_CELL),
        ("lines", LINE_CELL_BYTES, half // LINE_CELL_BYTES),
    )
    regions, offset = {}, HEADER_BYTES
    for name, cell, cells in (*fixed, *growing):
        regions[name] = Region(offset, cell, cells)
        offset = regions[name].end
    return size_bytes, regions


def pack_header(size_bytes: int, slots: int, created_at: float) -> bytes:
    """The header of a box, as it is written at its beginning."""
    following = HEADER.pack(BOX_MAGIC, 0, FORMAT, slots, size_bytes, created_at)[12:]
    return BOX_MAGIC + crc32(following).to_bytes(4, "little") + following


def unpack_header(data: bytes) -> tuple[float, dict[str, Region]]:
    """Return when the box was created, and its regions; raises ValueError if the header is not understood."""
    try:
        magic, checksum, number, slots, size_bytes, created_at = HEADER.unpack_from(data)
    except error:
        raise ValueError("it is too short") from None
    if magic != BOX_MAGIC:
        raise ValueError("it does not begin as one")
    if crc32(data[12 : HEADER.size]) != checksum or not isfinite(created_at):
        raise ValueError("its header is damaged")
    if number != FORMAT:
        raise ValueError(f"it has format {number}, and this release reads {FORMAT}")
    return created_at, plan_regions(size_bytes, min(slots, MAX_SLOTS))[1]


def fault_path(path: Path) -> Path:
    """The file next to a box to which `faulthandler` writes."""
    return path.with_name(path.name + ".fault")


def message_path(box: Path) -> Path:
    """The file next to a box that keeps an undelivered report."""
    return box.with_name(box.name + ".death")
