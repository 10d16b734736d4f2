"""
Files beside a black box: the dump of faulthandler, the copy of standard error, the undelivered report.
"""

from __future__ import annotations

from pathlib import Path


def fault_path(path: Path) -> Path:
    """
    The companion of a box, to which `faulthandler` writes.
    """
    return path.with_name(path.name + ".fault")


def stderr_path(path: Path) -> Path:
    """
    The companion of a box that standard error is copied to, if that is asked for.
    """
    return path.with_name(path.name + ".stderr")


def message_path(box: Path) -> Path:
    """
    Where the message about a death is kept, beside the victim's box.
    """
    return box.with_name(box.name + ".death")
