"""The base of the recordings in workers and nannies, with their owners and missing parts."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from workerdiag.recorder.internals import get_recording, set_recording

if TYPE_CHECKING:
    from workerdiag.model.dask import Server, Worker
    from workerdiag.wire.black_box import MissingPart


#: Delay after the start of a recording before it looks for orphaned boxes, in seconds.
_ORPHANS_AFTER_S = 2.0


class Recording(ABC):
    """The recording in one worker or nanny, from `start` to `stop`."""

    logger: ClassVar[logging.Logger]
    #: Statuses of a closing server, whose end is recorded too.
    CLOSING: ClassVar[tuple[str, ...]] = ("closing", "closed", "failed")

    def __init__(self) -> None:
        #: Who started it: ``preload``, ``plugin``.
        self.owners: set[str] = set()
        #: What is not recorded, and why; the reason is for a person.
        self.missing: dict[MissingPart, str] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    @abstractmethod
    def is_recording(self) -> bool:
        """Whether the main part records: the box of a worker, the exits of a nanny."""

    @abstractmethod
    def start(self) -> None:
        """Begin to record. Never raises."""

    @abstractmethod
    def stop(self) -> None:
        """Stop recording and undo every change."""

    def begin_closing(self) -> None:  # noqa: B027  a nanny has nothing to do
        """Continue to record until the server has closed."""

    def lack(self, part: MissingPart, why: str) -> None:
        """Note that *part* is not recorded."""
        self.missing[part] = "; ".join(filter(None, (self.missing.get(part), why)))
        self.logger.info("The flight recorder does without: %s", why)

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Run *work* in the background, with a reference that keeps the task alive."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def report_orphans(self, server: Server) -> None:
        """Report orphaned boxes, once the first worker has had time to start."""
        await asyncio.sleep(_ORPHANS_AFTER_S)
        if self.is_recording:
            from workerdiag.recorder.orphans import report_orphans

            await report_orphans(server)


def start_recording(server: object, make: Callable[[Any], Recording], owner: str) -> None:
    """Start a recording in a worker or nanny unless one is active, and add *owner* to it."""
    recording = get_recording(server)
    if recording is None:
        recording = make(server)
        set_recording(server, recording)
        recording.start()
    recording.owners.add(owner)


def stop_recording(server: Any, owner: str) -> None:
    """Stop recording once the last owner is gone; a closing server is recorded until it has closed."""
    recording = get_recording(server)
    if recording is None:
        return
    if server.status.name in recording.CLOSING:
        recording.begin_closing()
        return
    recording.owners.discard(owner)
    if not recording.owners:
        recording.stop()


def recorder_status(dask_worker: Worker) -> dict[str, object]:
    """The recorder status of a worker or nanny as plain data; ``Client.run`` requires the parameter's name."""
    recording = get_recording(dask_worker)
    return {
        "is_recording": recording is not None and recording.is_recording,
        "missing": dict(getattr(recording, "missing", {})),
    }
