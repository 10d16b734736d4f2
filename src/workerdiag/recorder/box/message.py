"""
What a black box tells of its worker's death to whoever finds it later, on a volume or in a copy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from workerdiag.procfs.processes import boot_id
from workerdiag.recorder import messages
from workerdiag.recorder.box.contents import BlackBox
from workerdiag.recorder.box.directories import SILENCE_S, is_orphan
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.stderr.last_output import last_stderr
from workerdiag.wire.constants import BOX_MAGIC


def death_message(place: str, data: bytes, fault: bytes) -> Mapping[str, Any] | None:
    """
    The message of a worker's death, as whoever finds an orphaned box tells it; None if it may still run.

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
    box = evolve(read_box(data), fault=fault.decode("utf-8", "replace"))
    lies_here = _is_box_file(path)
    silent = is_orphan(path) if lies_here else box.written_at < time.time() - SILENCE_S
    if not (silent or _has_ended(box)):
        return None
    facts = {
        "when": box.written_at,
        "exit": messages.exit_from_dump(box.fault),
        "stderr": last_stderr(path, box, just_now=False) if lies_here and _is_own_box(path, box) else None,
    }
    return messages.make_message("orphan", facts, box)


def _has_ended(box: BlackBox) -> bool:
    return "Fatal Python error" in box.fault or box.state.startswith("closed")


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
