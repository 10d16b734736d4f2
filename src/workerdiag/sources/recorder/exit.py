"""
How a process ended, and whether somebody had told it to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workerdiag.model.evidence import Event, Identity, ProcessExit
from workerdiag.model.stop_reasons import was_asked
from workerdiag.sources.recorder.selection import Death

SAID_BY = "flight recorder"
_REASON_CHARS = 200


def ending(death: Death, whose: Identity) -> Iterator[Event | ProcessExit]:
    """
    The order to end, if there was one, and the end as far as anybody was told.
    """
    if death.told.get("source") == "orphan" and not death.record:
        yield _left_behind(death, whose)
        return
    if death.was_ordered:
        said = death.told.get("nanny_status")
        yield _order(death, whose, "nanny_status", said if isinstance(said, str) else None)
    yield from _exit(death, whose)


def _left_behind(death: Death, whose: Identity) -> Event | ProcessExit:
    """
    The end of a process of which nothing but its black box is left: nobody was told how it ended.
    """
    box = death.told.get("box")
    state = str(box.get("state")) if isinstance(box, Mapping) else ""
    stage, _, reason = state.partition(": ")
    if stage in ("closing", "closed") and was_asked(reason):
        return _order(death, whose, "reason", reason)
    signal = _small(_exit_told(death).get("signal"))
    by = "faulthandler's dump" if signal is not None else "its black box"
    return ProcessExit(whose=whose, signal=signal, when=death.when or None, said_by=f"{SAID_BY} ({by})")


def _order(death: Death, whose: Identity, name: str, said: str | None) -> Event:
    """
    That somebody had told the worker to stop, or its nanny to stop it or to close.
    """
    fields = {"action": "asked-to-stop", name: said[:_REASON_CHARS] if said else None}
    return Event(topic="recorder", fields=fields, when=death.when or None, whose=whose)


def _exit(death: Death, whose: Identity) -> Iterator[ProcessExit]:
    """
    How the process ended. A process that nobody but its nanny knew, and that was told to stop, is no death.
    """
    exit_ = _exit_told(death)
    signal, status = _small(exit_.get("signal")), _small(exit_.get("status"))
    by_dump = death.told.get("source") == "orphan" and signal is not None
    if (signal is None and status is None) or not (exit_.get("certain") is True or by_dump):
        return
    if not death.record and death.told.get("asked") is True:
        return
    said_by = f"{SAID_BY} (faulthandler's dump)" if by_dump and not exit_.get("certain") else SAID_BY
    yield ProcessExit(whose=whose, signal=signal, status=status, when=death.when or None, said_by=said_by)


def _exit_told(death: Death) -> Mapping[str, Any]:
    said = death.told.get("exit")
    return said if isinstance(said, Mapping) else {}


def _small(value: object) -> int | None:
    """
    A signal or an exit status; Windows has statuses of 32 bits.
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 else None
