"""Boxes of dead workers whose deaths were never reported, because their nanny died too or they had none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attrs import evolve

from workerdiag.errors import BadBoxError
from workerdiag.model.identity import is_ip_address
from workerdiag.procfs import boot_id, is_running
from workerdiag.recorder import death_report
from workerdiag.recorder.box import directories
from workerdiag.recorder.nanny.delivery import BoxLock, deliver, discard_delivered, load_report
from workerdiag.recorder.stderr.last_output import last_stderr
from workerdiag.wire.messages import DeathReport

if TYPE_CHECKING:
    from workerdiag.model.dask import Server

#: One process reports at most this many; the next process reports the rest.
MAX_REPORTED = 16
#: A live nanny reports its worker within this time or never.
_NANNY_REPORT_S = 30.0


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
    """The orphans in this user's folders that no other process is reporting. Old boxes are deleted unread.

    Args:
        scheduler: Address of the scheduler to report to. Boxes of other clusters are skipped.
    """
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
    from workerdiag.recorder.box.reader import read_box

    if (saved := load_report(path)) is not None:
        return death_report.shorten_report(evolve(saved, is_late=True))
    try:
        box = read_box(path)
    except BadBoxError:
        return None
    has_nanny = _is_nanny_running(box.identity)
    if has_nanny and box.written_at > time.time() - _NANNY_REPORT_S:
        return None
    return death_report.report_found_box(
        box,
        stderr=last_stderr(path, box, just_now=False),
        is_nanny_running=has_nanny if box.identity.get("nanny") else None,
    )


def _is_nanny_running(identity: Mapping[str, str]) -> bool:
    pid, started = identity.get("nanny_pid", ""), identity.get("nanny_started_ms", "")
    if not (pid.isdecimal() and started.isdecimal()) or identity.get("boot_id", "") != boot_id():
        return False
    return is_running(int(pid), int(started))
