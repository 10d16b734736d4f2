"""Delivery of death reports to the scheduler.

An undelivered report stays in a file next to the box. The next nanny on the host, or the next worker without
a nanny, delivers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from workerdiag.recorder.box.companions import message_path
from workerdiag.recorder.box.directories import discard
from workerdiag.wire.constants import DEATH_TOPIC

if TYPE_CHECKING:
    from workerdiag.model.dask import Method, Server
    from workerdiag.wire.messages import DeathReport

#: Delay before each attempt, in seconds; a scheduler that is still unreachable may be gone for good.
_RETRY_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
_ATTEMPT_TIMEOUT_S = 5.0
_MAX_BYTES = 256 * 1024


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
            report = decode_message(json.loads(file.read(_MAX_BYTES)))
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

    Each attempt opens a new connection, because a closing server has closed its own.

    Args:
        server: A worker or nanny; supplies the scheduler's address and connection arguments (TLS).
        report: As returned by `make_report`.
    """
    from distributed.core import rpc

    from workerdiag.wire.messages import encode_message

    connect = cast("Method", rpc)
    for wait_s in _RETRY_DELAYS_S:
        await asyncio.sleep(wait_s)
        try:
            async with (
                asyncio.timeout(_ATTEMPT_TIMEOUT_S),
                connect(server.scheduler.address, connection_args=server.connection_args) as scheduler,
            ):
                await scheduler.log_event(topic=DEATH_TOPIC, msg=encode_message(report))
        except Exception:  # noqa: BLE001, S112  the network raises anything
            continue
        return True
    return False


class BoxLock(contextlib.AbstractContextManager["BoxLock"]):
    """The lock on a box, held by its worker and then by the one process that reports it.

    Attributes:
        held: Whether this process holds the lock and the box still exists.
    """

    def __init__(self, box: Path) -> None:
        self.held = False
        self._descriptor = -1
        try:
            self._descriptor = os.open(box, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self.held = _try_lock(self._descriptor) and os.fstat(self._descriptor).st_nlink > 0
        except (OSError, AttributeError):  # Windows has no O_NOFOLLOW, and no boxes
            self.close()

    def close(self) -> None:
        """Release the lock."""
        self.held = False
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __exit__(self, *_: object) -> None:
        self.close()


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
