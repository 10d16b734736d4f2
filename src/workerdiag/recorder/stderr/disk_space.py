"""
Room on the disk for a file that grows at one end and is consumed at the other (``man 2 fallocate``).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

#: Flags of the kernel's include/uapi/linux/falloc.h.
_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02


def reserve_space(descriptor: int, offset: int, count: int) -> None:
    """
    Keep room for *count* bytes from *offset* on, also behind the end of the file, which stays where it is.

    Raises:
        OSError: There is no such room, or the file system does not keep any.
    """
    _fallocate(descriptor, _KEEP_SIZE, offset, count)


def release_space(descriptor: int, offset: int, count: int) -> None:
    """
    Give back the room of *count* bytes from *offset* on; they read as zeros from then on.

    Raises:
        OSError: The file system cannot do that.
    """
    _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, count)


def _fallocate(descriptor: int, mode: int, offset: int, count: int) -> None:
    if _libc_fallocate()(descriptor, mode, offset, count):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc_fallocate() -> Any:
    """
    The C library's function, with offsets of 64 bits.

    Raises:
        OSError: There is none: this is not Linux.
    """
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        raise OSError("this system has no fallocate")
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
