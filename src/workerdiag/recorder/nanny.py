"""The recorder in a nanny, which records how its worker processes exit; Dask discards the exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from distributed.diagnostics.plugin import NannyPlugin
from tornado.ioloop import PeriodicCallback

from workerdiag.procfs_and_cgroups import find_memory_group, process_memory
from workerdiag.recorder import internals
from workerdiag.recorder.delivery import BoxLock, deliver, discard_delivered, save_report
from workerdiag.recorder.internals import Undo, set_recording
from workerdiag.recorder.recording import Recording, start_recording, stop_recording
from workerdiag.wire import PLUGIN_NAME

if TYPE_CHECKING:
    from workerdiag.model.dask import Nanny
    from workerdiag.model.timeline import MemoryAtKill
    from workerdiag.wire.black_box import BlackBox
    from workerdiag.wire.messages import CgroupCounters, DeathReport

#: Polling interval. A worker process that exits sooner has no known pid unless it created a box.
_TICK_MS = 200


class NannyRecording(Recording):
    """The recording in one ``distributed.Nanny``, which need not have a worker yet."""

    logger = logging.getLogger("distributed.nanny.recorder")
    # The worker of a closing nanny may have switched it to this status.
    CLOSING = (*Recording.CLOSING, "closing_gracefully")

    def __init__(self, nanny: Nanny) -> None:
        super().__init__()
        self._nanny = nanny
        self._group = find_memory_group()
        self._oom_kills_before: int | None = None
        self._pid: int | None = None
        self._asked_to_stop = False
        #: By what is watched, what ends that.
        self._undo: dict[Literal["exits", "memory-kills", "stop-requests"], Undo] = {}
        #: Which process the nanny ended last for its memory, when, and what it had then.
        self._last_look: tuple[int, float, dict[str, int]] | None = None
        self._ticks = PeriodicCallback(self._tick, _TICK_MS)

    @property
    def is_recording(self) -> bool:
        """Whether exits are recorded."""
        return "exits" in self._undo

    def start(self) -> None:
        """Watch the worker process, and report orphaned boxes."""
        if undo := internals.watch_exits(self._nanny, self._on_exit):
            self._undo["exits"] = undo
        else:
            self.lack("exit-status", "exit status: this release of distributed does not tell it")
        if undo := internals.watch_memory_kills(self._nanny, self._on_memory_kill):
            self._undo["memory-kills"] = undo
        self._tick()
        self._nanny.periodic_callbacks[PLUGIN_NAME] = self._ticks  # the nanny stops them with its own
        self._ticks.start()
        self.spawn(self.report_orphans(self._nanny))

    def stop(self) -> None:
        """Stop watching and undo every change."""
        while self._undo:
            self._undo.popitem()[1]()
        self._ticks.stop()
        self._nanny.periodic_callbacks.pop(PLUGIN_NAME, None)
        set_recording(self._nanny, None)

    def _tick(self) -> None:
        pid = self._nanny.pid
        if pid is not None and pid != self._pid:
            self._pid = pid
            self._asked_to_stop = False
            self._oom_kills_before = self._group.memory_counters().oom_kills if self._group is not None else None
        if "stop-requests" not in self._undo and (
            undo := internals.watch_stop_requests(self._nanny, self._on_stop_request)
        ):
            self._undo["stop-requests"] = undo

    def _on_stop_request(self) -> None:
        self._asked_to_stop = True

    def _on_memory_kill(self, pid: int) -> None:
        self._last_look = (pid, time.time(), process_memory(pid))

    def _on_exit(self, code: int) -> None:
        """Save the report of the worker process's exit at once, and start its delivery."""
        try:
            self._report_exit(code)
        except Exception:  # the nanny has a worker to restart
            self.logger.info("The flight recorder could not note how a worker process ended", exc_info=True)
        self._pid, self._asked_to_stop = None, False

    def _report_exit(self, code: int) -> None:
        path, box = _find_box(self._pid, self._nanny.address_safe)
        report = self._make_report(code, path, box)
        lock = None if path is None else BoxLock(path)
        if path is not None and code == 0 and report.stop_requested:
            discard_delivered(path)  # a requested exit needs no file
        elif path is not None:
            save_report(path, report)
        self.spawn(self._deliver(path, lock, report))

    def _make_report(self, code: int, path: Path | None, box: BlackBox | None) -> DeathReport:
        from workerdiag.recorder import death_report  # imports attrs, which not every nanny needs
        from workerdiag.recorder.last_output import last_stderr

        nanny = self._nanny
        is_closing = nanny.status.name == "closing"
        return death_report.make_report(
            "nanny-report",
            box,
            worker_address=nanny.worker_address,
            pid=self._pid,
            nanny_address=nanny.address_safe,
            hostname=socket.gethostname(),
            noticed_at=time.time(),
            exit=death_report.exit_from_code(code),
            nanny_status=nanny.status.name,
            stop_requested="nanny-kill" if self._asked_to_stop else "nanny-closing" if is_closing else None,
            is_memory_terminated=self._pid is not None and internals.terminated_pid(nanny) == self._pid,
            memory_at_kill=self._memory_at_kill(),
            memory_limit_bytes=getattr(nanny.memory_manager, "memory_limit", None),
            terminate_fraction=internals.terminate_fraction(nanny),
            children_peak_rss_bytes=peak_rss_of_children(),
            cgroup=self._cgroup_counters(),
            stderr=last_stderr(path, box, just_now=True) if path is not None and box is not None else None,
        )

    def _memory_at_kill(self) -> MemoryAtKill | None:
        if self._last_look is None or self._last_look[0] != self._pid:
            return None
        from workerdiag.model.timeline import MemoryAtKill

        _, at, memory = self._last_look
        return MemoryAtKill(
            at=at,
            rss_bytes=memory.get("VmRSS"),
            peak_rss_bytes=memory.get("VmHWM"),
            asked_bytes=memory.get("VmData"),
            swapped_bytes=memory.get("VmSwap"),
        )

    def _cgroup_counters(self) -> CgroupCounters | None:
        if self._group is None:
            return None
        from workerdiag.wire.messages import CgroupCounters

        now = self._group.memory_counters()
        return CgroupCounters(
            path=str(self._group.folder),
            version=self._group.version,
            current_bytes=now.current_bytes,
            limit_bytes=now.limit_bytes,
            peak_bytes=now.peak_bytes,
            oom_kills_before=self._oom_kills_before,
            oom_kills_after=now.oom_kills,
        )

    async def _deliver(self, path: Path | None, lock: BoxLock | None, report: DeathReport) -> None:
        with lock or contextlib.nullcontext():
            if await deliver(self._nanny, report) and path is not None:
                discard_delivered(path)


def _find_box(pid: int | None, nanny: str | None) -> tuple[Path | None, BlackBox | None]:
    """Path and content of the box of this nanny's worker process that has just exited."""
    from workerdiag.errors import BadBoxError
    from workerdiag.recorder.box.directories import find_boxes, is_orphan
    from workerdiag.recorder.box.reader import read_box, read_identity

    for path in find_boxes(pid=pid):
        try:
            identity = read_identity(path)
            if identity.get("nanny") != nanny or identity.get("nanny_pid") != str(os.getpid()):
                continue
            if pid is not None or is_orphan(path):
                return path, read_box(path)
        except BadBoxError:
            continue
    return None, None


def peak_rss_of_children() -> int | None:
    """The peak memory of any exited child, an upper bound for the last (man 2 getrusage); None on Windows."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


class RecorderNanny(NannyPlugin):
    """Puts the recorder in nannies; registered by `workerdiag.install`."""

    name = PLUGIN_NAME
    idempotent = True

    def __init__(self, owner: str = "plugin") -> None:
        self._owner = owner

    def setup(self, nanny: object) -> None:
        """Start recording, before the nanny starts its first worker or later."""
        start_recording(nanny, NannyRecording, self._owner)

    def teardown(self, nanny: object) -> None:
        """Stop recording when the recorder is uninstalled."""
        stop_recording(nanny, self._owner)
