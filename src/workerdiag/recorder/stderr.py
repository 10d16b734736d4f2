"""Redirects a worker's standard error to a file, which its nanny forwards (``workerdiag.recorder.stderr: copy``).

A descriptor cannot be watched, so the worker redirects its own to a file next to its box. The nanny locks the
file while it forwards the content: the worker redirects once the lock is held, and restores its descriptor when
it is released. The nanny's thread polls every 50 ms and the worker never waits for it. If more than 4 MiB wait,
because the nanny's own standard error is not read, the oldest bytes are skipped and a note says so. Disk space
is reserved ahead of the end of the file and released once forwarded (``man 2 fallocate``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import stat
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from workerdiag.procfs_and_cgroups import is_running, process_start_ms
from workerdiag.recorder.box.directories import find_boxes, parse_box_name
from workerdiag.recorder.box.layout import stderr_path
from workerdiag.settings import setting

COPY = "copy"
#: A nanny that already records responds within tenths of a second, one that has to start within seconds.
_NANNY_TIMEOUT_S = 15.0
_LOCK_POLL_S = 0.05
_UNLOCK_POLL_S = 0.5


def is_copy_configured() -> bool:
    """Whether the configuration enables copies."""
    return bool(setting("recorder.stderr") == COPY)


def copy_stderr(box: Path, note: Callable[[str], None]) -> DescriptorCopy | None:
    """The copy of this worker's standard error, which starts with its nanny; None, with a note, if impossible.

    None without a note if standard error is a regular file, because that file is read directly. *note* is called
    with the reason when copying fails, now or later.
    """
    try:
        if stat.S_ISREG(os.fstat(STDERR).st_mode):
            return None
        _check_limit()
        return DescriptorCopy(stderr_path(box), note)
    except OSError as problem:
        note(f"what C libraries print to standard error: {problem}")
        return None


def _check_limit() -> None:
    """Raise OSError if file size is limited: writes beyond a limit fail (``man 2 setrlimit``, RLIMIT_FSIZE)."""
    import resource

    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        raise OSError("the size of files is limited")


class DescriptorCopy:
    """Redirects standard error to a new file while the nanny forwards its content; *note* as for `copy_stderr`.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self._path = path
        self._note = note
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._saved: int | None = None
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    def attach(self) -> None:
        """Redirect once the nanny holds the lock. Call this on the event loop."""
        self._task = asyncio.ensure_future(self._run())

    def detach(self) -> None:
        """Restore standard error and remove the file."""
        if self._ended:
            return
        self._ended = True
        if self._task is not None:
            self._task.cancel()
        if self._saved is not None:
            if os.path.sameopenfile(STDERR, self._file):  # else other code has redirected it since
                os.dup2(self._saved, STDERR)
            os.close(self._saved)
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    async def _run(self) -> None:
        waited_s = 0.0
        while not self._is_locked():
            if waited_s >= _NANNY_TIMEOUT_S:
                return self._give_up("its nanny does not pass it on")
            waited_s += _LOCK_POLL_S
            await asyncio.sleep(_LOCK_POLL_S)
        self._redirect()
        while self._is_locked():  # noqa: ASYNC110  the nanny releases it without a signal
            await asyncio.sleep(_UNLOCK_POLL_S)
        return self._give_up("its nanny passes it on no more")

    def _redirect(self) -> None:
        import fcntl

        self._saved = fcntl.fcntl(STDERR, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
        os.dup2(self._file, STDERR)

    def _give_up(self, why: str) -> None:
        self._task = None
        self.detach()
        self._note(f"what C libraries print to standard error: {why}")

    def _is_locked(self) -> bool:
        """Whether the nanny holds the lock (``man 2 flock``). Leaves the file unlocked otherwise."""
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False


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

    *sink* is the descriptor to write to, which is closed at the end.

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
            raise OSError("it is not a file of this user")
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
    """Reserve *count* bytes at *offset*, also past the end of the file, and keep its size; or raise OSError."""
    _fallocate(descriptor, _KEEP_SIZE, offset, count)


def release_space(descriptor: int, offset: int, count: int) -> None:
    """Release the space of *count* bytes at *offset*, which then read as zeros, or raise OSError."""
    _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, count)


def _fallocate(descriptor: int, mode: int, offset: int, count: int) -> None:
    if _libc_fallocate()(descriptor, mode, offset, count):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc_fallocate() -> Any:
    """The C library's ``fallocate`` with 64-bit offsets; raises OSError where the system is not Linux."""
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        raise OSError("this system has no fallocate")
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


#: A worker creates its file within this time of its start; if recording starts later, the file exists.
_FILE_TIMEOUT_S = 60.0


class StderrWatch:
    """Forwards the standard error of a nanny's successive worker processes, if configured."""

    def __init__(self) -> None:
        self._is_enabled = is_copy_configured()
        self._pid: int | None = None
        self._until = 0.0
        self._forwarder: Forwarder | None = None

    def poll(self, pid: int | None) -> None:
        """Check whether the worker process with this pid has created its file. Call this repeatedly."""
        if not self._is_enabled or pid is None:
            return
        if pid != self._pid or (self._forwarder is not None and self._forwarder.is_finished):
            self.finish()
            self._pid, self._until = pid, time.monotonic() + _FILE_TIMEOUT_S
        if self._forwarder is None and time.monotonic() < self._until:
            self._forwarder = _start_forwarder(pid)

    def finish(self) -> None:
        """The worker process has ended: pass on the rest, for at most half a second."""
        forwarder, self._forwarder, self._pid = self._forwarder, None, None
        if forwarder is not None:
            forwarder.finish()

    def stop(self) -> None:
        """Withdraw the promise; output until the worker knows is passed on."""
        forwarder, self._forwarder, self._is_enabled = self._forwarder, None, False
        if forwarder is not None:
            forwarder.withdraw()


def _start_forwarder(pid: int) -> Forwarder | None:
    """What passes on the standard error of a worker process, if that goes where ours does; else None."""
    import fcntl

    started_ms = process_start_ms(pid)
    for box in find_boxes(pid=pid):
        name, path = parse_box_name(box), stderr_path(box)
        if name is None or started_ms is None or name.started_ms != started_ms or not path.exists():
            continue
        sink = None
        try:
            if file_id(Path(f"/proc/{pid}/fd/{STDERR}").stat()) != file_id(os.fstat(STDERR)):
                return None
            sink = fcntl.fcntl(STDERR, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
            return Forwarder(path, sink, pid, started_ms)
        except OSError:
            if sink is not None:
                os.close(sink)
    return None


#: The descriptor of standard error (``man 3 stderr``).
STDERR = 2
#: An identity in a black box has no room for longer values.
_MAX_PATH_BYTES = 500


def stderr_location() -> Mapping[str, str]:
    """Return ``stderr_path``, ``stderr_file`` (see `file_id`) and ``stderr_offset``, its current size in bytes.

    Empty if standard error is not a regular file with a name (a pipe, a terminal, a deleted file), or without
    ``/proc`` (``man 5 proc``).
    """
    try:
        about = os.fstat(STDERR)
        path = str(Path(f"/proc/self/fd/{STDERR}").readlink())
    except OSError:
        return {}
    if not stat.S_ISREG(about.st_mode) or not about.st_nlink or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        return {}
    return {"stderr_path": path, "stderr_file": file_id(about), "stderr_offset": str(about.st_size)}


def file_id(about: os.stat_result) -> str:
    """Device and inode of a file as text: the same for every name and descriptor of it."""
    return f"{about.st_dev}:{about.st_ino}"
