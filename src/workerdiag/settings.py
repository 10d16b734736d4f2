"""Settings, as Dask has them: ``workerdiag.*`` in its configuration files and ``DASK_WORKERDIAG__*`` variables.

The defaults are in workerdiag.yaml, which Dask gets when a setting is first read; workerdiag-schema.yaml says
which values are allowed. Importing ``dask.config`` takes longer than reading a log does, so a process without
Dask finds out by itself whether anybody has configured workerdiag, and else reads the defaults itself. What
only a configured process needs is imported where it is used.
"""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Required, TypedDict

from workerdiag.guard import guarded
from workerdiag.units import parse_duration

#: Files of the package.
DEFAULTS_FILE, SCHEMA_FILE = "workerdiag.yaml", "workerdiag-schema.yaml"
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
    return configured_value(key, default) if is_configured() else default


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
    return dict(_plain_values(shipped_text(DEFAULTS_FILE)))


def shipped_text(name: str) -> str:
    """Return the text of a file of the package, by its path there; the package may be in a zip file."""
    from importlib_resources import files

    return files("workerdiag").joinpath(name).read_text(encoding="utf-8")


def _plain_values(text: str) -> Iterator[tuple[str, Value]]:
    """The values of our own file, which has sections, names, plain values and comments only.

    Importing a YAML reader takes 50 ms, a fifth of what a report on a log takes.
    """
    above: list[tuple[int, str]] = []
    for found in filter(None, map(_SETTING_LINE.fullmatch, text.splitlines())):
        indent = len(found["indent"])
        above = [each for each in above if each[0] < indent]
        above.append((indent, found["name"]))
        if (text := found["value"]) is not None:
            value = int(text) if _NUMBER.fullmatch(text) else text
            yield ".".join(name for _, name in above[1:]), None if text == "null" else value


def is_configured() -> bool:
    """Whether Dask's configuration is loaded, or says something about workerdiag."""
    return "dask.config" in sys.modules or _is_mentioned()


@cache
def _is_mentioned() -> bool:
    if any(name.upper().startswith(_OWN_VARIABLE) or name in _DASK_VARIABLES for name in os.environ):
        return True
    return any(_MENTION.search(text) for text in _configuration_texts())


def _configuration_texts() -> Iterator[bytes]:
    """The content of the files that Dask reads (``dask.config._get_paths``)."""
    folders = (
        Path("/etc/dask"),
        *(Path(prefix, "etc", "dask") for prefix in dict.fromkeys((sys.prefix, *site.PREFIXES))),
        Path("~/.config/dask").expanduser(),
    )
    for folder in folders:
        with suppress(OSError):  # it is missing, or unreadable, which Dask ignores too
            for path in folder.iterdir():
                if path.suffix.lower() in _ENDINGS:
                    with suppress(OSError):
                        yield path.read_bytes()


#: Our name in the schema for durations as Dask writes them.
DURATION = "duration-of-dask"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_NAMES = {"string": "text", "integer": "a whole number", "number": "a number"}
_INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
#: No value of any setting.
_NOTHING = object()
#: Characters of a wrong value that are shown.
_SHOWN_CHARS = 80


class Rule(TypedDict, total=False):
    """The entry of one setting in the schema."""

    type: Required[str | list[str]]
    enum: list[str | None]
    format: str
    minimum: float
    exclusiveMinimum: float


def is_allowed(value: object, rule: Rule) -> bool:
    """Whether *value* fits the entry of a setting in the schema."""
    if "enum" in rule:
        return value in rule["enum"]
    if isinstance(value, bool) or not isinstance(value, _classes(rule)):
        return False
    if value is None:
        return True
    if rule.get("format") == "url":
        return _is_web_address(str(value))
    if rule.get("format") == DURATION:
        try:
            value = parse_duration(str(value))
        except ValueError:
            return False
    return not isinstance(value, int | float) or _is_within(value, rule)


def allowed_text(rule: Rule) -> str:
    """What `is_allowed` accepts, as the end of a sentence."""
    if "enum" in rule:
        return " or ".join("null" if each is None else str(each) for each in rule["enum"])
    limits = _limits_text(rule)
    if rule.get("format") == DURATION:
        return f"a duration like 10s, 5m or 4h{limits}"
    names = [_NAMES[each] for each in _types(rule) if each in _NAMES]
    if rule.get("format") == "url":
        names = ["an address that begins with http:// or https://"]
    return " or ".join([*names, *(["null"] if "null" in _types(rule) else [])]) + limits


def _types(rule: Rule) -> list[str]:
    named = rule["type"]
    return [named] if isinstance(named, str) else named


def _classes(rule: Rule) -> tuple[type, ...]:
    return tuple(each for name in _types(rule) for each in _TYPES[name])


def _is_within(number: float, rule: Rule) -> bool:
    above = rule.get("exclusiveMinimum", float("-inf"))
    return bool(number >= rule.get("minimum", float("-inf")) and above < number < float("inf"))


def _limits_text(rule: Rule) -> str:
    if "exclusiveMinimum" in rule:
        return f", more than {rule['exclusiveMinimum']}"
    return f", at least {rule['minimum']}" if "minimum" in rule else ""


def _is_web_address(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def configured_value(key: str, default: Value) -> object:
    """The value in Dask's configuration, or *default* if that cannot be used; never raises."""
    with guarded("reading Dask's configuration") as reading:  # a file that is no YAML must not stop anything
        import dask.config

        load_defaults()
        for problem in unusable_entries():
            _log_once(problem)
        value = dask.config.get(f"{ROOT}.{key}", default)
    if reading.problem is not None:
        from workerdiag.errors import error_text

        _log_once(f"cannot read Dask's configuration: {error_text(reading.problem)}; the defaults apply")
        return default
    return value if value == default or is_allowed(value, rules()[key]) else default


def unusable_entries() -> Iterator[str]:
    """A sentence for each key that does not exist, and for each value that is not allowed."""
    import dask.config

    known = defaults()
    for key, value in _leaves(dask.config.get(ROOT, None)):
        if key not in known:
            yield _unknown_key_text(key)
        elif value != known[key] and not is_allowed(value, rules()[key]):
            allowed = allowed_text(rules()[key])
            yield (
                f"{ROOT}.{key} cannot be {_shown(value)} (from {origin(key, value)}): "
                f"it must be {allowed}; the default {_shown(known[key])} applies"
            )


@cache
def load_defaults() -> None:
    """Add the defaults to Dask's configuration, and a sample file to the folder of the user's own, once."""
    import dask.config
    from importlib_resources import as_file, files

    for problem in unusable_entries():  # a text in place of a section is overwritten below
        _log_once(problem)
    # A home may be no folder, or not be writable.
    with suppress(Exception), as_file(files("workerdiag").joinpath(DEFAULTS_FILE)) as sample:
        dask.config.ensure_file(source=str(sample))
    ours: dict[str, object] = {}
    for key, value in defaults().items():
        dask.config.set({key: value}, config=ours)
    dask.config.update_defaults({ROOT: ours})


@cache
def schema() -> Mapping[str, Any]:
    """The schema of the settings, as JSON Schema has it."""
    import dask.config
    from importlib_resources import as_file, files

    with as_file(files("workerdiag").joinpath(SCHEMA_FILE)) as path:
        (found,) = dask.config.collect_yaml([str(path)])
    return found


@cache
def rules() -> Mapping[str, Rule]:
    """The schema's entry of each setting, by its key."""
    return dict(_settings_of(schema()["properties"][ROOT]))


def origin(key: str, value: object) -> str:
    """Where it was set, the strongest first: Python, the environment, a file of Dask's, the default."""
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
    """Key and value of all that is configured; ``append_to`` and ``append-to`` are one key."""
    if not isinstance(section, Mapping):
        if above or section is not None:
            yield above, section
        return
    for name, entry in section.items():
        yield from _leaves(entry, ".".join(filter(None, (above, str(name).replace("_", "-")))))


def _unknown_key_text(key: str) -> str:
    place = f"{ROOT}.{key}".rstrip(".")
    if any(each.startswith(f"{key}.") for each in defaults()) or not key:
        return f"{place} is a section, not a setting: `workerdiag settings` lists all"
    from difflib import get_close_matches

    near = get_close_matches(key, defaults(), n=1)
    hint = f"did you mean {ROOT}.{near[0]}?" if near else "`workerdiag settings` lists all."
    return f"there is no setting {place}: {hint} It has no effect"


def _shown(value: object) -> str:
    from workerdiag.redaction.secrets import redact_text

    return redact_text(repr(value)[:_SHOWN_CHARS])


@cache
def _log_once(problem: str) -> None:
    import logging

    logging.getLogger("workerdiag.settings").warning("workerdiag: %s", problem)
