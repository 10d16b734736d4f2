"""
How a process ended, and whether somebody had told it to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workerdiag.model.evidence import Event, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.stop_reasons import is_stop_request
from workerdiag.sources.recorder.selection import RecordedDeath
from workerdiag.wire.constants import RECORDER

_REASON_CHARS = 200


def exit_evidence(death: RecordedDeath, identity: Identity) -> Iterator[Event | ProcessExit]:
    """
    The order to end, if there was one, and the end as far as anybody was told.
    """
    if death.report.get("source") == "orphan" and not death.record:
        yield _orphan_exit(death, identity)
        return
    if death.was_asked_to_stop:
        status = death.report.get("nanny_status")
        yield _stop_request(death, identity, "nanny_status", status if isinstance(status, str) else None)
    yield from _process_exit(death, identity)


def _orphan_exit(death: RecordedDeath, identity: Identity) -> Event | ProcessExit:
    """
    The end of a process of which nothing but its black box is left: nobody was told how it ended.
    """
    box = death.report.get("box")
    state = str(box.get("state")) if isinstance(box, Mapping) else ""
    stage, _, reason = state.partition(": ")
    if stage in ("closing", "closed") and is_stop_request(reason):
        return _stop_request(death, identity, "reason", reason)
    signal = _exit_number_or_none(_exit_fields(death).get("signal"))
    by = "faulthandler's dump" if signal is not None else "its black box"
    return ProcessExit(
        identity=identity, signal=signal, when=death.when or None, reporter=f"{RECORDER} ({by})"
    )


def _stop_request(death: RecordedDeath, identity: Identity, name: str, reason: str | None) -> Event:
    """
    That somebody had told the worker to stop, or its nanny to stop it or to close.
    """
    fields = {"action": "asked-to-stop", name: reason[:_REASON_CHARS] if reason else None}
    return Event(topic="recorder", fields=fields, when=death.when or None, identity=identity)


def _process_exit(death: RecordedDeath, identity: Identity) -> Iterator[ProcessExit]:
    """
    How the process ended. A process that nobody but its nanny knew, and that was told to stop, is no death.
    """
    exit_ = _exit_fields(death)
    signal, status = _exit_number_or_none(exit_.get("signal")), _exit_number_or_none(exit_.get("status"))
    by_dump = death.report.get("source") == "orphan" and signal is not None
    if (signal is None and status is None) or not (exit_.get("certain") is True or by_dump):
        return
    if not death.record and death.report.get("asked") is True:
        return
    said_by = f"{RECORDER} (faulthandler's dump)" if by_dump and not exit_.get("certain") else RECORDER
    yield ProcessExit(
        identity=identity, signal=signal, status=status, when=death.when or None, reporter=said_by
    )


def _exit_fields(death: RecordedDeath) -> Mapping[str, Any]:
    exit_ = death.report.get("exit")
    return exit_ if isinstance(exit_, Mapping) else {}


def _exit_number_or_none(value: object) -> int | None:
    """
    A signal or an exit status; Windows has statuses of 32 bits.
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 else None
