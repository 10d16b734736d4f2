"""The report of a worker's death from a black box found later, on a volume or in a copy."""

from __future__ import annotations

import os
import time
from pathlib import Path

from workerdiag.procfs_and_cgroups import boot_id
from workerdiag.recorder.box.directories import SILENCE_S, is_orphan
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.death_report import report_found_box
from workerdiag.recorder.last_output import last_stderr
from workerdiag.wire import BOX_MAGIC
from workerdiag.wire.messages import DeathReport


def death_message(place: str, data: bytes, fault: bytes) -> DeathReport | None:
    """The report of a worker's death from its box; None if the worker may still run.

    The worker is dead if the box says that it closed or faulthandler wrote a dump. Otherwise, a box on this
    machine (*place* is its path) must be unlocked or its process gone, and any other box last written ten minutes
    ago. *fault* is the content of its faulthandler dump.

    Raises:
        BadBoxError: The data is not a black box, or has another format.
    """
    path = Path(place)
    box = read_box(data).with_stacks(fault.decode("utf-8", "replace"))
    lies_here = _is_box_file(path)
    silent = is_orphan(path) if lies_here else box.written_at < time.time() - SILENCE_S
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
