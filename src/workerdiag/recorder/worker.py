"""The recorder in a worker, which writes a black box: last words, a sample each second, the running tasks.

Standard error is watched where Python writes to it: what C libraries print at the file descriptor cannot be copied
without taking it away. Task containers are the hot path: they run in the worker's threads, twice for each task.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from threading import current_thread
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING, Any, TextIO, cast

from distributed.diagnostics.plugin import WorkerPlugin

from workerdiag.guard import guarded
from workerdiag.model.stop_reasons import DEFAULT_REASON, is_dask_stop_request
from workerdiag.procfs_and_cgroups import call_in_children, stderr_location
from workerdiag.recorder import internals
from workerdiag.recorder.box.directories import writable_directory
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.recorder.internals import set_recording
from workerdiag.recorder.recording import Recording, start_recording, stop_recording, worker_identity
from workerdiag.recorder.sampler import Sampler
from workerdiag.wire import PLUGIN_NAME

if TYPE_CHECKING:
    from workerdiag.model.dask import Method, Worker
    from workerdiag.wire.black_box import MissingPart


class WorkerRecording(Recording):
    """The recording in one ``distributed.Worker``, which need not be registered yet."""

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
        with guarded("creating a black box", lambda problem: self.lack("box", f"no black box: {problem}")):
            self.box = self._new_box()
        if self.box is None:
            return
        parts: dict[MissingPart, Callable[[BoxWriter], None]] = {
            "running-tasks": self._watch_tasks,
            "last-output": self._copy_output,
            "fatal-signals": self._watch_signals,
        }
        for name, start in parts.items():
            with guarded(f"starting to record {name}") as starting:
                start(self.box)
            if starting.problem is not None:
                self.lack(name, f"{name.replace('-', ' ')}: {starting.problem}")
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

    def stop(self) -> None:
        """Stop recording and undo every change."""
        self._undo.close()
        if self.box is not None:
            self.box.close(remove=True)
            self.box = None
        set_recording(self._worker, None)

    def lack(self, part: MissingPart, why: str) -> None:
        """Note that *part* is not recorded, in the box as well."""
        super().lack(part, why)
        if self.box is not None:
            self.box.lack(part, why)

    def _new_box(self) -> BoxWriter:
        folder = writable_directory(self._worker.local_directory)
        slots = self._worker.state.nthreads + 8  # more threads have actors and seceded tasks
        identity: dict[str, Any] = {**worker_identity(self._worker)}
        if self._owns_process:
            identity |= stderr_location()
        return BoxWriter.create(folder, slots=slots, **identity)

    def _watch_tasks(self, box: BoxWriter) -> None:
        slots = TaskSlots(box, box.slots)
        worker, earlier = self._worker, getattr(self._worker, "active_threads", {})
        undo_threads = internals.watch_threads(worker, lambda old: ThreadTasks(slots, old))
        undo_keys = internals.watch_keys(
            worker, OffThreadTasks(slots, lambda key: internals.off_thread_location(worker, key))
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

    def _watch_signals(self, box: BoxWriter) -> None:
        fatal, why_not = capture_fatal_signals(box.open_fault)
        if fatal is not None:
            self._undo.callback(fatal.detach)
        else:
            self.lack("fatal-signals", why_not)
        if self._owns_process and self._worker.nanny:
            self._undo.callback(capture_stops(box.open_fault()).detach)

    def _on_log_record(self, record: logging.LogRecord) -> None:
        """Record the reason and the stage when the log says that the worker closes."""
        reason = internals.close_reason(record)
        if reason is not None and self.box is not None:
            self._reason = reason
            self.box.stage("closing", reason)

    async def _finish_closing(self) -> None:
        await cast("Method", self._worker.finished)()
        if self.box is None:
            return
        self.box.stage("closed", self._reason)
        orderly = not self._worker.nanny and (is_dask_stop_request(self._reason) or self._reason == DEFAULT_REASON)
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


#: Loggers that have handlers in Dask's default configuration, and do not propagate further. Those without
#: any print to ``sys.stderr`` (``logging.lastResort``), which a handler of ours would end: `StderrCapture`.
LOGGERS = ("distributed", "tornado.application")
_FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"

Write = Callable[[bytes], None]


class LogCapture(logging.Handler):
    """Copies log records, as Dask would print them, with *write*; *on_record* is called with each."""

    def __init__(self, write: Write, on_record: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(level=logging.INFO)
        self.setFormatter(logging.Formatter(_FORMAT))
        self._write = write
        self._on_record = on_record
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Copy one record, if this is still the worker's own process. Never raises."""
        with contextlib.suppress(Exception):
            if os.getpid() == self._pid:
                self._write(self.format(record).encode("utf-8", "replace"))
                self._on_record(record)

    def attach(self) -> None:
        """Begin to copy."""
        for logger in map(logging.getLogger, LOGGERS):
            if logger.hasHandlers():
                logger.addHandler(self)

    def detach(self) -> None:
        """Stop copying."""
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)
        self.close()


class StderrCapture:
    """Replaces ``sys.stderr``: passes everything on, and copies it with *write*.

    A line may be written in pieces; it is copied when it is complete. Handlers with the earlier stream, above
    all those of Dask's log messages, do not write here, so nothing is copied twice.
    """

    def __init__(self, write: Write) -> None:
        self._copy: Write | None = write
        self._original: TextIO = sys.stderr
        self._piece = threading.local()
        self._pid = os.getpid()

    def write(self, text: str) -> int:
        """As of any text stream."""
        count: int = self._original.write(text)
        if self._copy is not None:
            with contextlib.suppress(Exception):
                self._note(text)
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        """As of any text stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)

    def attach(self) -> None:
        """Begin to copy."""
        sys.stderr = cast("TextIO", self)

    def detach(self) -> None:
        """Stop copying. Later users of the stream keep it, and it only passes text on."""
        self._copy = None
        if sys.stderr is cast("TextIO", self):
            sys.stderr = self._original

    def _note(self, text: str) -> None:
        if self._copy is None or os.getpid() != self._pid:
            return
        whole, newline, rest = (getattr(self._piece, "text", "") + text).rpartition("\n")
        if newline:
            self._copy(whole.encode("utf-8", "replace"))
        self._piece.text = rest[-io.DEFAULT_BUFFER_SIZE :]


class StackCapture:
    """A file to which faulthandler writes the stacks of all threads, until *stop* is called.

    It stays open until `detach`: faulthandler knows its descriptor alone.
    """

    def __init__(self, file: io.FileIO, stop: Callable[[], object]) -> None:
        self._file = file
        self._stop = stop
        self._active = True
        call_in_children(self.leave)

    def detach(self) -> None:
        """Leave the signals as they were."""
        self.leave()
        with contextlib.suppress(OSError):
            self._file.close()

    def leave(self) -> None:
        """Stop watching; also in forked children, whose stacks do not belong in the worker's box."""
        if self._active:
            self._active = False
            self._stop()


def capture_stops(file: io.FileIO) -> StackCapture:
    """Have faulthandler write to a file when the process is asked to end (SIGTERM).

    That is how a nanny ends a worker above its memory limit, which then dies at once. Whoever handled the signal
    before still does; whoever asks for it later replaces us.
    """
    before = signal.getsignal(signal.SIGTERM)
    faulthandler.register(signal.SIGTERM, file=file, all_threads=True, chain=True)

    def stop() -> None:
        handler = signal.getsignal(signal.SIGTERM)
        faulthandler.unregister(signal.SIGTERM)  # brings back the handler of before, whoever came after us
        if handler is not None and handler is not before:
            signal.signal(signal.SIGTERM, handler)

    return StackCapture(file, stop)


def capture_fatal_signals(open_file: Callable[[], io.FileIO]) -> tuple[StackCapture | None, str]:
    """What watches for fatal signals, or None and the reason why nothing does."""
    if faulthandler.is_enabled():
        return None, "faulthandler writes elsewhere already, and is left alone"
    try:
        file = open_file()
        faulthandler.enable(file=file, all_threads=True)
    except (OSError, ValueError, RuntimeError) as problem:
        return None, f"faulthandler has no file: {problem}"
    return StackCapture(file, faulthandler.disable), ""


#: Distributed says of a task only that it ended, not how.
_ENDED = "ended"


class TaskSlots:
    """Where in the box each running task stands; any thread takes and gives back, without a lock."""

    __slots__ = ("_box", "_free", "_taken")

    def __init__(self, box: BoxWriter, count: int) -> None:
        self._box: BoxWriter | None = box
        self._free = list(range(count - 1, -1, -1))  # pop and append of a list are one step each
        self._taken: dict[object, int] = {}

    def begin(self, holder: object, key: object, thread: int, name: str) -> None:
        """Note that a task begins. *holder* identifies it until it ends.

        A method of an actor that raises never says that it ended; it is taken to have, when the next begins.
        """
        box = self._box
        if box is None:
            return
        if holder in self._taken:
            self.end(holder)
        try:
            slot = self._taken[holder] = self._free.pop()
            box.started(slot, key if type(key) is str else str(key), thread, name)
        except IndexError:
            self.note_missed()
        except Exception:  # noqa: BLE001, S110  a task must not fail because of us
            pass

    def end(self, holder: object) -> None:
        """Note that the task of *holder* ended."""
        slot = self._taken.pop(holder, None)
        if slot is None:
            return
        try:
            if self._box is not None:
                self._box.finished(slot, _ENDED)
        except Exception:  # noqa: BLE001, S110  as above
            pass
        self._free.append(slot)

    def note_missed(self) -> None:
        """Note that a task may run that is not noted."""
        if self._box is not None:
            self._box.missed()

    def stop(self) -> None:
        """Note nothing more."""
        self._box = None


class ThreadTasks(dict[int, object]):
    """For the place of ``Worker.active_threads``: the key of the running task, by thread.

    A thread enters itself and removes itself, so the thread found at that moment is the task's. A task that was
    handed to a thread before still enters *earlier*, what was in that place, and may ask here for its key.
    """

    __slots__ = ("_earlier", "_slots")

    def __init__(self, slots: TaskSlots, earlier: dict[int, object]) -> None:
        super().__init__()
        self._slots = slots
        self._earlier = earlier

    def __setitem__(self, thread: int, key: object) -> None:
        dict.__setitem__(self, thread, key)
        self._slots.begin(thread, key, thread, current_thread().name)

    def __delitem__(self, thread: int) -> None:
        dict.__delitem__(self, thread)
        self._slots.end(thread)

    def __missing__(self, thread: int) -> object:
        return self._earlier[thread]


class EarlierTasks:
    """The tasks that run since before they could be watched, in what was ``Worker.active_threads``."""

    def __init__(self, slots: TaskSlots, threads: dict[int, object]) -> None:
        self._slots = slots
        self._threads = threads
        self._known: dict[int, object] = {}

    def refresh(self) -> None:
        """Note those that began or ended since the last look."""
        running = dict(self._threads)
        for thread, key in list(self._known.items()):
            if running.get(thread) is not key:
                self._slots.end(("earlier", thread))
                del self._known[thread]
        for thread in running.keys() - self._known.keys():
            name = next((each.name for each in enumerate_threads() if each.ident == thread), "")
            self._known[thread] = running[thread]
            self._slots.begin(("earlier", thread), running[thread], thread, name)


class OffThreadTasks(set[object]):
    """Replaces ``Worker.active_keys``: keys of all running tasks, and notes those without a thread.

    *where* returns thread and name of a task that is in no `ThreadTasks`; None for all others.
    """

    __slots__ = ("_slots", "_where")

    def __init__(self, slots: TaskSlots, where: Callable[[object], tuple[int, str] | None]) -> None:
        super().__init__()
        self._slots = slots
        self._where = where

    def add(self, key: object) -> None:
        """As of any set."""
        super().add(key)
        try:
            place = self._where(key)
        except Exception:  # noqa: BLE001  a task must not fail for us
            return self._slots.note_missed()
        if place is not None:
            self._slots.begin(("elsewhere", key), key, *place)
        return None

    def discard(self, key: object) -> None:
        """As of any set."""
        super().discard(key)
        self._slots.end(("elsewhere", key))
