"""A Sentry transport that keeps events in this process."""

from __future__ import annotations

from sentry_sdk.transport import Transport


class KeepingTransport(Transport):
    """A transport that keeps envelopes instead of sending them."""

    def __init__(self):
        super().__init__()
        self.envelopes = []

    def capture_envelope(self, envelope):
        self.envelopes.append(envelope)
