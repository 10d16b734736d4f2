"""Settings, as Dask has them: ``workerdiag.*`` in its configuration files and ``DASK_WORKERDIAG__*`` variables.

Importing ``dask.config`` takes longer than reading a log does, so a process without Dask imports it only if a
variable or a file of Dask's mentions workerdiag.
"""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from workerdiag.guard import guarded
from workerdiag.units import parse_bytes, parse_duration

#: The section of Dask's configuration that is ours.
ROOT: Final = "workerdiag"
Value = str | None


class Setting(NamedTuple):
    """One setting: its default, and what is allowed in its place."""

    default: Value
    #: A kind of value, or all values that there are; null is allowed where it is the default.
    allowed: Literal["text", "url", "duration", "size"] | tuple[str, ...]


#: All settings by their keys, without the section's name; docs/write_configuration.py says what they do.
SETTINGS: Final[Mapping[str, Setting]] = {
    "documentation-url": Setting(None, "url"),
    "auto.check": Setting("skip", ("skip", "warn")),
    "explain.timeout": Setting("10s", "duration"),
    "note.timeout": Setting("2s", "duration"),
    "loki.url": Setting(None, "url"),
    "recorder.directory": Setting(None, "text"),
    "recorder.append-to": Setting(None, "text"),
    "recorder.dashboard": Setting("show", ("show", "hide")),
    "rescue.mode": Setting("say", ("say", "act")),
    "rescue.most-memory": Setting(None, "size"),
    "rescue.deadline": Setting("10m", "duration"),
    "watch.collect": Setting("5m", "duration"),
    "watch.resolve": Setting("15m", "duration"),
    "watch.bundles": Setting(None, "text"),
    "watch.bundles-url": Setting(None, "url"),
}
_KINDS: Final = {
    "text": "text",
    "url": "an address that begins with http:// or https://",
    "duration": "a duration like 10s, 5m or 4h, more than 0",
    "size": "a size like 500 MB or 32 GiB",
}
_URL: Final = re.compile(r"https?://[^/]")
#: Variables that move Dask's configuration, or hand all of it over (dask/config.py, 2024.8.1 to 2026.8.0).
_DASK_VARIABLES: Final = ("DASK_CONFIG", "DASK_ROOT_CONFIG", "DASK_INTERNAL_INHERIT_CONFIG")
#: Our name outside a comment.
_MENTION: Final = re.compile(rb"^[^#\n]*\bworkerdiag\b", re.MULTILINE)
_NOTHING: Final = object()


def setting(key: str) -> Any:
    """The value of ``workerdiag.<key>``, e.g. of ``note.timeout``; raises KeyError for an unknown key.

    The default stands in for a value that cannot be used, which is logged once with what is allowed.
    """
    default = SETTINGS[key].default
    if "dask.config" not in sys.modules and not _is_mentioned():
        return default
    value: object = default
    with guarded("reading Dask's configuration") as reading:  # a file that is no YAML must not stop anything
        import dask.config

        for problem in unusable_entries():
            _log_once(problem)
        value = dask.config.get(f"{ROOT}.{key}", default)
    if reading.problem is not None:
        _log_once(f"cannot read Dask's configuration: {reading.problem}; the defaults apply")
    return value if is_allowed(key, value) else default


def seconds(key: str) -> float:
    """The value of a setting that is a duration, in seconds."""
    return parse_duration(str(setting(key)))


def documentation_url(cause_id: str) -> str:
    """The address of the page of a cause; empty if ``workerdiag.documentation-url`` is not set."""
    base = setting("documentation-url")
    return f"{str(base).rstrip('/')}/causes/{cause_id.replace('.', '/')}.html" if base else ""


def shipped_text(name: str) -> str:
    """Return the text of a file of the package, by its path there; the package may be in a zip file."""
    from importlib.resources import files

    return files("workerdiag").joinpath(name).read_text(encoding="utf-8")


@cache
def _is_mentioned() -> bool:
    """Whether a variable or a file that Dask reads (``dask.config._get_paths``) may say something about us."""
    if any(name.upper().startswith(f"DASK_{ROOT.upper()}__") or name in _DASK_VARIABLES for name in os.environ):
        return True
    etc = ("/etc/dask", *(f"{prefix}/etc/dask" for prefix in {sys.prefix, *site.PREFIXES}))
    for folder in (*map(Path, etc), Path("~/.config/dask").expanduser()):
        for path in folder.glob("*.*"):
            with suppress(OSError):  # unreadable, which Dask ignores too
                if _MENTION.search(path.read_bytes()):
                    return True
    return False


def is_allowed(key: str, value: object) -> bool:
    """Whether the setting may have the *value*."""
    default, allowed = SETTINGS[key]
    match allowed:
        case "text":
            return value is default or isinstance(value, str)
        case "url":
            return value is default or _URL.match(str(value)) is not None
        case "duration":
            try:
                return 0 < parse_duration(str(value)) < inf
            except ValueError:
                return False
        case "size":
            return value is default or bool(parse_bytes(str(value)))
        case _:
            return value in allowed


def allowed_text(key: str) -> str:
    """What `is_allowed` accepts, as the end of a sentence."""
    default, allowed = SETTINGS[key]
    if isinstance(allowed, tuple):
        return " or ".join(allowed)
    return _KINDS[allowed] if default else f"{_KINDS[allowed]} or null"


def unusable_entries() -> Iterator[str]:
    """A sentence for each key that does not exist, and for each value that is not allowed."""
    import dask.config

    for key, value in _leaves(dask.config.get(ROOT, None)):
        if key not in SETTINGS:
            yield _unknown_key_text(key)
        elif not is_allowed(key, value):
            default = _shown(SETTINGS[key].default)
            yield (
                f"{ROOT}.{key} cannot be {_shown(value)} (from {origin(key, value)}): "
                f"it must be {allowed_text(key)}; the default {default} applies"
            )


def origin(key: str, value: object) -> str:
    """Where it was set, the strongest first: Python, the environment, a file of Dask's, the default."""
    import dask.config

    name = f"{ROOT}.{key}"
    if dask.config.get(name, _NOTHING, config=dask.config.collect_env()) == value:
        variables = (each for each in os.environ if each.startswith("DASK_"))
        named = (each for each in variables if each[5:].lower().replace("__", ".").replace("_", "-") == name)
        return f"the variable {next(named, _DASK_VARIABLES[-1])}"
    for path, content in reversed(list(dask.config.collect_yaml(dask.config.paths, return_paths=True))):
        if dask.config.get(name, _NOTHING, config=content) == value:
            return str(path)
    return "the default" if key in SETTINGS and SETTINGS[key].default == value else "dask.config.set in Python"


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
    if any(each.startswith(f"{key}.") for each in SETTINGS) or not key:
        return f"{place} is a section, not a setting: `workerdiag settings` lists all"
    from difflib import get_close_matches

    near = get_close_matches(key, SETTINGS, n=1)
    hint = f"did you mean {ROOT}.{near[0]}?" if near else "`workerdiag settings` lists all."
    return f"there is no setting {place}: {hint} It has no effect"


def _shown(value: object) -> str:
    from workerdiag.redaction.secrets import redact_text

    return redact_text(repr(value)[:80])


@cache
def _log_once(problem: str) -> None:
    import logging

    logging.getLogger("workerdiag.settings").warning("workerdiag: %s", problem)
