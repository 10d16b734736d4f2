"""
How the report of a death gets to the scheduler, and what happens to it if it does not.

It is kept as a file beside the box until the scheduler has it, so whoever looks at that folder next
(the next nanny on the host, or the next worker without one) can deliver it.
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

#: Seconds before each try; a scheduler that is not there by then may be gone for good.
_RETRY_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
_ATTEMPT_TIMEOUT_S = 5.0
_MAX_BYTES = 256 * 1024


def save_report(box: Path, report: DeathReport) -> None:
    """
    Keep a report until it is delivered; a disk that is full or read-only keeps none.
    """
    from workerdiag.wire.messages import encode_message

    path = message_path(box)
    unfinished = path.with_name(f".{path.name}.new")
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps(encode_message(report), default=str), encoding="utf-8")
        unfinished.replace(path)


def load_report(box: Path) -> DeathReport | None:
    """
    The report that was kept beside a box; None if there is none that can be read.
    """
    from workerdiag.wire.messages import DeathReport, decode_message

    try:
        with message_path(box).open("rb") as file:
            report = decode_message(json.loads(file.read(_MAX_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None
    return report if isinstance(report, DeathReport) else None


def discard_delivered(box: Path) -> None:
    """
    Remove a box whose death was reported, and its companions.
    """
    discard(box)
    with contextlib.suppress(OSError):
        message_path(box).unlink(missing_ok=True)


async def deliver(server: Server, report: DeathReport) -> bool:
    """
    Send the report; returns whether the scheduler took it.

    A connection of its own is made each time: those of a server that is closing are closed already.

    Args:
        server: A worker or nanny; says where the scheduler is and how to connect, TLS included.
        report: As `make_report` returns it.
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
    """
    The right to report a box: its lock, which its writer held while it lived, and one reporter can hold.

    Attributes:
        held: Whether this is the one, and the box is still there.
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
        """
        Give it back.
        """
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
