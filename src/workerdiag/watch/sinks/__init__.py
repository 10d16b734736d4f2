"""Where notices go: a function, a signed webhook, Slack, PagerDuty, Teams, e-mail, Apprise.

The public names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workerdiag.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from workerdiag.watch.sinks.apprise_url import AppriseSink
    from workerdiag.watch.sinks.base import Delivery, DeliveryError, FunctionSink, Sink, SinkSetupError
    from workerdiag.watch.sinks.mail import MailSink
    from workerdiag.watch.sinks.pagerduty import PagerDutySink
    from workerdiag.watch.sinks.slack import SlackSink, SlackUrlSink, slack_blocks
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
    "slack_blocks",
    "verify_signature",
]

_MODULE_OF = {
    "AppriseSink": "apprise_url",
    "Delivery": "base",
    "DeliveryError": "base",
    "FunctionSink": "base",
    "MailSink": "mail",
    "PagerDutySink": "pagerduty",
    "Sink": "base",
    "SinkSetupError": "base",
    "SlackSink": "slack",
    "SlackUrlSink": "slack",
    "TeamsSink": "teams",
    "WebhookSink": "webhook",
    "slack_blocks": "slack",
    "verify_signature": "webhook",
}


__getattr__, __dir__ = _lazy_names(__name__, globals(), _MODULE_OF, __all__)
