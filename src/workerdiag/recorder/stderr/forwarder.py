"""The nanny's thread that forwards a worker's standard error from its file.

The thread polls every 50 ms and the worker never waits for it. If more than 4 MiB wait, because the
nanny's own standard error is not read, the oldest bytes are skipped and a note says so. Disk space is
reserved ahead of the end of the file and released once forwarded (``man 2 fallocate``).
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

from workerdiag.procfs import is_running

#: Flags of the kernel's include/uapi/linux/falloc.h.
_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02
_POLL_S = 0.05
#: A write of at most this size to a pipe is atomic (``man 7 pipe``, PIPE_BUF).
_PIECE_BYTES = 4096
#: At most this much waits to be forwarded.
MAX_WAITING_BYTES = 4 * 2**20
#: This much stays in the file, for the report of the worker's last output.
RETAINED_BYTES = 64 * 1024
_GIVE_BACK_BYTES = 256 * 1024
#: Space reserved ahead, so that the worker's writes do not fail on a full disk.
_AHEAD_BYTES = 512 * 1024
#: Interval between checks of the process; usually the nanny reports its exit first.
_CHECK_S = 1.0
#: Time to forward the rest after the worker has ended.
_REST_S = 1.0
_JOIN_S = 0.5


class Forwarder:
    """Forwards one worker's file from a thread, until the worker ends or restores its standard error.

    Args:
        path: The file.
        sink: Descriptor to write to; closed at the end.
        pid: The worker's process.
        started_ms: Its start, as returned by `process_start_ms`.

    Raises:
        OSError: The file is missing or not ours, or its file system cannot reserve or release space.
    """

    def __init__(self, path: Path, sink: int, pid: int, started_ms: int) -> None:
        self._sink = sink
        self._process = (pid, started_ms)
        self._file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self._forwarded = 0
        self._skipped = 0
        self._given_back = 0
        self._reserved = 0
        self._next_check = 0.0
        self._ending = threading.Event()
        self._withdrawn = threading.Event()
        try:
            self._claim_file()
        except BaseException:
            os.close(self._file)
            raise
        self._thread = threading.Thread(target=self._run, name="workerdiag-stderr", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Forward the rest after the worker has ended. Waits at most half a second."""
        self._ending.set()
        self._thread.join(_JOIN_S)

    def withdraw(self) -> None:
        """Make the worker restore its standard error; forwarding continues until it has."""
        self._withdrawn.set()

    @property
    def is_finished(self) -> bool:
        """Whether forwarding has ended."""
        return not self._thread.is_alive()

    def _claim_file(self) -> None:
        """Check the file and its file system, then take the lock that tells the worker to redirect."""
        import fcntl

        about = os.fstat(self._file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
            raise OSError("it is no file of this user")
        reserve_space(self._file, 0, _AHEAD_BYTES)
        release_space(self._file, 0, _PIECE_BYTES)
        reserve_space(self._file, 0, _AHEAD_BYTES)
        self._reserved = _AHEAD_BYTES
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _run(self) -> None:
        import fcntl

        try:
            while not self._has_ended():
                self._forward(time.monotonic() + _POLL_S)
                self._reserve_ahead()
                if self._withdrawn.is_set():
                    fcntl.flock(self._file, fcntl.LOCK_UN)
                self._ending.wait(_POLL_S)
            self._forward(time.monotonic() + _REST_S)
        finally:
            os.close(self._file)
            os.close(self._sink)

    def _has_ended(self) -> bool:
        """Whether the worker ended, or restored its standard error and removed the file."""
        if self._ending.is_set() or not os.fstat(self._file).st_nlink:
            return True
        if (now := time.monotonic()) < self._next_check:
            return False
        self._next_check = now + _CHECK_S
        return not is_running(*self._process)

    def _forward(self, until: float) -> None:
        """Forward the waiting bytes, or as many as the sink accepts before *until*."""
        while (waiting := os.fstat(self._file).st_size - self._forwarded) > 0:
            if waiting > MAX_WAITING_BYTES:
                self._skipped += waiting - RETAINED_BYTES
                self._forwarded += waiting - RETAINED_BYTES
            left_s = until - time.monotonic()
            if left_s <= 0 or not self._is_writable(left_s):
                return
            if self._skipped:
                self._write_skipped_note()
                continue
            data = os.pread(self._file, _PIECE_BYTES, self._forwarded)
            lines = data[: data.rfind(b"\n") + 1] or data
            self._forwarded += self._write(lines)

    def _write_skipped_note(self) -> None:
        note = f"\n[workerdiag: {self._skipped} bytes of a worker's standard error were not passed on]\n"
        if self._write(note.encode()):
            self._skipped = 0

    def _is_writable(self, timeout_s: float) -> bool:
        waiting = select.poll()
        waiting.register(self._sink, select.POLLOUT)
        return bool(waiting.poll(timeout_s * 1000))

    def _write(self, data: bytes) -> int:
        """The number of bytes written, or of all bytes if the sink is broken."""
        try:
            return os.write(self._sink, data)
        except BlockingIOError:
            time.sleep(_POLL_S)
            return 0
        except OSError:
            return len(data)

    def _reserve_ahead(self) -> None:
        """Reserve space ahead of the end of the file and release what was forwarded."""
        try:
            size = os.fstat(self._file).st_size
            if size + _AHEAD_BYTES // 2 > self._reserved:
                reserve_space(self._file, size, _AHEAD_BYTES)
                self._reserved = size + _AHEAD_BYTES
            done = (self._forwarded - RETAINED_BYTES) // _PIECE_BYTES * _PIECE_BYTES
            if done - self._given_back >= _GIVE_BACK_BYTES:
                release_space(self._file, self._given_back, done - self._given_back)
                self._given_back = done
        except OSError:
            self.withdraw()


def reserve_space(descriptor: int, offset: int, count: int) -> None:
    """Reserve *count* bytes at *offset*, also past the end of the file, without changing its size.

    Raises:
        OSError: The disk is full, or the file system cannot reserve space.
    """
    _fallocate(descriptor, _KEEP_SIZE, offset, count)


def release_space(descriptor: int, offset: int, count: int) -> None:
    """Release the space of *count* bytes at *offset*, which then read as zeros.

    Raises:
        OSError: The file system cannot release space.
    """
    _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, count)


def _fallocate(descriptor: int, mode: int, offset: int, count: int) -> None:
    if _libc_fallocate()(descriptor, mode, offset, count):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc_fallocate() -> Any:
    """The C library's ``fallocate`` with 64-bit offsets.

    Raises:
        OSError: The system is not Linux.
    """
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        raise OSError("this system has no fallocate")
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
