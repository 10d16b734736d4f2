"""Sinks from a command line."""

from __future__ import annotations

from importlib import import_module

import pytest

from workerdiag.watch.sinks import SHIPPED, sinks_of
from workerdiag.watch.sinks.base import Sink, SinkSetupError

KEY = "0123456789abcdef0123456789abcdef"
ENVIRONMENT = {
    "SLACK_TOKEN": "xoxb-1",
    "WORKERDIAG_WEBHOOK_SECRET": "s3cret",
    "HOOK_URL": "https://a.example/" + KEY,
}


def test_each_option_is_its_sink():
    """What can be typed has a sink, with secrets from the environment."""
    options = {
        "slack": ("#dask", "https://hooks.slack.com/services/T0/B0/x"),
        "alertmanager": ("http://127.0.0.1:9093",),
        "webhook": ("https://a.example/hook",),
        "notify": ("json://127.0.0.1/",),
    }
    assert options.keys() == {each.name for each in SHIPPED}
    made = sinks_of(options, ENVIRONMENT)
    kinds = "SlackSink SlackUrlSink AlertmanagerSink WebhookSink AppriseSink".split()
    assert [type(each).__name__ for each in made] == kinds
    assert all(isinstance(each, Sink) for each in made)
    assert len({each.name for each in made}) == len(made)
    for secret in ("xoxb-1", "s3cret"):
        assert secret not in repr(made)


def test_a_key_can_stay_out_of_the_command_line():
    """``env:NAME`` is what the variable holds, so that no list of processes shows it."""
    (sink,) = sinks_of({"webhook": ["env:HOOK_URL"]}, ENVIRONMENT)
    assert sink.url.endswith(KEY)


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("slack", "#dask", "the token is empty.*SLACK_TOKEN"),
        ("webhook", "https://a.example/", "WORKERDIAG_WEBHOOK_SECRET is not set"),
        ("notify", "env:NOT_SET", "NOT_SET is not set"),
    ],
)
def test_what_is_missing_is_named(kind, value, problem):
    """The message says which variable to set."""
    with pytest.raises(SinkSetupError, match=problem):
        sinks_of({kind: [value]}, {})


def test_each_line_of_the_registry_is_a_module_that_makes_a_sink():
    """A new sink is a module with `from_option`, and its line."""
    modules = [import_module(f"workerdiag.watch.sinks.{each.module}") for each in SHIPPED]
    assert all(callable(each.from_option) for each in modules)
