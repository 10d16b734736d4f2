"""A local mail server that keeps its mails, and refuses some if a test says so."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from attrs import define, field

USER, PASSWORD = "watcher", "pass-w0rd-of-the-watcher"


@define
class MailBox:
    """The handler of an ``aiosmtpd`` server."""

    mails: list[EmailMessage] = field(factory=list)
    #: The recipients of each mail, by the envelope.
    recipients: list[list[str]] = field(factory=list)
    #: Answers that refuse a recipient, by address.
    refuses: dict[str, str] = field(factory=dict)
    #: The answer to every mail.
    answer: str = "250 OK"
    port: int = 0

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: ARG002, N802  aiosmtpd's names
        if address in self.refuses:
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: ARG002, N802  aiosmtpd's names
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.original_content, policy=policy.default))
            self.recipients.append(list(envelope.rcpt_tos))
        return self.answer


class _AnyPort(Controller):
    """Listens on a free port."""

    def _trigger_server(self):
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def mail_server(
    *,
    tls: ssl.SSLContext | None = None,
    tls_from_the_start: ssl.SSLContext | None = None,
    wants_login: bool = False,
) -> Iterator[MailBox]:
    """Serve until the end of the block; with *tls* offer STARTTLS."""
    box = MailBox()

    def check(server, session, envelope, mechanism, data):
        is_right = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False)

    controller = _AnyPort(
        box,
        hostname="127.0.0.1",
        port=0,
        ready_timeout=60,
        tls_context=tls,
        ssl_context=tls_from_the_start,
        authenticator=check if wants_login else None,
        auth_required=wants_login,
        auth_require_tls=tls is not None,
    )
    controller.start()
    box.port = controller.port
    try:
        yield box
    finally:
        controller.stop()
