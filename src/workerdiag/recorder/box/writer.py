"""Writes a black box: notes what a worker does, as it happens.

The file is created reserved, locked and named, or not at all, and mapped into memory: a note is a copy of some
bytes without a system call, which the kernel has even if the process is killed the next instant. Nothing waits for
a lock: each thread that runs tasks has its own slot, and `itertools.count` assigns the places in rings.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from threading import get_ident
from time import monotonic, time
from typing import TYPE_CHECKING
from zlib import crc32

from msgpack import Packer, packb

from workerdiag._version import __version__
from workerdiag.procfs_and_cgroups import call_in_children, process_identity
from workerdiag.recorder.box import layout
from workerdiag.recorder.box.directories import box_name, discard, preallocate_file

if TYPE_CHECKING:
    from workerdiag.wire.black_box import MissingPart, Stage

_PAIR = 2
#: Shared by threads: of texts and numbers alone it runs no Python code. Making one takes longer than packing.
_pack_task = Packer().pack
_pack_head, _pack_sum = layout.CELL_HEAD.pack, layout.CELL_SUM.pack
#: Of one call of `line`: what stays of its beginning and of its end when it is longer than both.
_LINE_HEAD_BYTES, _LINE_TAIL_BYTES = 2048, 6144
_LINE_GAP = b"\n[...]\n"
#: Of the name and of the value of a part of the identity.
_FIELD_BYTES = 512


class BoxWriter:
    """A black box that is being written; made by `BoxWriter.create`.

    All methods but `create` never raise for what the system does, and do nothing once the box is
    closed. A forked child of the worker has no box: what it would write is dropped.
    """

    def __init__(self, path: Path, memory: mmap.mmap, regions: dict[str, layout.Region]) -> None:
        #: Where the file lies.
        self.path = path
        self._memory = memory
        self._regions = regions
        self._identity: dict[str, str] = {}
        self._counts = {name: count(1) for name in regions}
        self._line_numbers = count(1)
        self._slots_offset, self._slot_cell_bytes, slot_cells = regions["running"]
        slots = slot_cells // _PAIR
        #: By slot: number of the last write, and of what runs the write number, key and beginning.
        self._writes = [0] * slots
        self._running: list[tuple[int, str, bool, float, float] | None] = [None] * slots

    @classmethod
    def create(
        cls, directory: Path | str, *, size_bytes: int = layout.DEFAULT_BYTES, slots: int = 16, **identity: str
    ) -> BoxWriter:
        """A new box of this process in *directory*, with room for *slots* threads (1 to 256), of at most 4 MiB.

        *identity* is added to what the process knows of itself. Raises OSError if the disk is full, read-only or of
        a kind that cannot keep room: nothing is left behind, and the worker runs without a box.
        """
        known = {**process_identity(), "workerdiag": __version__, **identity}
        slots = min(max(slots, 1), layout.MAX_SLOTS)
        size_bytes, regions = layout.plan_regions(size_bytes, slots)
        header = layout.pack_header(size_bytes, slots, time())
        path, memory = create_mapped_box(Path(directory), known, size_bytes, header)
        writer = cls(path, memory, regions)
        writer.identify(**known)
        call_in_children(writer.close)
        return writer

    @property
    def slots(self) -> int:
        """Return the number of threads with their own slot."""
        return len(self._running)

    def open_fault(self) -> io.FileIO:
        """A file for `faulthandler.enable`, which must be kept open as long as that is on; raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return io.FileIO(os.open(layout.fault_path(self.path), flags, 0o600), "wb")

    def identify(self, **changes: str) -> None:
        """Note who this is, or that it changed; of more than 4 kB of text the latest names are left out."""
        self._identity = {**self._identity, **changes}
        texts: dict[str, str] = {}
        for name, value in self._identity.items():
            longer = {**texts, _clip(name, _FIELD_BYTES): _clip(value, _FIELD_BYTES)}
            if len(packb((longer,))) <= layout.IDENTITY_BYTES:
                texts = longer
        self._note("identity", packb((texts,)))

    def stage(self, stage: Stage, reason: str = "") -> None:
        """Note what the worker is about to do, and why it closes."""
        self._note("state", packb((time(), stage, _clip(reason, layout.STATE_BYTES - len(stage)))))

    def lack(self, part: MissingPart, why: str) -> None:
        """Note that a part is not recorded, with the reason for a person."""
        parts = dict.fromkeys([*self._identity.get("missing", "").split(), part])
        notes = filter(None, (self._identity.get("missing_notes"), why))
        self.identify(missing=" ".join(parts), missing_notes="; ".join(notes))

    def started(self, slot: int, key: str, thread_id: int, thread_name: str) -> None:
        """Note that a task begins on a thread. Only one thread may use a slot."""
        since, since_monotonic = time(), monotonic()
        short = _clip(key, layout.KEY_BYTES)
        is_clipped = len(short) < len(key)
        try:
            number = self._writes[slot] + 1
            self._running[slot] = (number, short, is_clipped, since, since_monotonic)
        except IndexError:
            return self.missed()
        payload = _pack_task((short, is_clipped, thread_id, _clip(thread_name, layout.NAME_BYTES), since))
        return self._note_slot(slot, number, payload)

    def finished(self, slot: int, outcome: str) -> None:
        """Note that the task of a thread ended: ``ok``, ``error``, or any other word of at most 32 bytes."""
        if slot >= len(self._running) or (running := self._running[slot]) is None:
            return
        number, key, is_clipped, since, since_monotonic = running
        self._running[slot] = None
        took = monotonic() - since_monotonic
        # First that it ended, then that the slot is free: who reads in between sees the number in both.
        ended = (slot, key, is_clipped, since, time(), took, _clip(outcome, layout.OUTCOME_BYTES), number)
        self._note("finished", _pack_task(ended))
        self._note_slot(slot, number + 1, b"")

    def sample(self, **numbers: int | None) -> None:
        """Note the state by the names of `layout.SAMPLE_NUMBERS`, None: not known; the last 64 samples stay."""
        values = (numbers.get(name) for name in layout.SAMPLE_NUMBERS)
        known = (None if each is None or each < 0 else each for each in values)
        self._note("samples", packb((time(), *known)))

    def census(self, data: bytes) -> None:
        """Note the largest objects, as `encode_census` has them, of at most 2 kB; the last four stay."""
        self._note("objects", data[: layout.CENSUS_BYTES])

    def lag(self, loop_s: float, gil: float | None) -> None:
        """Note how many seconds the event loop was late, and how contended the GIL was, 0 to 1."""
        self._note("lags", packb((time(), loop_s, gil)))

    def line(self, data: bytes) -> None:
        """Note what was logged or printed; of more than 8 kB the beginning and the last lines."""
        if len(data) > _LINE_HEAD_BYTES + _LINE_TAIL_BYTES:
            tail = data[-_LINE_TAIL_BYTES:]
            data = data[:_LINE_HEAD_BYTES] + _LINE_GAP + (tail.partition(b"\n")[2] or tail)
        when, number = time(), next(self._line_numbers)
        for piece, start in enumerate(range(0, len(data), layout.LINE_PIECE_BYTES)):
            end = start + layout.LINE_PIECE_BYTES
            self._note("lines", packb((when, number, piece, end >= len(data), data[start:end])))

    def close(self, *, remove: bool = False) -> None:
        """Stop writing, as in a forked child; remove the box with its companion if there is nothing to report."""
        self._memory.close()
        if remove:
            discard(self.path)

    def _note(self, region: str, payload: bytes) -> None:
        """Write the next cell of a ring, or the older one of a pair."""
        number = next(self._counts[region])
        offset, cell_bytes, cells = self._regions[region]
        self._store(offset + number % cells * cell_bytes, number, payload)

    def _note_slot(self, slot: int, number: int, payload: bytes) -> None:
        self._writes[slot] = number
        index = slot * _PAIR + number % _PAIR
        self._store(self._slots_offset + index * self._slot_cell_bytes, number, payload)

    def _store(self, offset: int, number: int, payload: bytes) -> None:
        checked = _pack_head(len(payload), number) + payload
        cell = _pack_sum(crc32(checked)) + checked
        try:
            self._memory[offset : offset + len(cell)] = cell
        except ValueError:
            return  # closed meanwhile, perhaps by another thread

    def missed(self) -> None:
        """Note, once, that some threads have no slot, so that nobody takes the noted tasks for all of them."""
        if "tasks-without-slot" not in self._identity.get("missing", ""):
            self.lack("tasks-without-slot", "tasks on some threads: there were more than slots")


def _clip(text: str, most_bytes: int) -> str:
    """The whole characters that stand in the first bytes of a text; those that UTF-8 cannot write are replaced."""
    text = text[:most_bytes]
    return text if text.isascii() else text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


#: At most this many workers of one process (``LocalCluster(processes=False)``) get a box.
_MAX_BOXES_PER_PROCESS = 64


def create_mapped_box(
    directory: Path, known: Mapping[str, str], size_bytes: int, header: bytes
) -> tuple[Path, mmap.mmap]:
    """Path and memory map of a new file, which gets its name after its space, lock and header.

    It is locked (man 2 flock) until the map or this process ends: the map duplicates the descriptor. Workers that
    share a process have one file each. Raises OSError as `preallocate_file` does.
    """
    unfinished = directory / f".{box_name(known)}.{get_ident()}.new"
    descriptor = preallocate_file(unfinished, size_bytes)
    try:
        import fcntl  # Windows has neither fcntl nor fallocate

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, header, 0)
        memory = mmap.mmap(descriptor, size_bytes)
        return _link_under_name(unfinished, directory, known), memory
    finally:
        os.close(descriptor)
        unfinished.unlink(missing_ok=True)


def _link_under_name(unfinished: Path, directory: Path, known: Mapping[str, str]) -> Path:
    for nth in range(1, _MAX_BOXES_PER_PROCESS + 1):
        path = directory / box_name(known, nth)
        try:
            os.link(unfinished, path)  # unlike a rename, fails if the name exists
        except FileExistsError:
            continue
        return path
    raise FileExistsError(errno.EEXIST, "this process has too many black boxes", str(directory))
