"""The recorder in a worker, which writes a black box."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import WorkerPlugin

from workerdiag.model.stop_reasons import DEFAULT_REASON, is_dask_stop_request
from workerdiag.recorder.box.directories import writable_directory
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.recorder.internals import set_recording, workers
from workerdiag.recorder.recording import Recording, start_recording, stop_recording
from workerdiag.recorder.stderr.descriptor_copy import copy_stderr, is_copy_configured
from workerdiag.recorder.stderr.location import stderr_location
from workerdiag.recorder.worker.capture import LogCapture, StderrCapture, capture_fatal_signals
from workerdiag.recorder.worker.sampler import Sampler
from workerdiag.recorder.worker.tasks import EarlierTasks, OffThreadTasks, TaskSlots, ThreadTasks
from workerdiag.recorder.worker_identity import worker_identity
from workerdiag.wire.constants import PLUGIN_NAME

if TYPE_CHECKING:
    from workerdiag.model.dask import Worker
    from workerdiag.wire.black_box import MissingPart

#: Slots for threads outside the default executor, as of actors and seceded tasks.
_EXTRA_SLOTS = 8


class WorkerRecording(Recording):
    """The recording in one worker.

    Args:
        worker: A ``distributed.Worker``, which need not be registered yet.
    """

    logger = logging.getLogger("distributed.worker.recorder")

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker
        self.box: BoxWriter | None = None
        self._is_closing = False
        self._reason = ""
        self._undo = contextlib.ExitStack()
        #: Whether the process runs only this worker, as with a nanny or from the command line.
        self._owns_process = threading.current_thread() is threading.main_thread()

    @property
    def is_recording(self) -> bool:
        """Whether there is a box."""
        return self.box is not None

    def start(self) -> None:
        """Start recording. Never raises; without a box, nothing is recorded."""
        try:
            self.box = self._new_box()
        except Exception as problem:  # noqa: BLE001  must not stop the worker
            self.lack("box", f"no black box: {problem}")
            return
        parts: dict[MissingPart, Callable[[BoxWriter], None]] = {
            "running-tasks": self._watch_tasks,
            "last-output": self._copy_output,
            "stderr": self._copy_descriptor,
            "fatal-signals": self._watch_signals,
        }
        for name, start in parts.items():
            try:
                start(self.box)
            except Exception as problem:  # noqa: BLE001  as above
                self.lack(name, f"{name.replace('-', ' ')}: {problem}")
        self.box.stage("running")
        if not self._worker.nanny:
            self.spawn(self.report_orphans(self._worker))  # without a nanny the next worker reports the last

    def begin_closing(self) -> None:
        """Continue to record until the worker has closed, and remove the box after a requested exit.

        In a user's process recording stops at once: the event loop may stop before the worker closes.
        """
        if not self._owns_process:
            self.stop()
        elif self.box is not None and not self._is_closing:
            self._is_closing = True
            self.box.stage("closing", self._reason)
            self.spawn(self._finish_closing())

    def stop(self, *, remove: bool = True) -> None:
        """Stop recording and undo every change."""
        self._undo.close()
        if self.box is not None:
            self.box.close(remove=remove)
            self.box = None
        set_recording(self._worker, None)

    def lack(self, part: MissingPart, why: str) -> None:
        """Note that *part* is not recorded, in the box as well."""
        super().lack(part, why)
        if self.box is not None:
            self.box.lack(part, why)

    def _new_box(self) -> BoxWriter:
        folder = writable_directory(self._worker.local_directory)
        slots = self._worker.state.nthreads + _EXTRA_SLOTS
        identity: dict[str, Any] = {**worker_identity(self._worker)}
        if self._owns_process:
            identity |= stderr_location()
        return BoxWriter.create(folder, slots=slots, **identity)

    def _watch_tasks(self, box: BoxWriter) -> None:
        slots = TaskSlots(box, box.slots)
        worker, earlier = self._worker, getattr(self._worker, "active_threads", {})
        undo_threads = workers.watch_threads(worker, lambda old: ThreadTasks(slots, old))
        undo_keys = workers.watch_keys(
            worker, OffThreadTasks(slots, lambda key: workers.off_thread_location(worker, key))
        )
        if undo_threads is not None:
            self._undo.callback(_undo_when_idle, worker, undo_threads)
        if undo_keys is not None:
            self._undo.callback(undo_keys)
        if undo_threads is None or undo_keys is None:
            self.lack("running-tasks", "running tasks: this release of distributed does not tell all of them")
        self._undo.callback(slots.stop)
        sampler = Sampler(worker, box, EarlierTasks(slots, earlier).refresh)
        self._undo.callback(sampler.stop)
        sampler.start()

    def _copy_output(self, box: BoxWriter) -> None:
        log = LogCapture(box.line, self._on_log_record)
        log.attach()
        self._undo.callback(log.detach)
        if self._owns_process and sys.stderr is not None:
            errors = StderrCapture(box.line)
            errors.attach()
            self._undo.callback(errors.detach)

    def _copy_descriptor(self, box: BoxWriter) -> None:
        if not (self._owns_process and self._worker.nanny and is_copy_configured()):
            return
        copy = copy_stderr(box.path, lambda why: self.lack("stderr", why))
        if copy is not None:
            copy.attach()
            self._undo.callback(copy.detach)

    def _watch_signals(self, box: BoxWriter) -> None:
        fatal, why_not = capture_fatal_signals(box.open_fault)
        if fatal is not None:
            self._undo.callback(fatal.detach)
        else:
            self.lack("fatal-signals", why_not)

    def _on_log_record(self, record: logging.LogRecord) -> None:
        """Record the reason and the stage when the log says that the worker closes."""
        reason = workers.close_reason(record)
        if reason is not None and self.box is not None:
            self._reason = reason
            self.box.stage("closing", reason)

    async def _finish_closing(self) -> None:
        await self._worker.finished()
        if self.box is None:
            return
        self.box.stage("closed", self._reason)
        orderly = not self._worker.nanny and (
            is_dask_stop_request(self._reason) or self._reason == DEFAULT_REASON
        )
        if orderly:
            self.stop()
        # Otherwise keep the box for the nanny or the next worker on the host; the process may still crash.


def _undo_when_idle(worker: Worker, undo: Callable[[], object]) -> None:
    """Call *undo* every second until it returns True, which it does once no task prevents it."""
    if not undo():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the worker with it
            worker.loop.call_later(1.0, _undo_when_idle, worker, undo)


class RecorderWorker(WorkerPlugin):
    """Puts the recorder in workers; registered by `workerdiag.install`."""

    name = PLUGIN_NAME
    idempotent = True
    #: Called about four times per task; a cheap no-op, as in `RecorderScheduler`.
    transition = "".format  # type: ignore[assignment]

    def setup(self, worker: object) -> None:
        """Start recording, right after the worker has registered."""
        start_recording(worker, WorkerRecording, "plugin")

    def teardown(self, worker: object) -> None:
        """Stop recording when the worker closes or the recorder is uninstalled."""
        stop_recording(worker, "plugin")
