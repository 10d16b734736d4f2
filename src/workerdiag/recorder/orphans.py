"""
Boxes of workers that nobody told of, because their nanny died with them or there was none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workerdiag.procfs.processes import boot_id, is_running
from workerdiag.recorder import messages
from workerdiag.recorder.box import directories
from workerdiag.recorder.nanny.delivery import BoxLock, deliver, discard_delivered, load_message
from workerdiag.recorder.stderr.last_output import last_stderr

#: So many are told by one process; the rest by the next.
MAX_REPORTED = 16
#: A nanny that lives tells of its worker within this time, or never.
_NANNY_REPORT_S = 30.0


class OrphanedBox(NamedTuple):
    """
    A dead worker's box, ours to tell of.
    """

    path: Path
    claim: BoxLock
    message: Mapping[str, Any]


async def report_orphans(server: Any) -> int:
    """
    Tell the scheduler of *server* of each dead worker on this host, once; how many were told.

    The files are read in a thread. What the scheduler does not take is left to whoever looks next.
    """
    reported = 0
    for orphan in await asyncio.to_thread(lambda: list(claim_orphans())):
        with orphan.claim:
            if await deliver(server, orphan.message):
                discard_delivered(orphan.path)
                reported += 1
    return reported


def claim_orphans() -> Iterator[OrphanedBox]:
    """
    The orphans in this user's folders that nobody else is telling of. Old ones are thrown away unread.
    """
    with contextlib.suppress(OSError):
        directories.sweep()
    count = 0
    for path in directories.find_orphans():
        if count == MAX_REPORTED:
            return
        claim = BoxLock(path)
        if claim.held and (message := _orphan_message(path)) is not None:
            count += 1
            yield OrphanedBox(path, claim, message)
        else:
            claim.close()


def _orphan_message(path: Path) -> Mapping[str, Any] | None:
    """
    What to tell of a box: what its nanny meant to tell, or else what it says itself.
    """
    from workerdiag.errors import BadBoxError
    from workerdiag.recorder.box.reader import read_box

    if (saved := load_message(path)) is not None:
        return messages.shorten_message({**saved, "late": True})
    try:
        box = read_box(path)
    except BadBoxError:
        return None
    has_nanny = _is_nanny_running(box.identity)
    if has_nanny and box.written_at > time.time() - _NANNY_REPORT_S:
        return None
    facts = {
        "when": box.written_at,
        "exit": messages.exit_from_dump(box.fault),
        "stderr": last_stderr(path, box, just_now=False),
        "nanny_lives": has_nanny if box.identity.get("nanny") else None,
    }
    return messages.make_message("orphan", facts, box)


def _is_nanny_running(identity: Mapping[str, str]) -> bool:
    pid, started = identity.get("nanny_pid", ""), identity.get("nanny_started_ms", "")
    if not (pid.isdecimal() and started.isdecimal()) or identity.get("boot_id", "") != boot_id():
        return False
    return is_running(int(pid), int(started))
