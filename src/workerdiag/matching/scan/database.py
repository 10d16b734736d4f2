"""
The compiled hyperscan database of a set of literals, kept between processes.

Compiling takes some 90 ms for the shipped rules, loading a kept one 0.3 ms. It is kept under
the user's cache directory, by the hash of all that went into it; where that cannot be
written, each process compiles its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from workerdiag.matching.scan import cache_files

try:
    import hyperscan
except ImportError:  # no wheel for this platform
    hyperscan = None  # type: ignore[assignment]

_DIGEST_BYTES = 32
#: Databases that are kept: of the shipped rules, and of some sets of one's own.
MOST_KEPT = 8
_MOST_BYTES = 64 * 2**20


def available() -> bool:
    """
    Whether hyperscan is there.
    """
    return hyperscan is not None


def database(texts: Sequence[bytes]) -> hyperscan.Database:
    """
    A database that reports the index of each of *texts*, ignoring case, ready to scan.
    """
    kept = _cache_file(texts)
    loaded = _loaded(kept)
    if loaded is not None:
        return loaded
    compiled = _compiled(texts)
    _keep(kept, hyperscan.dumpb(compiled))
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
    Named by everything that the compiled form depends on; None where there is no home.
    """
    made_of = (
        str(getattr(hyperscan, "__version__", "")),
        platform.machine(),
        platform.processor(),
        *map(bytes.hex, texts),
    )
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:32]
    with contextlib.suppress(RuntimeError, OSError):  # no home directory
        return cache_folder() / f"literals-{name}.hsdb"
    return None


def _loaded(kept: Path | None) -> hyperscan.Database | None:
    """
    The kept database, if it is there, ours and whole.
    """
    if kept is None:
        return None
    try:
        content = cache_files.read(kept, most_bytes=_MOST_BYTES)
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            return None
        loaded = hyperscan.loadb(data, mode=hyperscan.HS_MODE_BLOCK)
        loaded.scratch = hyperscan.Scratch(loaded)
    except (OSError, hyperscan.HyperscanError, hyperscan.error):
        return None
    return loaded


def _keep(kept: Path | None, data: bytes) -> None:
    if kept is None:
        return
    with contextlib.suppress(OSError):
        cache_files.write(kept, hashlib.sha256(data).digest() + data)
        _forget_old(kept.parent)


def _forget_old(folder: Path) -> None:
    """
    Each set of rules has a file of its own; of those, the newest stay.
    """
    files = sorted(folder.glob("literals-*.hsdb"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in files[MOST_KEPT:]:
        each.unlink(missing_ok=True)


def _compiled(texts: Sequence[bytes]) -> hyperscan.Database:
    compiled = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    compiled.compile(
        expressions=list(texts),
        ids=list(range(len(texts))),
        elements=len(texts),
        flags=hyperscan.HS_FLAG_CASELESS,
        literal=True,
    )
    return compiled
