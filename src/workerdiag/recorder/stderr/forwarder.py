"""
What a worker writes to the file in the place of its standard error, passed on by its nanny.

A thread looks every 50 ms. The worker never waits for it: what is behind by more than some MiB, because
nobody reads the nanny's own standard error, is left out, and that is said there. Room on the disk is
reserved where the file grows, and given back where it is consumed (``man 2 fallocate``).
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

from workerdiag.procfs.processes import is_running

#: Flags of the kernel's include/uapi/linux/falloc.h.
_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02
_POLL_S = 0.05
#: A pipe takes so much at once or not at all (``man 7 pipe``, PIPE_BUF).
_PIECE_BYTES = 4096
#: More than this does not wait to be passed on.
MAX_WAITING_BYTES = 4 * 2**20
#: This much stays in the file for whoever reads the worker's last words.
RETAINED_BYTES = 64 * 1024
_GIVE_BACK_BYTES = 256 * 1024
#: Room that is kept ahead, so that on a disk that fills up the worker's writing does not fail.
_AHEAD_BYTES = 512 * 1024
#: How often the worker is looked up; mostly its nanny says that it ended.
_CHECK_S = 1.0
#: The rest may take this long once the worker has ended.
_REST_S = 1.0
_JOIN_S = 0.5


class Forwarder:
    """
    Passes on what comes into one worker's file, from a thread, until the worker ended or took it back.

    Args:
        path: The file.
        sink: Descriptor that it goes to; is closed at the end.
        pid: The worker's process, with its start by `process_start_ms`.
        started_ms: See above.

    Raises:
        OSError: The file is not there, not ours, or its disk keeps no room or gives none back.
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
        """
        The worker has ended: pass on the rest. Waits at most half a second for that.
        """
        self._ending.set()
        self._thread.join(_JOIN_S)

    def withdraw(self) -> None:
        """
        Have the worker take its standard error back; until it has, all is passed on.
        """
        self._withdrawn.set()

    @property
    def is_finished(self) -> bool:
        """
        Whether there is nothing more to pass on, ever.
        """
        return not self._thread.is_alive()

    def _claim_file(self) -> None:
        """
        Make sure that this can be done, and give our word for it: the lock.
        """
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
        """
        Whether the worker ended, or took its standard error back and removed the file.
        """
        if self._ending.is_set() or not os.fstat(self._file).st_nlink:
            return True
        if (now := time.monotonic()) < self._next_check:
            return False
        self._next_check = now + _CHECK_S
        return not is_running(*self._process)

    def _forward(self, until: float) -> None:
        """
        Pass on what there is, or as much as the sink takes until then.
        """
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
        """
        How many bytes are done with: what nobody can take any more is, too.
        """
        try:
            return os.write(self._sink, data)
        except BlockingIOError:
            time.sleep(_POLL_S)
            return 0
        except OSError:
            return len(data)

    def _reserve_ahead(self) -> None:
        """
        Take room ahead of the end of the file, and give back what was passed on.
        """
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
    """
    Keep room for *count* bytes from *offset* on, also behind the end of the file, which stays where it is.

    Raises:
        OSError: There is no such room, or the file system does not keep any.
    """
    _fallocate(descriptor, _KEEP_SIZE, offset, count)


def release_space(descriptor: int, offset: int, count: int) -> None:
    """
    Give back the room of *count* bytes from *offset* on; they read as zeros from then on.

    Raises:
        OSError: The file system cannot do that.
    """
    _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, count)


def _fallocate(descriptor: int, mode: int, offset: int, count: int) -> None:
    if _libc_fallocate()(descriptor, mode, offset, count):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc_fallocate() -> Any:
    """
    The C library's function, with offsets of 64 bits.

    Raises:
        OSError: There is none: this is not Linux.
    """
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        raise OSError("this system has no fallocate")
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
