"""
Where notices go: a function, a signed webhook, Slack, PagerDuty, Teams, e-mail, Apprise.

The public names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workerdiag.watch.sinks.apprise_url import AppriseSink
    from workerdiag.watch.sinks.function import FunctionSink
    from workerdiag.watch.sinks.mail import MailSink
    from workerdiag.watch.sinks.pagerduty import PagerDutySink
    from workerdiag.watch.sinks.sink import Delivery, DeliveryError, Sink, SinkSetupError
    from workerdiag.watch.sinks.slack import SlackSink, SlackUrlSink
    from workerdiag.watch.sinks.teams import TeamsSink
    from workerdiag.watch.sinks.webhook import WebhookSink, verify_signature

__all__ = [
    "AppriseSink",
    "Delivery",
    "DeliveryError",
    "FunctionSink",
    "MailSink",
    "PagerDutySink",
    "Sink",
    "SinkSetupError",
    "SlackSink",
    "SlackUrlSink",
    "TeamsSink",
    "WebhookSink",
    "verify_signature",
]

_MODULE_OF = {
    "AppriseSink": "apprise_url",
    "Delivery": "sink",
    "DeliveryError": "sink",
    "FunctionSink": "function",
    "MailSink": "mail",
    "PagerDutySink": "pagerduty",
    "Sink": "sink",
    "SinkSetupError": "sink",
    "SlackSink": "slack",
    "SlackUrlSink": "slack",
    "TeamsSink": "teams",
    "WebhookSink": "webhook",
    "verify_signature": "webhook",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
