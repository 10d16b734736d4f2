"""Writes ``docs/configuration.md``: every setting, from the schema that is installed.

    python docs/write_configuration.py

The page is made, not kept: see .gitignore.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workerdiag.settings import DEFAULTS_FILE, ROOT, allowed_text, defaults, rules, schema, shipped_text

PAGE = Path(__file__).parent / "configuration.md"

INTRODUCTION = """# Settings

workerdiag works without any. What you set, you set as for Dask itself:

* in a file `~/.config/dask/workerdiag.yaml`, or any other file of
  [Dask's configuration](https://docs.dask.org/en/stable/configuration.html); workerdiag puts a sample
  there, with every line commented out;
* in the environment: the name of the setting in capitals after `DASK_`, with `__` for each dot and `_`
  for each dash;
* in Python: `dask.config.set({"workerdiag.recorder.deaths": 500})`.

An argument of a call, or an option of a command, comes before all of them.

Every process reads its own configuration: the recorder's settings count in workers, nannies and the
scheduler, those of `explain` and the watcher where these run. A nanny hands its configuration to its worker.

```sh
workerdiag settings
```

lists what holds in this environment, and where it was set. A name that does not exist is logged once, with
the nearest one that does. A value that is not allowed is logged with where it was set and what is allowed,
and the default holds: a typo never hides why a worker died.
"""

SWITCHES = """## Switches in Dask's own configuration

`distributed.client.preload: [workerdiag.auto]`
: Every client of the program puts [the answer into the exception](api.md#the-answer-in-the-exception).

`distributed.scheduler.preload`, `distributed.nanny.preload`, `distributed.worker.preload`
: With `[workerdiag.recorder.preload]` in each, the [flight recorder](recorder.md#by-configuration) records
  from the start.
"""

VARIABLES = """## Variables that are no settings

Secrets do not belong in Dask's configuration, which travels to every worker.
"""


def page() -> Iterator[str]:
    """The parts of the page."""
    yield INTRODUCTION
    section = ""
    for key, rule in rules().items():
        above, _, _ = key.rpartition(".")
        if above != section:
            section = above
            yield from _section(above)
        yield _entry(key, " ".join(rule["description"].split()), allowed_text(rule))
    yield SWITCHES
    yield VARIABLES
    for name, text in schema()["x-variables"].items():
        yield f"`{name}`\n: {text}\n"
    file = shipped_text(DEFAULTS_FILE).strip()
    yield f"## The file with all defaults\n\n```yaml\n{file}\n```"


def _section(name: str) -> Iterator[str]:
    yield f"## `{ROOT}.{name}`\n"
    if description := schema()["properties"][ROOT]["properties"][name].get("description"):
        yield f"{description}\n"


def _entry(key: str, description: str, allowed: str) -> str:
    default = "null" if defaults()[key] is None else defaults()[key]
    variable = f"DASK_{ROOT}__{key}".upper().replace(".", "__").replace("-", "_")
    return (
        f"`{ROOT}.{key}`\n: {description}\n\n  Default: `{default}`. Allowed: {allowed}. Variable: `{variable}`.\n"
    )


def main() -> None:
    """Write the page anew."""
    PAGE.write_text("\n".join(page()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
