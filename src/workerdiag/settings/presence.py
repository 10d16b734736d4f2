"""
Whether anybody has configured workerdiag, found out without Dask.
"""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from workerdiag.settings.defaults import ROOT

#: Variables that move Dask's configuration, or hand all of it over (dask/config.py, 2024.8.1 to 2026.8.0).
_DASK_VARIABLES = ("DASK_CONFIG", "DASK_ROOT_CONFIG", "DASK_INTERNAL_INHERIT_CONFIG")
_OWN_VARIABLE = f"DASK_{ROOT.upper()}__"
_MENTION = re.compile(rb"^[^#\n]*\bworkerdiag\b", re.MULTILINE)
_ENDINGS = (".yaml", ".yml", ".json")


def is_configured() -> bool:
    """
    Whether Dask's configuration is loaded, or says something about workerdiag.
    """
    return "dask.config" in sys.modules or _is_mentioned()


@cache
def _is_mentioned() -> bool:
    if any(name.upper().startswith(_OWN_VARIABLE) or name in _DASK_VARIABLES for name in os.environ):
        return True
    return any(_mentions(path) for path in _configuration_files())


def _configuration_files() -> Iterator[Path]:
    """
    The files that Dask reads (``dask.config._get_paths``).
    """
    folders = (
        Path("/etc/dask"),
        *(Path(prefix, "etc", "dask") for prefix in dict.fromkeys((sys.prefix, *site.PREFIXES))),
        Path("~/.config/dask").expanduser(),
    )
    for folder in folders:
        try:
            yield from (each for each in folder.iterdir() if each.suffix.lower() in _ENDINGS)
        except OSError:  # it is not there, or not ours to read, which Dask passes over too
            continue


def _mentions(path: Path) -> bool:
    try:
        return _MENTION.search(path.read_bytes()) is not None
    except OSError:
        return False
