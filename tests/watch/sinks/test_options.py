"""Sinks from a command line."""

from __future__ import annotations

from importlib import import_module

import pytest

from workerdiag.watch.sinks import SHIPPED
from workerdiag.watch.sinks.base import Sink, SinkSetupError
from workerdiag.watch.sinks.options import sink_of, sinks_of

KEY = "0123456789abcdef0123456789abcdef"
ENVIRONMENT = {
    "SLACK_TOKEN": "xoxb-1",
    "WORKERDIAG_WEBHOOK_SECRET": "s3cret",
    "WORKERDIAG_MAIL_SERVER": "smtp://me:p%40ss@mail.example.org",
    "WORKERDIAG_MAIL_SENDER": "watcher@example.org",
    "PAGERDUTY_KEY": KEY,
}


def test_each_option_is_its_sink():
    """What can be typed has a sink, with secrets from the environment."""
    options = {
        "slack": ("#dask", "https://hooks.slack.com/services/T0/B0/x"),
        "pagerduty": (KEY,),
        "webhook": ("https://a.example/hook",),
        "teams": ("https://b.example/flow",),
        "mail": ("oncall@example.org",),
        "notify": ("json://127.0.0.1/",),
    }
    assert options.keys() == {each.name for each in SHIPPED}
    made = sinks_of(options, ENVIRONMENT)
    kinds = "SlackSink SlackUrlSink PagerDutySink WebhookSink TeamsSink MailSink AppriseSink".split()
    assert [type(each).__name__ for each in made] == kinds
    assert all(isinstance(each, Sink) for each in made)
    assert len({each.name for each in made}) == len(made)
    for secret in ("xoxb-1", "s3cret", "p@ss", KEY):
        assert secret not in repr(made)


def test_a_mail_server_is_read_from_one_variable():
    """Scheme, port, user and password of the server's address mean what they say."""
    sink = sink_of("mail", "a@example.org", ENVIRONMENT)
    assert (sink.host, sink.port, sink.security) == ("mail.example.org", 587, "starttls")
    assert (sink.user, sink.password) == ("me", "p@ss")
    inside = {**ENVIRONMENT, "WORKERDIAG_MAIL_SERVER": "smtp+plain://localhost:2525"}
    sink = sink_of("mail", "a@example.org", inside)
    assert (sink.port, sink.security, sink.user) == (2525, "none", "")


def test_a_key_can_stay_out_of_the_command_line():
    """``env:NAME`` is what the variable holds, so that no list of processes shows it."""
    assert sink_of("pagerduty", "env:PAGERDUTY_KEY", ENVIRONMENT).routing_key == KEY


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("slack", "#dask", "the token is empty.*SLACK_TOKEN"),
        ("webhook", "https://a.example/", "WORKERDIAG_WEBHOOK_SECRET is not set"),
        ("mail", "a@example.org", "WORKERDIAG_MAIL_SERVER is not set"),
        ("pagerduty", "env:NOT_SET", "NOT_SET is not set"),
        ("pigeon", "x", "there is no such sink.*slack"),
    ],
)
def test_what_is_missing_is_named(kind, value, problem):
    """The message says which variable to set."""
    with pytest.raises(SinkSetupError, match=problem):
        sink_of(kind, value, {})


def test_an_address_that_is_no_mail_server_is_refused():
    """A typo in the server's address is found when the watcher starts."""
    with pytest.raises(SinkSetupError, match="is not the address of a mail server"):
        sink_of("mail", "a@example.org", {**ENVIRONMENT, "WORKERDIAG_MAIL_SERVER": "mail.example.org"})


def test_each_line_of_the_registry_is_a_module_that_makes_a_sink():
    """A new sink is a module with `from_option`, and its line."""
    modules = [import_module(f"workerdiag.watch.sinks.{each.module}") for each in SHIPPED]
    assert all(callable(each.from_option) for each in modules)
