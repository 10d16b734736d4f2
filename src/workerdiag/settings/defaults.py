"""
The files of the package that hold the defaults and the schema of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parents[1]
DEFAULTS_FILE = _FOLDER / "workerdiag.yaml"
SCHEMA_FILE = _FOLDER / "workerdiag-schema.yaml"
#: The section of Dask's configuration that is ours.
ROOT = "workerdiag"

_LINE = re.compile(r"(?P<indent> *)(?P<name>[\w-]+):(?: +(?P<value>[^\s#][^#]*?))?\s*(?:#.*)?")
_NUMBER = re.compile(r"\d+")

Value = str | int | None


@cache
def defaults() -> Mapping[str, Value]:
    """
    The default of each setting, by its key without the section's name: ``recorder.deaths``.
    """
    return dict(_plain_values(DEFAULTS_FILE.read_text(encoding="utf-8")))


def _plain_values(text: str) -> Iterator[tuple[str, Value]]:
    """
    The values of our own file, which has sections, names, plain values and comments only.

    Importing a YAML reader takes 50 ms, a fifth of what a report on a log takes.
    """
    above: list[tuple[int, str]] = []
    for found in filter(None, map(_LINE.fullmatch, text.splitlines())):
        indent = len(found["indent"])
        above = [each for each in above if each[0] < indent]
        above.append((indent, found["name"]))
        if found["value"] is not None:
            yield ".".join(name for _, name in above[1:]), _plain_value(found["value"])


def _plain_value(text: str) -> Value:
    if text == "null":
        return None
    return int(text) if _NUMBER.fullmatch(text) else text
