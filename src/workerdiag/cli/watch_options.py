"""Options that the commands of ``workerdiag watch`` share: sinks, and the state file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from workerdiag.cli.commands import UnusableError

_SINKS = (
    ("slack", "CHANNEL", "Post to a Slack channel, or to the URL of an incoming webhook."),
    ("pagerduty", "KEY", "Alert PagerDuty by an integration key (Events API v2)."),
    ("webhook", "URL", "Post signed JSON."),
    ("teams", "URL", "Post to a Microsoft Teams workflow."),
    ("mail", "ADDRESS", "Send mails."),
    ("notify", "URL", "Send through Apprise: workerdiag[notify]."),
)


def sink_options(command: Callable[..., object]) -> Callable[..., object]:
    """One option for each kind of sink; each may be repeated."""
    for name, metavar, text in reversed(_SINKS):
        command = click.option(f"--{name}", multiple=True, metavar=metavar, help=text)(command)
    return command


#: The file in which a watcher keeps what it knows.
state_option = click.option(
    "--state",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where the watcher keeps what it knows. By default ~/.local/state/workerdiag/watch.db.",
)


def state_path(given: str | None) -> Path:
    """The state file: the given one, else that of this user (XDG Base Directory Specification)."""
    if given is not None:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path("~/.local/state").expanduser()
    return folder / "workerdiag" / "watch.db"


def make_state_folder(given: str | None) -> Path:
    """The state file, after its folder was made if it is the default one."""
    path = state_path(given)
    if given is None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise UnusableError(f"cannot make {path.parent}: {problem.strerror}; give --state FILE") from None
    return path
