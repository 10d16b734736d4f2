"""What a black box costs: noting one task, and reading the worst box that anybody could make."""

from __future__ import annotations

import tempfile
import time
import timeit
from collections.abc import Iterator
from pathlib import Path

from rows import Row, publish

from workerdiag.recorder.box import layout
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.box.writer import BoxWriter


def rows() -> Iterator[Row]:
    """Tasks may last a microsecond; reading may take seconds, not minutes."""
    yield Row(what="noting a task in the black box", measured=noting_us(), unit="us", goal=50)
    what = f"reading {layout.MAX_BYTES >> 20} MiB of damaged cells, processor time"
    yield Row(what=what, measured=reading_s(), unit="s", goal=10)


def noting_us() -> float:
    """Microseconds for the beginning and the end of one task, the best of five rounds."""
    with tempfile.TemporaryDirectory() as folder:
        writer = BoxWriter.create(Path(folder), slots=4, worker="tcp://10.0.0.4:34937", name="alice")

        def task() -> None:
            writer.started(0, "chunk-0123456789abcdef", 1, "Dask-Default-Threads-1")
            writer.finished(0, "ok")

        taken_s = min(timeit.repeat(task, number=2000, repeat=5)) / 2000
        writer.close(remove=True)
    return taken_s * 1e6


def reading_s() -> float:
    """Seconds of processor time for the largest box of nothing but cells that are damaged."""
    header = layout.pack_header(layout.MAX_BYTES, layout.MAX_SLOTS, 0.0).ljust(layout.HEADER_BYTES, b"\0")
    began = time.process_time()
    box = read_box(header + b"\xff" * (layout.MAX_BYTES * 2))
    taken_s = time.process_time() - began
    assert box.unreadable_parts, "not one cell was looked at"
    return taken_s


if __name__ == "__main__":
    publish(rows())
