"""Where notices go: one module for each kind of sink, and one line of `SHIPPED`."""

from __future__ import annotations

from typing import NamedTuple


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
