"""Delivers death reports to the scheduler.

An undelivered report stays in a file next to the box. The next nanny on the host, or the next worker without a
nanny, delivers it, and reports the dead workers whose nanny died too or that had none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from workerdiag.guard import guarded
from workerdiag.procfs_and_cgroups import boot_id, is_running
from workerdiag.recorder.box import directories
from workerdiag.recorder.box.directories import discard
from workerdiag.recorder.box.layout import message_path
from workerdiag.wire import BOX_MAGIC, DEATH_TOPIC

if TYPE_CHECKING:
    from workerdiag.model.dask import Method, Server
    from workerdiag.wire.messages import DeathReport

#: Delay before each attempt, in seconds; a scheduler that is still unreachable may be gone for good.
_RETRY_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)


def save_report(box: Path, report: DeathReport) -> None:
    """Save a report until it is delivered; does nothing if the disk is full or read-only."""
    from workerdiag.wire.messages import encode_message

    path = message_path(box)
    unfinished = path.with_name(f".{path.name}.new")
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps(encode_message(report), default=str), encoding="utf-8")
        unfinished.replace(path)


def load_report(box: Path) -> DeathReport | None:
    """The report saved next to a box; None if it is missing or unreadable."""
    from workerdiag.wire.messages import DeathReport, decode_message

    try:
        with message_path(box).open("rb") as file:
            report = decode_message(json.loads(file.read(256 * 1024)))
    except (OSError, ValueError, RecursionError):
        return None
    return report if isinstance(report, DeathReport) else None


def discard_delivered(box: Path) -> None:
    """Remove a box whose death was reported, with its companion files."""
    discard(box)
    with contextlib.suppress(OSError):
        message_path(box).unlink(missing_ok=True)


async def deliver(server: Server, report: DeathReport) -> bool:
    """Send the report; returns whether the scheduler accepted it.

    Each attempt opens a new connection, because a closing server has closed its own. *server*, a worker or nanny,
    supplies the scheduler's address and the connection arguments (TLS).
    """
    from distributed.core import rpc

    from workerdiag.wire.messages import encode_message

    connect = cast("Method", rpc)
    for wait_s in _RETRY_DELAYS_S:
        await asyncio.sleep(wait_s)
        with guarded("delivering a death report"):
            async with (
                asyncio.timeout(5.0),
                connect(server.scheduler.address, connection_args=server.connection_args) as scheduler,
            ):
                await scheduler.log_event(topic=DEATH_TOPIC, msg=encode_message(report))
            return True
    return False


class BoxLock(contextlib.AbstractContextManager["BoxLock"]):
    """The lock on a box, held by its worker and then by the one process that reports it."""

    def __init__(self, box: Path) -> None:
        #: Whether this process holds the lock and the box still exists.
        self.held = False
        self._descriptor = -1
        try:
            import fcntl  # Windows has neither it nor O_NOFOLLOW, and no boxes

            self._descriptor = os.open(box, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = os.fstat(self._descriptor).st_nlink > 0
        except (OSError, AttributeError, ImportError):
            self.close()

    def close(self) -> None:
        """Release the lock."""
        self.held = False
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __exit__(self, *_: object) -> None:
        self.close()


#: One process reports at most this many; the next process reports the rest.
MAX_REPORTED = 16


class OrphanedBox(NamedTuple):
    """A dead worker's box that this process has locked and must report."""

    path: Path
    lock: BoxLock
    report: DeathReport


async def report_orphans(server: Server) -> int:
    """Report unreported dead workers on this host to the scheduler of *server*; returns how many it accepted.

    Only workers of the same cluster count. A thread reads the files. A report that the scheduler does not
    accept is left for the next process that looks.
    """
    reported = 0
    address = str(server.scheduler.address)
    for orphan in await asyncio.to_thread(lambda: list(claim_orphans(address))):
        with orphan.lock:
            if await deliver(server, orphan.report):
                discard_delivered(orphan.path)
                reported += 1
    return reported


def claim_orphans(scheduler: str) -> Iterator[OrphanedBox]:
    """The orphans of that scheduler's cluster that no other process is reporting; old boxes are deleted unread."""
    with contextlib.suppress(OSError):
        directories.sweep()
    count = 0
    for path in directories.find_orphans():
        if count == MAX_REPORTED:
            return
        if _is_of_other_cluster(path, scheduler):
            continue
        lock = BoxLock(path)
        if lock.held and (report := _orphan_report(path)) is not None:
            count += 1
            yield OrphanedBox(path, lock, report)
        else:
            lock.close()


def _is_of_other_cluster(path: Path, scheduler: str) -> bool:
    """Whether a box names another scheduler. A host name and an IP address may mean the same host."""
    from workerdiag.errors import BadBoxError
    from workerdiag.model.identity import is_ip_address
    from workerdiag.recorder.box.reader import read_identity

    try:
        known = read_identity(path).get("scheduler", "")
    except BadBoxError:
        return False
    (host, _, port), (known_host, _, known_port) = scheduler.rpartition(":"), known.rpartition(":")
    if not known or known == scheduler:
        return False
    hosts = (host.rpartition("/")[2], known_host.rpartition("/")[2])
    return port != known_port or (hosts[0] != hosts[1] and all(map(is_ip_address, hosts)))


def _orphan_report(path: Path) -> DeathReport | None:
    """The report that the nanny could not deliver, or else one made from the box."""
    from attrs import evolve

    from workerdiag.errors import BadBoxError
    from workerdiag.recorder.box.reader import read_box
    from workerdiag.recorder.death_report import report_found_box, shorten_report
    from workerdiag.recorder.last_output import last_stderr

    if (saved := load_report(path)) is not None:
        return shorten_report(evolve(saved, is_late=True))
    try:
        box = read_box(path)
    except BadBoxError:
        return None
    has_nanny = _is_nanny_running(box.identity)
    if has_nanny and box.written_at > time.time() - 30.0:  # it reports by then, or never
        return None
    return report_found_box(
        box,
        stderr=last_stderr(path, box, just_now=False),
        is_nanny_running=has_nanny if box.identity.get("nanny") else None,
    )


def _is_nanny_running(identity: Mapping[str, str]) -> bool:
    pid, started = identity.get("nanny_pid", ""), identity.get("nanny_started_ms", "")
    if not (pid.isdecimal() and started.isdecimal()) or identity.get("boot_id", "") != boot_id():
        return False
    return is_running(int(pid), int(started))


def death_message(place: str, data: bytes, fault: bytes) -> DeathReport | None:
    """The report of a worker's death from its box; None if the worker may still run.

    The worker is dead if the box says that it closed or faulthandler wrote a dump. Otherwise, a box on this
    machine (*place* is its path) must be unlocked or its process gone, and any other box last written ten minutes
    ago. *fault* is the content of its faulthandler dump.

    Raises:
        BadBoxError: The data is not a black box, or has another format.
    """
    from workerdiag.recorder.box.reader import read_box
    from workerdiag.recorder.death_report import report_found_box
    from workerdiag.recorder.last_output import last_stderr

    path = Path(place)
    box = read_box(data).with_stacks(fault.decode("utf-8", "replace"))
    lies_here = _is_box_file(path)
    silent = directories.is_orphan(path) if lies_here else box.written_at < time.time() - directories.SILENCE_S
    has_ended = bool(box.faulthandler_dump) or box.stage == "closed"
    if not (silent or has_ended):
        return None
    # a box of another user, or of before the machine booted, could name any file of it as its standard error
    is_ours = lies_here and box.identity.get("boot_id") == boot_id() and path.stat().st_uid == os.getuid()
    return report_found_box(box, stderr=last_stderr(path, box, just_now=False) if is_ours else None)


def _is_box_file(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(BOX_MAGIC)) == BOX_MAGIC
    except (OSError, ValueError):
        return False
