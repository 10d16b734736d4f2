"""
The report of a worker's death in a black box that is found later, on a volume or in a copy.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from attrs import evolve

from workerdiag.procfs.processes import boot_id
from workerdiag.recorder.box.directories import SILENCE_S, is_orphan
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.death_report import report_found_box
from workerdiag.recorder.stderr.last_output import last_stderr
from workerdiag.wire.black_box import BlackBox
from workerdiag.wire.constants import BOX_MAGIC
from workerdiag.wire.messages import DeathReport


def death_message(place: str, data: bytes, fault: bytes) -> DeathReport | None:
    """
    The report of a worker's death, as whoever finds an orphaned box sends it; None if it may still run.

    A box that lies on this machine is of the dead when nobody holds its lock, or its process is gone. Of
    another place or in a packed copy it is when it says that the worker closed, when faulthandler wrote a
    dump, or when nothing was written for ten minutes.

    Args:
        place: Where it was found; a path, if it lies on this machine.
        data: All of it.
        fault: What faulthandler wrote beside it.

    Raises:
        BadBoxError: It is no black box, or of another format.
    """
    path = Path(place)
    box = evolve(read_box(data), faulthandler_dump=fault.decode("utf-8", "replace"))
    lies_here = _is_box_file(path)
    silent = is_orphan(path) if lies_here else box.written_at < time.time() - SILENCE_S
    if not (silent or _has_ended(box)):
        return None
    is_ours = lies_here and _is_own_box(path, box)
    return report_found_box(box, stderr=last_stderr(path, box, just_now=False) if is_ours else None)


def _has_ended(box: BlackBox) -> bool:
    return "Fatal Python error" in box.faulthandler_dump or box.stage == "closed"


def _is_own_box(path: Path, box: BlackBox) -> bool:
    """
    Whether this user's worker wrote it since this machine started.

    Any other could name any file of this machine as its standard error.
    """
    return box.identity.get("boot_id") == boot_id() and path.stat().st_uid == os.getuid()


def _is_box_file(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(BOX_MAGIC)) == BOX_MAGIC
    except (OSError, ValueError):
        return False
