"""Workers that are killed in the middle of writing their black box: what the box says afterwards must be true.

    python benchmarks/box_kill.py [--tries 10000] [--seed 1] [--json]

Each try forks a child that writes as fast as it can, kills it within two milliseconds, and compares
the box with what the child noted elsewhere before and after each call. All that is written is made
from its own number, so that a mixture of two writes shows.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import re
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from attrs import frozen
from rows import Row, publish

from workerdiag.recorder.box.reader import MISSING_PIECE, read_box
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.wire.black_box import BlackBox

THREADS = 3
LONGEST_S = 0.002
#: What the child notes of each thread, each a 64-bit number stored in one step.
BEGINNING, BEGUN, ENDING, ENDED = range(4)


def pattern(thread: int, number: int, most: int = 190) -> str:
    """Text from which its own numbers can be read and checked to the last character."""
    stem = f"{thread}:{number}:"
    return stem + f"{crc32(stem.encode()):08x}" * ((most - len(stem)) * (number % 7 + 1) // 56)


def numbers(text: str, most: int = 190) -> tuple[int, int]:
    """Thread and number of such a text.

    Raises:
        AssertionError: It was never written so.
    """
    found = re.match(r"(\d+):(\d+):", text)
    assert found, text
    thread, number = int(found[1]), int(found[2])
    assert text == pattern(thread, number, most), text
    return thread, number


def write_forever(writer: BoxWriter, thread: int, progress: memoryview) -> None:
    """Write to all parts of the box, and note beside it how far that is."""
    number, at = 0, thread * 4
    while True:
        number += 1
        key = pattern(thread, number)
        progress[at + BEGINNING] = number
        writer.started(thread, key, thread + 1, f"thread-{thread}")
        progress[at + BEGUN] = number
        if number % 4 == 0:
            writer.line(pattern(thread, number, 900).encode())
            writer.sample(process_rss_bytes=number, managed_bytes=number * 3, thread_count=number * 5)
            writer.lag(number / 4, number / 8)
            writer.stage("closing", pattern(thread, number))
            writer.identify(worker=pattern(thread, number))
        progress[at + ENDING] = number
        writer.finished(thread, f"ok-{number}")
        progress[at + ENDED] = number


def child(folder: Path, threads: int, progress: memoryview, ready: int) -> None:
    """A worker with one or several threads; never returns."""
    try:
        writer = BoxWriter.create(folder, slots=THREADS)
        for thread in range(1, threads):
            threading.Thread(target=write_forever, args=(writer, thread, progress), daemon=True).start()
        os.write(ready, b".")
        write_forever(writer, 0, progress)
    except BaseException:  # noqa: BLE001  nothing of the parent's may run in the child
        traceback.print_exc()
    finally:
        os._exit(3)


@frozen(kw_only=True)
class Death:
    """One try."""

    box: BlackBox
    #: By thread: `BEGINNING`, `BEGUN`, `ENDING`, `ENDED`.
    progress: list[list[int]]
    pid: int


def kill_child(folder: Path, threads: int, wait_s: float) -> Death:
    """The box of a child that was killed after *wait_s* seconds of writing."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    progress = memoryview(memory).cast("Q")
    read, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(folder, threads, progress, ready)
    os.close(ready)
    os.read(read, 1)
    os.close(read)
    time.sleep(wait_s)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the child failed by itself"
    (path,) = folder.glob(f"*-{pid}-*.box")
    box = read_box(path)
    path.unlink()
    return Death(box=box, progress=[list(progress[at * 4 : at * 4 + 4]) for at in range(threads)], pid=pid)


def check(death: Death) -> None:
    """Compare a box with what is known of its writer.

    Raises:
        AssertionError: It says something that was not so.
    """
    box, threads = death.box, len(death.progress)
    assert box.identity["pid"] == str(death.pid)
    if said := box.identity.get("worker"):
        numbers(said)
    if box.close_reason:
        numbers(box.close_reason)
    for each in box.unreadable_parts:  # pairs are never torn; of rings, what each thread was writing
        assert each.region in ("finished", "samples", "lags", "lines"), each
    assert sum(each.unreadable_count for each in box.unreadable_parts) <= threads
    check_tasks(box, death.progress)
    for sample in box.samples:
        number = sample.process_rss_bytes
        assert number
        assert (sample.managed_bytes, sample.thread_count) == (number * 3, number * 5)
    assert all(each.gil_contention is not None and each.loop_s == each.gil_contention * 2 for each in box.lags)
    lines = box.last_output.splitlines()
    whole = [each for each in lines if MISSING_PIECE.decode() not in each]
    for line in whole:
        numbers(line, 900)
    # One thread has incomplete lines at both ends of the ring only. One that waits for the GIL within a
    # line, while others go through the whole ring, may also have its pieces overwritten.
    assert threads > 1 or len(lines) - len(whole) <= 2


def check_tasks(box: BlackBox, progress: list[list[int]]) -> None:
    """What ran and what ended, thread by thread."""
    running = {each.slot: each for each in box.running_tasks}
    assert len(running) == len(box.running_tasks)
    for thread, (beginning, begun, ending, ended) in enumerate(progress):
        if task := running.pop(thread, None):
            slot, number = numbers(task.key)
            assert (slot, task.thread_id, task.thread_name) == (thread, thread + 1, f"thread-{thread}")
            assert number in {beginning, begun}, (number, progress)
            assert number > ended, (number, progress)
        else:
            assert ending >= begun, progress  # it had at least begun to say that the task ended
        tasks = [numbers(each.key) for each in box.finished_tasks if each.slot == thread]
        ends = [number for _, number in tasks]
        assert all(slot == thread for slot, _ in tasks)
        assert all(each.outcome == f"ok-{number}" for each, number in zip(slot_of(box, thread), ends, strict=True))
        assert ends == sorted(set(ends))
        assert not ends or ends[-1] <= ending
        if len(progress) == 1 and ended:  # several write over what one of them has just written
            assert ends == list(range(ends[0], ends[-1] + 1))
            assert ends[-1] >= ended, (ends[-1], progress)
    assert not running


def slot_of(box: BlackBox, thread: int) -> Iterator[object]:
    """The finished tasks of one thread."""
    return (each for each in box.finished_tasks if each.slot == thread)


def rows(tries: int, seed: int) -> Iterator[Row]:
    """How many of the boxes told the truth, and how many were hit while a cell was half written."""
    chance = random.Random(seed)
    right = torn = 0
    with tempfile.TemporaryDirectory() as folder:
        for nth in range(tries):
            try:
                death = kill_child(Path(folder), THREADS if nth % 4 == 3 else 1, chance.uniform(0, LONGEST_S))
                check(death)
            except Exception:  # noqa: BLE001  whatever it is, it counts
                traceback.print_exc()
                continue
            right += 1
            torn += bool(death.box.unreadable_parts)
    yield Row(
        what=f"black boxes of {tries} killed workers that tell the truth",
        measured=right,
        unit="",
        goal=tries,
        at_least=True,
    )
    yield Row(what="of them hit in the middle of a cell of a ring", measured=torn, unit="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    publish(rows(wanted.tries, wanted.seed))
