"""Settings, as Dask has them: ``workerdiag.*`` in its configuration files and ``DASK_WORKERDIAG__*`` variables.

The defaults are in workerdiag.yaml, which Dask gets when a setting is first read; workerdiag-schema.yaml says
which values are allowed. Importing ``dask.config`` takes longer than reading a log does, so a process without
Dask finds out by itself whether anybody has configured workerdiag, and else reads the defaults itself.
"""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from workerdiag.units import parse_duration

_FOLDER = Path(__file__).parents[1]
DEFAULTS_FILE = _FOLDER / "workerdiag.yaml"
SCHEMA_FILE = _FOLDER / "workerdiag-schema.yaml"
#: The section of Dask's configuration that is ours.
ROOT = "workerdiag"

_SETTING_LINE = re.compile(r"(?P<indent> *)(?P<name>[\w-]+):(?: +(?P<value>[^\s#][^#]*?))?\s*(?:#.*)?")
_NUMBER = re.compile(r"\d+")

#: Variables that move Dask's configuration, or hand all of it over (dask/config.py, 2024.8.1 to 2026.8.0).
_DASK_VARIABLES = ("DASK_CONFIG", "DASK_ROOT_CONFIG", "DASK_INTERNAL_INHERIT_CONFIG")
_OWN_VARIABLE = f"DASK_{ROOT.upper()}__"
_MENTION = re.compile(rb"^[^#\n]*\bworkerdiag\b", re.MULTILINE)
_ENDINGS = (".yaml", ".yml", ".json")

Value = str | int | None


def setting(key: str) -> Any:
    """The value of ``workerdiag.<key>``, e.g. of ``recorder.deaths``; raises KeyError for an unknown key.

    The default stands in for a value that cannot be used, which is logged once with what is allowed.
    """
    default = defaults()[key]
    if not is_configured():
        return default
    from workerdiag.settings.configuration import configured_value

    return configured_value(key, default)


def seconds(key: str) -> float:
    """The value of a setting that is a duration, in seconds."""
    return parse_duration(str(setting(key)))


def documentation_url(cause_id: str) -> str:
    """The address of the page of a cause; empty if ``workerdiag.documentation-url`` is not set."""
    base = setting("documentation-url")
    return f"{str(base).rstrip('/')}/causes/{cause_id.replace('.', '/')}.html" if base else ""


@cache
def defaults() -> Mapping[str, Value]:
    """The default of each setting, by its key without the section's name: ``recorder.deaths``."""
    return dict(_plain_values(DEFAULTS_FILE.read_text(encoding="utf-8")))


def _plain_values(text: str) -> Iterator[tuple[str, Value]]:
    """The values of our own file, which has sections, names, plain values and comments only.

    Importing a YAML reader takes 50 ms, a fifth of what a report on a log takes.
    """
    above: list[tuple[int, str]] = []
    for found in filter(None, map(_SETTING_LINE.fullmatch, text.splitlines())):
        indent = len(found["indent"])
        above = [each for each in above if each[0] < indent]
        above.append((indent, found["name"]))
        if found["value"] is not None:
            yield ".".join(name for _, name in above[1:]), _plain_value(found["value"])


def _plain_value(text: str) -> Value:
    if text == "null":
        return None
    return int(text) if _NUMBER.fullmatch(text) else text


def is_configured() -> bool:
    """Whether Dask's configuration is loaded, or says something about workerdiag."""
    return "dask.config" in sys.modules or _is_mentioned()


@cache
def _is_mentioned() -> bool:
    if any(name.upper().startswith(_OWN_VARIABLE) or name in _DASK_VARIABLES for name in os.environ):
        return True
    return any(_mentions(path) for path in _configuration_files())


def _configuration_files() -> Iterator[Path]:
    """The files that Dask reads (``dask.config._get_paths``)."""
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
