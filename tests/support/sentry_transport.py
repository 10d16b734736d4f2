"""
Sentry's events, kept in this process.
"""

from __future__ import annotations

from sentry_sdk.transport import Transport


class KeepingTransport(Transport):
    """
    Envelopes that were not sent.
    """

    def __init__(self):
        super().__init__()
        self.envelopes = []

    def capture_envelope(self, envelope):
        self.envelopes.append(envelope)
