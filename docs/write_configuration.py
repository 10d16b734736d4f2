"""Writes ``docs/configuration.md``: every setting that is installed.

    python docs/write_configuration.py

The page is made, not kept: see .gitignore.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workerdiag.settings import ROOT, SETTINGS, allowed_text

PAGE = Path(__file__).parent / "configuration.md"

INTRODUCTION = """# Settings

workerdiag works without any. What you set, you set as for Dask itself:

* in a file `~/.config/dask/workerdiag.yaml`, or any other file of
  [Dask's configuration](https://docs.dask.org/en/stable/configuration.html);
* in the environment: the name of the setting in capitals after `DASK_`, with `__` for each dot and `_`
  for each dash;
* in Python: `dask.config.set({"workerdiag.note.timeout": "5s"})`.

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

`SLACK_TOKEN`
: Bot token with which `workerdiag watch --slack` posts.

`WORKERDIAG_WEBHOOK_SECRET`
: Secret with which `workerdiag watch --webhook` signs.

`WORKERDIAG_RECORDER_DIRECTORY`
: Folder of the black boxes; comes before `workerdiag.recorder.directory`.

`LOKI_ADDR`
: Address of Loki where `workerdiag.loki.url` is not set.

`LOKI_BEARER_TOKEN`
: Token for Loki.

`LOKI_ORG_ID`
: Tenant of Loki.

`NO_COLOR`
: If it is set, nothing is coloured.

`XDG_STATE_HOME`
: Folder for the state of `workerdiag watch`.

`POD_NAME`
: Name of the pod that a worker runs in; else `HOSTNAME` is, in Kubernetes.
"""

#: What each setting does.
ABOUT = {
    "documentation-url": (
        "Address at which a build of this documentation is served. Reports, notices and HTML pages then link "
        "each cause to its page there. Without it they name the command `workerdiag knowledge show ID`, which "
        "works without a network."
    ),
    "auto.check": (
        "With `warn`, work that will not fit is [told before it runs](check.md#by-itself): by `auto()`, and after "
        "`%load_ext workerdiag`."
    ),
    "explain.timeout": (
        "Total time of `workerdiag.explain()`, of the command `workerdiag explain`, and of a diagnosis in "
        "Airflow and Prefect, where the call or the option `--timeout` gives none."
    ),
    "note.timeout": ("Longest time for which `annotate()`, `auto()` and `explaining()` hold up an exception."),
    "loki.url": (
        "Address of Grafana Loki. The streams of dead workers are then read. Without it, `LOKI_ADDR` counts."
    ),
    "recorder.directory": (
        "Folder of the black boxes; worker and nanny must see the same one. The variable "
        "`WORKERDIAG_RECORDER_DIRECTORY` comes first. Without either it is `workerdiag-<uid>` in the folder "
        "for temporary files, or in `/dev/shm`."
    ),
    "recorder.append-to": (
        "File or fsspec URL (`s3://bucket/deaths`) to which the scheduler appends a line for each death."
    ),
    "recorder.dashboard": (
        "With `show`, the scheduler's dashboard has a page of deaths, and its metrics count them. With "
        "`hide`, nothing judges deaths on the scheduler's machine."
    ),
    "rescue.mode": (
        "What the scheduler preload `workerdiag.rescue` does about deaths for memory: only `say` what it would do, "
        "or `act`."
    ),
    "rescue.most-memory": (
        "Memory of the bigger worker to which a task goes that kills its worker alone (`32 GiB`); somebody starts "
        "that worker with `--resources workerdiag-bigger-worker=1`. Without it, such a task fails at once."
    ),
    "rescue.deadline": ("Longest time for which the work waits for a bigger worker, or for any."),
    "watch.collect": (
        "Least time between a notice and one that only adds to it. Deaths are counted in windows of this length."
    ),
    "watch.resolve": (
        "A case is resolved after this time without a death of its kind, on a cluster that is seen alive."
    ),
    "watch.bundles": ("Folder in which a death bundle of each case is saved."),
    "watch.bundles-url": ("Address at which that folder is served. Notices then link to the bundle."),
}

#: What is said of a section.
SECTIONS = {
    "auto": "What is told by itself.",
    "explain": "The answer on request.",
    "note": "The answer in the exception.",
    "loki": "Logs in Grafana Loki.",
    "recorder": "The flight recorder. Workers, nannies and the scheduler each read their own configuration.",
    "rescue": "Work whose workers die for memory; only for the [scheduler preload](rescue.md).",
    "watch": "The defaults of `workerdiag.watch()` and `workerdiag watch`. Arguments and options come first.",
}


def page() -> Iterator[str]:
    """The parts of the page."""
    yield INTRODUCTION
    section = ""
    for key, setting in SETTINGS.items():
        above, _, _ = key.rpartition(".")
        if above != section:
            section = above
            yield f"## `{ROOT}.{above}`\n\n{SECTIONS[above]}\n"
        variable = f"DASK_{ROOT}__{key}".upper().replace(".", "__").replace("-", "_")
        allowed = f"Default: `{setting.default or 'null'}`. Allowed: {allowed_text(key)}. Variable: `{variable}`."
        yield f"`{ROOT}.{key}`\n: {ABOUT[key]}\n\n  {allowed}\n"
    yield SWITCHES
    yield VARIABLES


def main() -> None:
    """Write the page anew."""
    PAGE.write_text("\n".join(page()), encoding="utf-8")


if __name__ == "__main__":
    main()
