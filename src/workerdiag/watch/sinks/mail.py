"""E-mail by SMTP: text and simple HTML, a thread for each case."""

from __future__ import annotations

import hashlib
import html
import smtplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit

from attrs import field, frozen

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import describe_error
from workerdiag.watch.sinks.base import (
    Delivery,
    DeliveryError,
    SinkSetupError,
    environment_variable,
    name_field,
    text_given,
    timeout_field,
    without_secrets,
)
from workerdiag.watch.sinks.notice_parts import Card, card_of, line

#: How the connection is protected: by STARTTLS, by TLS from its beginning, or not at all.
Security = Literal["starttls", "tls", "none"]
#: Server's answers from here on are final (RFC 5321, section 4.2.1).
_FIRST_FINAL_CODE = 500


def _addresses_of(given: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for part in given.split(",")) if isinstance(given, str) else tuple(given)


def _addresses_given(_sink: object, _field: object, value: Any) -> None:
    for each in (value,) if isinstance(value, str) else value:
        try:
            is_address = bool(Address(addr_spec=each).domain)
        except (ValueError, HeaderParseError, IndexError, TypeError, AttributeError):
            is_address = False
        if not is_address:
            problem = f"{line(str(each), 100)!r} is not a mail address"
            raise SinkSetupError("mail", problem, "give one like oncall@example.org")
    if not value:
        raise SinkSetupError("mail", "there is no recipient", "give an address like oncall@example.org")


def _known_security(_sink: object, _field: object, value: object) -> None:
    if value not in get_args(Security):
        raise SinkSetupError("mail", f"security {value!r} is unknown", f"give one of {get_args(Security)}")


def _in_ports(_sink: object, _field: object, value: object) -> None:
    if not isinstance(value, int) or not 0 < value < 65536:
        raise SinkSetupError("mail", f"{value!r} is not a port", "give 587 for STARTTLS, 465 for TLS")


@frozen
class MailSink:
    """A mail for each notice, to all of *to* at once.

    Mails of one case share a subject and refer to each other, so that mail programs show them as a thread.
    A repeat has the ``Message-ID`` of the first attempt, by which most mail systems drop it.
    """

    to: tuple[str, ...] = field(converter=_addresses_of, validator=_addresses_given)
    #: Name of the mail server.
    host: str = field(validator=text_given("mail", "the mail server", "give its host name"))
    sender: str = field(validator=_addresses_given)
    port: int = field(default=587, validator=_in_ports)
    security: Security = field(default="starttls", validator=_known_security)
    #: Empty for a server that asks for none.
    user: str = ""
    password: str = field(default="", repr=False)
    name: str = name_field("mail", lambda sink: f"mail:{','.join(map(str, sink.to))}"[:200])
    timeout_s: float = timeout_field("mail")
    #: None trusts whom the machine trusts.
    context: ssl.SSLContext | None = field(default=None, repr=False)
    #: By delivery: to whom it was sent already, if others were refused for the time being.
    _reached: dict[str, frozenset[str]] = field(factory=dict, init=False, repr=False, eq=False)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Send it; note subject and id, for the next mail of the thread."""
        mail = mail_of(delivery, sender=self.sender, to=self.to)
        left = tuple(each for each in self.to if each not in self._reached.get(delivery.id, ()))
        try:
            limit = Deadline.after(self.timeout_s)
            ended = call_in_time(f"workerdiag-mail-{self.name}", lambda: self._send(mail, left), limit)
        except CALL_FAILURES as problem:
            raise self._error(f"{self.host}: {problem}") from None
        if isinstance(ended, DeliveryError):
            raise ended
        if ended:
            self._reached[delivery.id] = frozenset(self.to) - ended.keys()
            raise self._refused(ended)
        self._reached.pop(delivery.id, None)
        return {"subject": _subject(delivery), "last": mail["Message-ID"]}

    def _send(self, mail: EmailMessage, to: Sequence[str]) -> Mapping[str, tuple[int, bytes]] | DeliveryError:
        """Whom the server refused, and why."""
        try:
            with self._connected() as server:
                return server.send_message(mail, self.sender, to)
        except smtplib.SMTPRecipientsRefused as refusal:
            return dict(refusal.recipients)
        except smtplib.SMTPNotSupportedError as problem:
            return self._error(f"{self.host} lacks a needed feature: {problem}", is_final=True)
        except smtplib.SMTPResponseException as refusal:
            return self._error(_said_by(self.host, refusal), is_final=refusal.smtp_code >= _FIRST_FINAL_CODE)
        except (OSError, ValueError) as problem:
            return self._error(f"cannot reach {self.host}: {describe_error(problem, most_chars=300)}")

    def _connected(self) -> smtplib.SMTP:
        context = self.context or ssl.create_default_context()
        if self.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout_s, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=self.timeout_s)
        try:
            if self.security == "starttls":
                server.starttls(context=context)
            if self.user:
                server.login(self.user, self.password)
        except BaseException:
            server.close()
            raise
        return server

    def _refused(self, refused: Mapping[str, tuple[int, bytes]]) -> DeliveryError:
        said = "; ".join(f"{to}: {code} {_decoded(text)}" for to, (code, text) in refused.items())
        is_final = all(code >= _FIRST_FINAL_CODE for code, _ in refused.values())
        return self._error(f"{self.host} refused {said}", is_final=is_final)

    def _error(self, problem: str, *, is_final: bool = False) -> DeliveryError:
        shown = without_secrets(problem, self.password)[:500]
        return DeliveryError(f"{self.name}: {shown}", is_final=is_final)


def mail_of(delivery: Delivery, *, sender: str, to: Sequence[str]) -> EmailMessage:
    """The mail of one delivery: the same in every attempt."""
    notice, card = delivery.notice, card_of(delivery.notice)
    domain = Address(addr_spec=sender).domain
    root = _message_id(notice.case_id, "case", domain)
    last = _one_id(delivery.receipt.get("last", ""))
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Subject"] = f"Re: {_subject(delivery)}" if last else _subject(delivery)
    mail["Date"] = format_datetime(moment_of(notice.at))
    mail["Message-ID"] = _message_id(delivery.id, "delivery", domain)
    mail["References"] = f"{root} {last}".strip()
    mail["In-Reply-To"] = last or root
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no answers of absence
    mail.set_content(f"{card.title}\n\n{card.body_text()}\n")
    mail.add_alternative(html_of(card), subtype="html")
    return mail


def _subject(delivery: Delivery) -> str:
    """That of the case's first mail, as some mail programs keep no thread together otherwise."""
    return line(delivery.receipt.get("subject", ""), 200) or f"[workerdiag] {card_of(delivery.notice).title}"


def _message_id(of: str, kind: str, domain: str) -> str:
    digest = hashlib.sha256(f"{kind}:{of}".encode("utf-8", errors="surrogatepass")).hexdigest()[:32]
    return f"<{digest}@{domain}>"


def _one_id(text: str) -> str:
    """A message id as we make them; empty if it is anything else."""
    is_id = text.startswith("<") and text.endswith(">") and text.isascii() and text.isprintable()
    return text if is_id and " " not in text else ""


def _said_by(host: str, refusal: smtplib.SMTPResponseException) -> str:
    is_login = isinstance(refusal, smtplib.SMTPAuthenticationError)
    remedy = "; check user and password" if is_login else ""
    return f"{host} answered {refusal.smtp_code} {_decoded(refusal.smtp_error)}{remedy}"


def _decoded(text: bytes | str) -> str:
    return text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text


def html_of(card: Card) -> str:
    """Plain HTML without styles, pictures or anything that is loaded; all text is escaped."""
    return "<!doctype html>\n<html><body>\n" + "\n".join(_elements(card)) + "\n</body></html>\n"


def _elements(card: Card) -> Iterator[str]:
    yield f"<p><b>{_html(card.title)}</b><br>{_html(card.reason)}</p>"
    if card.text:
        yield f"<p>{_html(card.text)}</p>"
    if card.facts:
        yield f"<p>{'<br>'.join(f'<b>{_html(label)}:</b> {_html(value)}' for label, value in card.facts)}</p>"
    if card.advice:
        yield f"<ul>{''.join(f'<li>{_html(each)}</li>' for each in card.advice)}</ul>"
    for label, address in card.links:
        yield f'<p><a href="{html.escape(address)}">{_html(label)}</a></p>'
    for label, command in card.commands:
        yield f"<p>{_html(label)}: <code>{_html(command)}</code></p>"


def _html(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


def moment_of(when: float) -> datetime:
    """A time for the header ``Date``; the epoch for what is no time."""
    try:
        return datetime.fromtimestamp(when, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


#: Variables of the environment: the mail server as ``smtp://USER:PASSWORD@HOST:587`` (STARTTLS), ``smtps://``
#: (TLS) or ``smtp+plain://`` (neither), and the sender of mails.
MAIL_SERVER = "WORKERDIAG_MAIL_SERVER"
MAIL_SENDER = "WORKERDIAG_MAIL_SENDER"
_SECURITY: Mapping[str, tuple[Security, int]] = {
    "smtp": ("starttls", 587),
    "smtps": ("tls", 465),
    "smtp+plain": ("none", 25),
}


def from_option(value: str, environment: Mapping[str, str]) -> MailSink:
    """Return the sink for a recipient's address."""
    remedy = f"set {MAIL_SERVER} to smtp://USER:PASSWORD@HOST:587"
    try:
        server = urlsplit(environment_variable("mail", environment, MAIL_SERVER))
        security, port = _SECURITY[server.scheme]
        port = server.port or port
    except (ValueError, KeyError):
        raise SinkSetupError("mail", f"{MAIL_SERVER} is not the address of a mail server", remedy) from None
    return MailSink(
        to=value,
        host=server.hostname or "",
        sender=environment_variable("mail", environment, MAIL_SENDER),
        port=port,
        security=security,
        user=unquote(server.username or ""),
        password=unquote(server.password or ""),
    )
