"""
Values from Dask's configuration, checked against the schema, and where they were set.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

from workerdiag.errors import error_text
from workerdiag.settings import DEFAULTS_FILE, ROOT, SCHEMA_FILE, Value, defaults
from workerdiag.settings.validation import Rule, allowed_text, is_allowed

_INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
#: No value of any setting.
_NOTHING = object()
logger = logging.getLogger("workerdiag.settings")
#: Characters of a wrong value that are shown.
_SHOWN_CHARS = 80


def configured_value(key: str, default: Value) -> object:
    """
    What Dask's configuration says, or *default* if that cannot be used; never raises.
    """
    try:
        import dask.config

        load_defaults()
        for problem in unusable_entries():
            _log_once(problem)
        value = dask.config.get(f"{ROOT}.{key}", default)
    except Exception as problem:  # noqa: BLE001  a file that is no YAML must not hide why a worker died
        _log_once(f"cannot read Dask's configuration: {error_text(problem)}; the defaults hold")
        return default
    return value if value == default or is_allowed(value, rules()[key]) else default


def unusable_entries() -> Iterator[str]:
    """
    A sentence for each key that does not exist, and for each value that is not allowed.
    """
    import dask.config

    known = defaults()
    for key, value in _leaves(dask.config.get(ROOT, None)):
        if key not in known:
            yield _unknown_key_text(key)
        elif value != known[key] and not is_allowed(value, rules()[key]):
            allowed = allowed_text(rules()[key])
            yield (
                f"{ROOT}.{key} cannot be {_shown(value)} (from {origin(key, value)}): "
                f"it must be {allowed}; the default {_shown(known[key])} holds"
            )


@cache
def load_defaults() -> None:
    """
    Add the defaults to Dask's configuration, and a sample file to the folder of the user's own, once.
    """
    import dask.config

    for problem in unusable_entries():  # a text in place of a section is overwritten below
        _log_once(problem)
    with suppress(Exception):  # a home that is no folder, or cannot be written
        dask.config.ensure_file(source=str(DEFAULTS_FILE))
    ours: dict[str, object] = {}
    for key, value in defaults().items():
        dask.config.set({key: value}, config=ours)
    dask.config.update_defaults({ROOT: ours})


@cache
def schema() -> Mapping[str, Any]:
    """
    The schema of the settings, as JSON Schema has it.
    """
    import dask.config

    (found,) = dask.config.collect_yaml([str(SCHEMA_FILE)])
    return found


@cache
def rules() -> Mapping[str, Rule]:
    """
    What the schema says of each setting, by its key.
    """
    return dict(_settings_of(schema()["properties"][ROOT]))


def origin(key: str, value: object) -> str:
    """
    Who said so, the strongest first: Python, the environment, a file of Dask's configuration, the default.
    """
    import dask.config

    name = f"{ROOT}.{key}"
    if dask.config.get(name, _NOTHING, config=dask.config.collect_env()) == value:
        return _variable(name)
    files = list(dask.config.collect_yaml(dask.config.paths, return_paths=True))
    for path, content in reversed(files):
        if dask.config.get(name, _NOTHING, config=content) == value:
            return str(path)
    return "the default" if defaults().get(key, _NOTHING) == value else "dask.config.set in Python"


def _variable(name: str) -> str:
    for each in os.environ:
        if each.startswith("DASK_") and each[5:].lower().replace("__", ".").replace("_", "-") == name:
            return f"the variable {each}"
    return f"the process that started this one ({_INHERITED})"


def _settings_of(section: Mapping[str, Any]) -> Iterator[tuple[str, Rule]]:
    for name, entry in section["properties"].items():
        if "properties" in entry:
            yield from ((f"{name}.{key}", rule) for key, rule in _settings_of(entry))
        else:
            yield name, entry


def _leaves(section: object, above: str = "") -> Iterator[tuple[str, object]]:
    """
    Key and value of all that is configured; ``append_to`` and ``append-to`` are one key.
    """
    if not isinstance(section, Mapping):
        if above or section is not None:
            yield above, section
        return
    for name, entry in section.items():
        yield from _leaves(entry, ".".join(filter(None, (above, str(name).replace("_", "-")))))


def _unknown_key_text(key: str) -> str:
    place = f"{ROOT}.{key}".rstrip(".")
    if any(each.startswith(f"{key}.") for each in defaults()) or not key:
        return f"{place} is a section of settings, and no setting: `workerdiag settings` lists all"
    near = get_close_matches(key, defaults(), n=1)
    hint = f"did you mean {ROOT}.{near[0]}?" if near else "`workerdiag settings` lists all."
    return f"there is no setting {place}: {hint} It has no effect"


def _shown(value: object) -> str:
    from workerdiag.redaction.secrets import redact_text

    return redact_text(repr(value)[:_SHOWN_CHARS])


@cache
def _log_once(problem: str) -> None:
    logger.warning("workerdiag: %s", problem)
