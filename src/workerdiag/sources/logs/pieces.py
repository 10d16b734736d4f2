"""
What a reader hands on: parts of logs, and what was found in files that are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from workerdiag.model.evidence import Evidence, Gap, Inspected
from workerdiag.sources.logs.inputs import LogHandle

if TYPE_CHECKING:
    from workerdiag.sources.recorder.record_lines import ParsedRecord
    from workerdiag.wire.messages import DeathReport

#: Name and bytes of a zip archive to the evidence in it; None: it is no death bundle.
Unbundle = Callable[[str, bytes], Sequence[Evidence] | None]
#: Place and bytes of a black box, and what faulthandler wrote beside it, to the report of its worker's
#: death; None: the worker may still run.
Unbox = Callable[[str, bytes, bytes], "DeathReport | None"]


class ContainerOpeners(NamedTuple):
    """
    What makes something of files that are no logs; None: nothing does.
    """

    unbundle: Unbundle | None = None
    unbox: Unbox | None = None


class LogBlock(NamedTuple):
    """
    The next bytes of a log.
    """

    log: LogHandle
    data: bytes


class BundlePiece(NamedTuple):
    """
    A piece of evidence out of a bundle.
    """

    piece: Evidence


class RecordPiece(NamedTuple):
    """
    A record of a death.
    """

    record: ParsedRecord


ReaderPiece = LogBlock | BundlePiece | RecordPiece | Gap | Inspected
