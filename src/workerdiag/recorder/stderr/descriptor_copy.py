"""Redirection of a worker's standard error to a file, enabled by ``workerdiag.recorder.stderr: copy``.

A descriptor cannot be watched, so the worker redirects its own to a file next to its box. The nanny forwards
the content (`workerdiag.recorder.stderr.forwarder`) and holds a lock on the file while it does. The worker
redirects once the lock is held and restores its descriptor when the lock is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from workerdiag.recorder.box.companions import stderr_path
from workerdiag.recorder.stderr.location import STDERR
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

    None without a note if standard error is a regular file, because that file is read directly.

    Args:
        box: Path of the worker's box.
        note: Called with the reason when copying fails, now or later.
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
    """Check that file size is unlimited: writes beyond a limit fail (``man 2 setrlimit``, RLIMIT_FSIZE).

    Raises:
        OSError: File size is limited.
    """
    import resource

    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        raise OSError("the size of files is limited")


class DescriptorCopy:
    """Redirects standard error to a file while the nanny forwards its content.

    Args:
        path: The file to create.
        note: As for `copy_stderr`.

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
