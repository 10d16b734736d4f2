"""Signals by number, name and words, and the exit statuses that stand for a signal."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The exit status that Dask also reports if it could not read the real one (``AsyncProcess`` in process.py).
UNREADABLE_STATUS = 255
_MAX_SIGNAL = 64

#: Linux signal numbers by name: first the name without SIG, then the words of strsignal(3), of Go's
#: `syscall.Signal`, of zsh and of Slurm.
_NUMBERS: Mapping[str, int] = {
    name: number
    for number, names in {
        1: ("hup", "hangup"),
        2: ("int", "interrupt"),
        3: ("quit",),
        4: ("ill", "illegal instruction", "illegal hardware instruction"),
        5: ("trap", "trace trap", "trace/breakpoint trap"),
        6: ("abrt", "abort", "aborted", "iot"),
        7: ("bus", "bus error"),
        8: ("fpe", "floating point exception", "floating-point exception", "arithmetic exception"),
        9: ("kill", "killed"),
        10: ("usr1", "user defined signal 1"),
        11: ("segv", "segmentation fault", "segmentation violation"),
        12: ("usr2", "user defined signal 2"),
        13: ("pipe", "broken pipe"),
        14: ("alrm", "alarm clock"),
        15: ("term", "terminated"),
        24: ("xcpu", "cpu time limit exceeded"),
        25: ("xfsz", "file size limit exceeded"),
        31: ("sys", "bad system call"),
    }.items()
    for name in names
}
#: Windows exit statuses by the name of the exception (ntstatus.h).
_WINDOWS_STATUSES: Mapping[str, int] = {
    "status_access_violation": 0xC0000005,
    "status_in_page_error": 0xC0000006,
    "status_illegal_instruction": 0xC000001D,
    "status_float_divide_by_zero": 0xC000008E,
    "status_float_invalid_operation": 0xC0000090,
    "status_integer_divide_by_zero": 0xC0000094,
    "status_stack_overflow": 0xC00000FD,
    "status_dll_not_found": 0xC0000135,
    "status_entrypoint_not_found": 0xC0000139,
    "status_control_c_exit": 0xC000013A,
    "status_dll_init_failed": 0xC0000142,
    "status_heap_corruption": 0xC0000374,
    "status_stack_buffer_overrun": 0xC0000409,
}


def signal_number(text: str | None) -> int | None:
    """Return the signal that *text* names: ``11``, ``SIGSEGV``, ``SEGV`` or ``Segmentation fault``; else None."""
    words = " ".join((text or "").lower().split())
    if words.isascii() and words.isdigit():
        number = int(words[:4])
        return number if 0 < number <= _MAX_SIGNAL else None
    return _NUMBERS.get(words.removeprefix("sig").strip())


def signal_name(number: int) -> str | None:
    """Return the name of a signal on Linux, such as ``SIGSEGV``; None if the signal ends no worker."""
    return next((f"SIG{name.upper()}" for name, each in _NUMBERS.items() if each == number), None)


def signal_of_status(status: int) -> int | None:
    """Return the signal of an exit status, or None: 128 + n from shells, 256 + n from PBS, -n from Python."""
    if -_MAX_SIGNAL <= status < 0:
        return -status
    return next((status - each for each in (128, 256) if 0 < status - each <= _MAX_SIGNAL), None)


def reported_exit(captures: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return signal and status, one of them None, from the captures ``signal``, ``signal_name`` or ``status``."""
    signal = signal_number(captures.get("signal")) or signal_number(captures.get("signal_name"))
    status = _status(captures.get("status"))
    if signal is None and status is not None:
        signal = signal_of_status(status)
    return (signal, None) if signal is not None else (None, status)


def _status(text: str | None) -> int | None:
    if known := _WINDOWS_STATUSES.get((text or "").lower()):
        return known
    if re.fullmatch(r"0x[0-9a-f]{8}", text or "", re.IGNORECASE):
        return int(text or "", 16)
    if not re.fullmatch(r"-?\d{1,10}", text or "", re.ASCII):
        return None
    status = int(text or "")
    return status + 2**32 if status < -_MAX_SIGNAL else status
