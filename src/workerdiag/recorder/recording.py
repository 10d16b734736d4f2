"""
What worker and nanny share: a recording lasts as long as somebody wants it, and says what it lacks.
"""

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


#: Delay after its own start before a process looks for boxes that nobody reported, in seconds.
_ORPHANS_AFTER_S = 2.0


class Recording(ABC):
    """
    What records in one worker or nanny, from `start` to `stop`.
    """

    logger: ClassVar[logging.Logger]
    #: Statuses of a server that is ending; its end is recorded too.
    CLOSING: ClassVar[tuple[str, ...]] = ("closing", "closed", "failed")

    def __init__(self) -> None:
        #: Who wants it: ``preload``, ``plugin``.
        self.owners: set[str] = set()
        #: What is not recorded, and why; the reason is for a person.
        self.missing: dict[MissingPart, str] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    @abstractmethod
    def is_recording(self) -> bool:
        """
        Whether the main part records: the box of a worker, the exits of a nanny.
        """

    @abstractmethod
    def start(self) -> None:
        """
        Begin to record. Never raises.
        """

    @abstractmethod
    def stop(self) -> None:
        """
        Record no more, and leave everything as it was.
        """

    def begin_closing(self) -> None:  # noqa: B027  a nanny has nothing to do
        """
        Record on until the server has closed.
        """

    def lack(self, part: MissingPart, why: str) -> None:
        """
        Note that *part* is not recorded.
        """
        self.missing[part] = "; ".join(filter(None, (self.missing.get(part), why)))
        self.logger.info("The flight recorder does without: %s", why)

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """
        Have something done in the background; it is kept so that it can end.
        """
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def report_orphans(self, server: Server) -> None:
        """
        Report the deaths that nobody reported, once the first worker has had time to start.
        """
        await asyncio.sleep(_ORPHANS_AFTER_S)
        if self.is_recording:
            from workerdiag.recorder.orphans import report_orphans

            await report_orphans(server)


def start_recording(server: object, make: Callable[[Any], Recording], owner: str) -> None:
    """
    Record in a worker or nanny, unless that is done already.
    """
    recording = get_recording(server)
    if recording is None:
        recording = make(server)
        set_recording(server, recording)
        recording.start()
    recording.owners.add(owner)


def stop_recording(server: Any, owner: str) -> None:
    """
    Record no more, if nobody else wants it; a server that is closing is recorded until it has closed.
    """
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
    """
    What records in a worker or nanny, as plain values; ``Client.run`` passes the server by this name.
    """
    recording = get_recording(dask_worker)
    return {
        "is_recording": recording is not None and recording.is_recording,
        "missing": dict(getattr(recording, "missing", {})),
    }
