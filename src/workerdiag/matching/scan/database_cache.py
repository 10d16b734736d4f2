"""
The compiled hyperscan database of a set of literals, kept between processes.

Compiling takes some 90 ms for the shipped rules, loading a kept one 0.3 ms. It is kept under
the user's cache directory, by the hash of all that went into it; where that cannot be
written, each process compiles its own. What lies there may be a link, a pipe or somebody else's file:
each is as if nothing lay there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

try:
    import hyperscan
except ImportError:  # no wheel for this platform
    hyperscan = None  # type: ignore[assignment]

_DIGEST_BYTES = 32
#: Databases that are kept: of the shipped rules, and of some sets of one's own.
MAX_DATABASES = 8
_MAX_BYTES = 64 * 2**20
#: Not of every system: without links to follow or users to tell apart there is nothing to ask for.
_OPENED_AS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def available() -> bool:
    """
    Whether hyperscan is there.
    """
    return hyperscan is not None


def database(texts: Sequence[bytes], once: Collection[int] = ()) -> hyperscan.Database:
    """
    A database that reports the index of each of *texts*, ignoring case, ready to scan.

    Args:
        texts: What to look for.
        once: Those that are reported once in a scan; that database is of one log, and not kept.
    """
    if once:
        return _compile_database(texts, once)
    cache_file = _cache_file(texts)
    loaded = _load(cache_file)
    if loaded is not None:
        return loaded
    compiled = _compile_database(texts)
    _save(cache_file, hyperscan.dumpb(compiled))
    return compiled


def scratch(ready: hyperscan.Database) -> hyperscan.Scratch:
    """
    Working memory for one scan at a time.
    """
    return hyperscan.Scratch(ready)


def cache_folder() -> Path:
    """
    Where databases are kept: ``$XDG_CACHE_HOME/workerdiag`` or its like on other systems.
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "workerdiag"


def _cache_file(texts: Sequence[bytes]) -> Path | None:
    """
    Named by what the compiled form depends on; None where there is no home.

    Hyperscan itself refuses a form of another processor (HS_DB_PLATFORM_ERROR), and to ask
    `platform.processor` would start ``uname``.
    """
    made_of = (str(getattr(hyperscan, "__version__", "")), platform.machine(), *map(bytes.hex, texts))
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:32]
    with contextlib.suppress(RuntimeError, OSError):  # no home directory
        return cache_folder() / f"literals-{name}.hsdb"
    return None


def _load(cache_file: Path | None) -> hyperscan.Database | None:
    """
    The kept database, if it is there, ours and whole.
    """
    if cache_file is None:
        return None
    try:
        content = read_own_file(cache_file, most_bytes=_MAX_BYTES)
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            return None
        loaded = hyperscan.loadb(data, mode=hyperscan.HS_MODE_BLOCK)
        loaded.scratch = hyperscan.Scratch(loaded)
    except (OSError, hyperscan.HyperscanError, hyperscan.error):
        return None
    return loaded


def _save(cache_file: Path | None, data: bytes) -> None:
    if cache_file is None:
        return
    with contextlib.suppress(OSError):
        write_own_file(cache_file, hashlib.sha256(data).digest() + data)
        _remove_old(cache_file.parent)


def _remove_old(folder: Path) -> None:
    """
    Each set of rules has a file of its own; of those, the newest stay.
    """
    files = sorted(folder.glob("literals-*.hsdb"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in files[MAX_DATABASES:]:
        each.unlink(missing_ok=True)


def _compile_database(texts: Sequence[bytes], once: Collection[int] = ()) -> hyperscan.Database:
    flags = hyperscan.HS_FLAG_CASELESS
    once_flags = flags | hyperscan.HS_FLAG_SINGLEMATCH
    compiled = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    compiled.compile(
        expressions=list(texts),
        ids=list(range(len(texts))),
        elements=len(texts),
        flags=[once_flags if index in once else flags for index in range(len(texts))],
        literal=True,
    )
    return compiled


def read_own_file(path: Path, *, most_bytes: int) -> bytes:
    """
    What is in the file.

    Raises:
        OSError: It is not there, no file, or not this user's own.
    """
    _check_folder(path.parent)
    handle = os.open(path, os.O_RDONLY | _OPENED_AS)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > most_bytes:
            raise PermissionError(f"{path} is no file of this user's own")
        return file.read(most_bytes)


def write_own_file(path: Path, data: bytes) -> None:
    """
    Put a file there, whole or not at all.

    Raises:
        OSError: The folder is not this user's own, or there is no room.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _check_folder(folder: Path) -> None:
    """
    A folder that others can write to, or that a link leads to, is not ours.

    Raises:
        OSError: That is so, or there is none.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not _is_own(found):
        raise PermissionError(f"{folder} is no folder of this user's own")


def _is_own(found: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
