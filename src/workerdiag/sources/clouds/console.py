"""
What the kernel wrote to the console of a virtual machine around a death.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from workerdiag.model.evidence import LogChunk
from workerdiag.model.identity import Identity
from workerdiag.sources.machine_match import without_pid

#: ``printk`` puts the seconds since the start before each line (man 1 dmesg).
_STAMP = re.compile(r"\[ *(?P<seconds>\d{1,9}\.\d{6})\]")
#: Only the end of a console is of interest.
_MAX_CHARACTERS = 256 * 1024
#: Around the death; machines take up to a minute from their start to the kernel's.
_BEFORE_S = 150.0
_AFTER_S = 90.0


def console_excerpt(console: str, *, started: float | None, missed: float | None) -> bytes:
    """
    The lines with a kernel time stamp near the death; empty if there are none, or times are not known.

    Args:
        console: Text of the serial console.
        started: When the machine was started last.
        missed: When the worker was found to be gone.
    """
    if started is None or missed is None:
        return b""
    uptime_s = missed - started
    excerpt = []
    for line in console[-_MAX_CHARACTERS:].splitlines():
        stamp = _STAMP.search(line)
        if stamp and -_BEFORE_S <= float(stamp["seconds"]) - uptime_s <= _AFTER_S:
            excerpt.append(line[stamp.start() :])
    return "".join(f"{line}\n" for line in excerpt).encode()


def console_chunks(origin: str, excerpt: bytes, identity: Identity) -> Iterator[LogChunk]:
    """
    An excerpt, if it says anything; the kernel counts processes otherwise than the container does.
    """
    if excerpt:
        yield LogChunk(origin=origin, data=excerpt, stream="kernel", identity=without_pid(identity))
