"""Black boxes, whole and damaged so that their checksums still agree."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from struct import pack_into
from unittest.mock import patch
from zlib import crc32

from fuzz import corpus
from fuzz.scripts import Script
from workerdiag.recorder.box import writer
from workerdiag.recorder.box.layout import (
    CELL_HEAD,
    CELL_OVERHEAD,
    CELL_SUM,
    HEADER,
    Region,
    unpack_header,
)

#: Epoch seconds: a box that was written just now may belong to a worker that runs, and is not opened.
_LONG_AGO = 1_777_888_999.0
_STAGES = ((), ("closed", "retired"), ("closed", "SECRET\x1b[31m"), ("terminating", "memory 96%"))
_BITES = (*corpus.SECRETS, *corpus.HOSTILE, b"\xff" * 64, b"\0" * 300, b"\x7f\xf0\0\0\0\0\0\0" * 4)


@cache
def boxes() -> tuple[bytes, ...]:
    """Black boxes that were used for a while, of workers that were killed and that closed."""
    return tuple(map(_box, _STAGES))


def _box(stage: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder, patch.object(writer, "time", lambda: _LONG_AGO):
        box = writer.BoxWriter.create(Path(folder), size_bytes=2**14, slots=3, worker="tcp://10.0.0.4:34937")
        for number in range(50):
            box.started(number % 3, f"task-{number}", 1, "a")
            box.sample(process_rss_bytes=number * 2**20, memory_limit_bytes=2**26)
            box.lag(number / 10, number / 50)
            box.line(corpus.DEATH if number == 40 else b"line " * 20)
            if number % 2:
                box.finished(number % 3, "error")
        if stage:
            box.stage(*stage)
        content = box.path.read_bytes()
        box.close(remove=True)
    return content


def overwritten(box: bytes, script: Script) -> bytes:
    """The box with parts of its cells, or its header, overwritten and its checksums made anew."""
    data = bytearray(box)
    _, regions = unpack_header(box)
    for _ in range(1 + script.number() % 4):
        region = script.one_of(list(regions.values()))
        index = int(script.share() * (region.cells - 1))
        start = region.offset + index * region.cell_bytes
        at = start + CELL_SUM.size + int(script.share() ** 2 * (region.cell_bytes - CELL_SUM.size))
        bite = script.one_of(_BITES)[: region.cell_bytes] if script.number() % 2 else bytes([script.number()])
        data[at : at + len(bite)] = bite
        _seal(data, start, region)
    if not script.number() % 4:
        data[12 + int(script.share() * (HEADER.size - 13))] = script.number()
        pack_into("<I", data, 8, crc32(data[12 : HEADER.size]))
    return bytes(data)


def _seal(data: bytearray, start: int, region: Region) -> None:
    """Make the checksum of a cell agree with what is in it."""
    if start + CELL_OVERHEAD > len(data):
        return
    length, _ = CELL_HEAD.unpack_from(data, start + CELL_SUM.size)
    end = min(start + CELL_OVERHEAD + length, start + region.cell_bytes)
    CELL_SUM.pack_into(data, start, crc32(data[start + CELL_SUM.size : end]))
