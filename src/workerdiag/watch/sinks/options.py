"""Sinks from what is typed on a command line, with secrets from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote, urlsplit

from workerdiag.watch.sinks.apprise_url import AppriseSink
from workerdiag.watch.sinks.base import Sink, SinkSetupError
from workerdiag.watch.sinks.mail import MailSink, Security
from workerdiag.watch.sinks.pagerduty import PagerDutySink
from workerdiag.watch.sinks.slack import SlackSink, SlackUrlSink
from workerdiag.watch.sinks.teams import TeamsSink
from workerdiag.watch.sinks.webhook import WebhookSink

#: Variables of the environment: the bot token of Slack, the secret that webhooks are signed with, the mail
#: server as ``smtp://USER:PASSWORD@HOST:587`` (STARTTLS), ``smtps://`` (TLS) or ``smtp+plain://`` (neither),
#: and the sender of mails.
SLACK_TOKEN = "SLACK_TOKEN"  # noqa: S105  its name
WEBHOOK_SECRET = "WORKERDIAG_WEBHOOK_SECRET"  # noqa: S105  its name
MAIL_SERVER = "WORKERDIAG_MAIL_SERVER"
MAIL_SENDER = "WORKERDIAG_MAIL_SENDER"

#: Before the name of a variable that holds the value: ``env:PAGERDUTY_KEY`` keeps a key out of ``ps``.
_FROM_ENVIRONMENT = "env:"
_SECURITY: Mapping[str, tuple[Security, int]] = {
    "smtp": ("starttls", 587),
    "smtps": ("tls", 465),
    "smtp+plain": ("none", 25),
}


def sinks_of(
    options: Mapping[str, Iterable[str]], environment: Mapping[str, str] = os.environ
) -> tuple[Sink, ...]:
    """The sinks of all options, each option as often as it was given.

    Args:
        options: By kind (``slack``, ``pagerduty``, ``webhook``, ``teams``, ``mail``, ``notify``), the values.
            A value ``env:NAME`` is that of the variable *NAME*.
        environment: Where secrets are.

    Raises:
        SinkSetupError: One of them cannot work so.
    """
    return tuple(sink_of(kind, value, environment) for kind, values in options.items() for value in values)


def sink_of(kind: str, value: str, environment: Mapping[str, str] = os.environ) -> Sink:
    """The sink of one option, e.g. ``slack`` and ``#dask``.

    Raises:
        SinkSetupError: It cannot work so.
    """
    if value.startswith(_FROM_ENVIRONMENT):
        value = _variable(kind, environment, value.removeprefix(_FROM_ENVIRONMENT))
    make = _MAKERS.get(kind)
    if make is None:
        raise SinkSetupError(kind, "there is no such sink", f"choose among {', '.join(_MAKERS)}")
    return make(value, environment)


def _slack_sink(value: str, environment: Mapping[str, str]) -> Sink:
    """By a bot's token for a channel, or by the URL of an incoming webhook."""
    return SlackUrlSink(value) if "://" in value else SlackSink(value, environment.get(SLACK_TOKEN, ""))


def _variable(kind: str, environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SinkSetupError(kind, f"the variable {name} is not set", f"export {name}=...")
    return value


def _mail_sink(to: str, environment: Mapping[str, str]) -> MailSink:
    remedy = f"set {MAIL_SERVER} to smtp://USER:PASSWORD@HOST:587"
    try:
        server = urlsplit(_variable("mail", environment, MAIL_SERVER))
        security, port = _SECURITY[server.scheme]
        port = server.port or port
    except (ValueError, KeyError):
        raise SinkSetupError("mail", f"{MAIL_SERVER} is no address of a mail server", remedy) from None
    return MailSink(
        to=to,
        host=server.hostname or "",
        sender=_variable("mail", environment, MAIL_SENDER),
        port=port,
        security=security,
        user=unquote(server.username or ""),
        password=unquote(server.password or ""),
    )


_MAKERS: Mapping[str, Callable[[str, Mapping[str, str]], Sink]] = {
    "slack": _slack_sink,
    "pagerduty": lambda key, _: PagerDutySink(key),
    "webhook": lambda url, environment: WebhookSink(url, _variable("webhook", environment, WEBHOOK_SECRET)),
    "teams": lambda url, _: TeamsSink(url),
    "mail": _mail_sink,
    "notify": lambda url, _: AppriseSink(url),
}
