"""The compiled hyperscan database of a set of literals, cached on disk.

Compiling the shipped rules takes some 90 ms, loading the cached database 0.3 ms. The file is in the user's
cache directory, and its name is a hash of its inputs. If the directory cannot be written, each process
compiles its own. A link, a pipe or another user's file there is ignored.
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
#: Databases to keep: for the shipped rules, and for some of the user's own.
MAX_DATABASES = 8
_MAX_BYTES = 64 * 2**20
#: Flags that not every system has. Without symbolic links they are not needed.
_OPENED_AS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def available() -> bool:
    """Whether hyperscan is installed."""
    return hyperscan is not None


def database(texts: Sequence[bytes], once: Collection[int] = ()) -> hyperscan.Database:
    """Return a database that reports the index of each of *texts*, ignoring case.

    Args:
        texts: The literals.
        once: Numbers of the literals to report once per scan. Such a database is for one log and is not
            cached.
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
    """Working memory for one scan at a time."""
    return hyperscan.Scratch(ready)


def cache_folder() -> Path:
    """Return the cache folder: ``$XDG_CACHE_HOME/workerdiag``, or its counterpart on other systems."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "workerdiag"


def _cache_file(texts: Sequence[bytes]) -> Path | None:
    """Return the cache file, named by a hash of all inputs; None without a home directory.

    Hyperscan itself refuses a database of another processor (HS_DB_PLATFORM_ERROR), and
    `platform.processor` would start ``uname``.
    """
    made_of = (str(getattr(hyperscan, "__version__", "")), platform.machine(), *map(bytes.hex, texts))
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:32]
    with contextlib.suppress(RuntimeError, OSError):  # no home directory
        return cache_folder() / f"literals-{name}.hsdb"
    return None


def _load(cache_file: Path | None) -> hyperscan.Database | None:
    """Return the cached database, if it exists, is ours and complete."""
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
    """Remove all but the newest databases: each set of rules has its own file."""
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
    """Return the content of the file.

    Raises:
        OSError: It does not exist, is not a regular file, or belongs to another user.
    """
    _check_folder(path.parent)
    handle = os.open(path, os.O_RDONLY | _OPENED_AS)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size > most_bytes:
            raise PermissionError(f"{path} is no file of this user's own")
        return file.read(most_bytes)


def write_own_file(path: Path, data: bytes) -> None:
    """Write a file atomically.

    Raises:
        OSError: The folder belongs to another user, or the disk is full.
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
    """Check that the folder is ours: no symbolic link, and not writable by others.

    Raises:
        OSError: It is not, or it does not exist.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not _is_own(found):
        raise PermissionError(f"{folder} is no folder of this user's own")


def _is_own(found: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
