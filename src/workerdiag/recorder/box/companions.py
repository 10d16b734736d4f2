"""Files next to a black box: the dump of faulthandler, the copy of standard error, the undelivered report."""

from __future__ import annotations

from pathlib import Path


def fault_path(path: Path) -> Path:
    """The file next to a box to which `faulthandler` writes."""
    return path.with_name(path.name + ".fault")


def stderr_path(path: Path) -> Path:
    """The file next to a box to which standard error is copied, if configured."""
    return path.with_name(path.name + ".stderr")


def message_path(box: Path) -> Path:
    """The file next to a box that keeps an undelivered report."""
    return box.with_name(box.name + ".death")
