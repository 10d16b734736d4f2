"""Where notices go: one module for each kind of sink, and one line of `SHIPPED`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workerdiag.watch.sinks.base import Sink


class SinkKind(NamedTuple):
    """A kind of sink, as ``workerdiag watch --NAME METAVAR`` makes one."""

    name: str
    metavar: str
    help: str
    #: Its module in this folder. ``from_option(value, environment)`` there returns the sink of an option's value;
    #: secrets come from the environment.
    module: str


SHIPPED = (
    SinkKind("slack", "CHANNEL", "Post to a Slack channel, or to the URL of an incoming webhook.", "slack"),
    SinkKind("alertmanager", "URL", "Alert through Prometheus' Alertmanager.", "alertmanager"),
    SinkKind("webhook", "URL", "Post signed JSON.", "webhook"),
    SinkKind("notify", "URL", "Send through Apprise: workerdiag[notify].", "apprise_url"),
)


def sinks_of(options: Mapping[str, Iterable[str]], environment: Mapping[str, str] = os.environ) -> tuple[Sink, ...]:
    """Return a sink for each value of each option, ``{"slack": ["#dask"]}``; the *environment* has secrets."""
    return tuple(_sink_of(kind, value, environment) for kind in SHIPPED for value in options.get(kind.name, ()))


def _sink_of(kind: SinkKind, value: str, environment: Mapping[str, str]) -> Sink:
    from workerdiag.watch.sinks.base import environment_variable

    if value.startswith("env:"):  # ``env:HOOK_URL`` keeps a token out of ``ps``
        value = environment_variable(kind.name, environment, value.removeprefix("env:"))
    sink: Sink = import_module(f"workerdiag.watch.sinks.{kind.module}").from_option(value, environment)
    return sink
