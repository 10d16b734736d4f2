"""E-mail, against a real mail server on this machine."""

from __future__ import annotations

import socket
import ssl

import pytest
from hypothesis import given, settings

from support.certificates import write_certificate
from support.mail_server import PASSWORD, USER, mail_server
from support.notices import HOSTILE, delivery_of, notices, sample_notice
from workerdiag.watch.sinks.base import DeliveryError, SinkSetupError
from workerdiag.watch.sinks.mail import MailSink, mail_of

SENDER = "watcher@example.org"


def sink_for(box, to="oncall@example.org", **options):
    return MailSink(to, "127.0.0.1", SENDER, port=box.port, **{"security": "none", **options})


def plain(mail):
    return mail.get_body(("plain",)).get_content()


def test_a_mail_has_text_and_html():
    """Any mail program shows what died, why, and what to do."""
    with mail_server() as box:
        sink_for(box, "oncall@example.org, team@example.org").deliver(delivery_of())
    (mail,) = box.mails
    assert box.recipients == [["oncall@example.org", "team@example.org"]]
    assert (mail["From"], mail["To"]) == (SENDER, "oncall@example.org, team@example.org")
    assert mail["Subject"] == "[workerdiag] 3 workers of prod died: memory limit (93%)"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "- Give each worker at least 4 GiB." in plain(mail)
    assert "workerdiag watch silence case-1 --for 4h" in plain(mail)
    page = mail.get_body(("html",)).get_content()
    assert '<a href="https://docs.example.org/causes/nanny">About this cause</a>' in page


def test_mails_of_a_case_are_a_thread():
    """Later mails answer the earlier ones under one subject; a repeat has the id of the first attempt."""
    with mail_server() as box:
        sink = sink_for(box)
        receipt = sink.deliver(delivery_of())
        later = delivery_of(sample_notice("resolved", id="case-1:2", title="Resolved"), receipt=receipt)
        sink.deliver(later)
        sink.deliver(later)
    first, second, repeat = box.mails
    assert second["Subject"] == f"Re: {first['Subject']}"
    assert second["In-Reply-To"] == first["Message-ID"]
    assert second["References"].split() == [*first["References"].split(), first["Message-ID"]]
    assert repeat["Message-ID"] == second["Message-ID"] != first["Message-ID"]
    assert plain(second).startswith("Resolved")


def test_a_lost_receipt_does_not_break_the_thread():
    """All mails of a case refer to an id made from the case, whatever was noted."""
    one = mail_of(delivery_of(), sender=SENDER, to=(SENDER,))
    two = mail_of(delivery_of(sample_notice(id="case-1:2")), sender=SENDER, to=(SENDER,))
    assert one["References"] == two["References"]
    assert one["Message-ID"] != two["Message-ID"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return write_certificate(tmp_path_factory.mktemp("mail") / "both.pem")


def test_password_and_mail_travel_encrypted(certificate):
    """With STARTTLS to a server that is trusted, the login works and the mail arrives."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)
    login = {"security": "starttls", "user": USER, "password": PASSWORD}
    with mail_server(tls=server_side, wants_login=True) as box:
        sink_for(box, context=trusting, **login).deliver(delivery_of())
        with pytest.raises(DeliveryError, match=r"cannot reach.*certificate") as distrusted:
            sink_for(box, **login).deliver(delivery_of())
        with pytest.raises(DeliveryError, match="check user and password") as refused:
            sink_for(box, context=trusting, **{**login, "password": "wr0ng-password"}).deliver(delivery_of())
    assert len(box.mails) == 1
    assert (distrusted.value.is_final, refused.value.is_final) == (False, True)
    assert "wr0ng" not in str(refused.value)
    assert str(refused.value).count("check user and password") == 1


def test_a_server_may_want_tls_from_the_start(certificate):
    """Port 465 of many servers speaks TLS at once."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)
    with mail_server(tls_from_the_start=server_side) as box:
        sink_for(box, context=trusting, security="tls").deliver(delivery_of())
    assert len(box.mails) == 1


def test_a_server_without_starttls_gets_nothing():
    """No password or mail is sent in the clear unless somebody asked for that."""
    with mail_server() as box, pytest.raises(DeliveryError, match="STARTTLS") as caught:
        sink_for(box, security="starttls").deliver(delivery_of())
    assert caught.value.is_final
    assert not box.mails


@pytest.mark.parametrize(("answer", "is_final"), [("451 later", False), ("554 spam", True)])
def test_the_servers_answer_decides(answer, is_final):
    """4xx is tried again, 5xx is not."""
    with mail_server() as box:
        box.answer = answer
        with pytest.raises(DeliveryError, match=answer) as caught:
            sink_for(box).deliver(delivery_of())
    assert caught.value.is_final is is_final


def test_who_was_refused_for_now_gets_it_later_and_nobody_twice():
    """A server that takes a mail for one and not yet for the other is asked again for the other alone."""
    with mail_server() as box:
        sink = sink_for(box, "a@example.org,b@example.org")
        box.refuses["b@example.org"] = "450 greylisted"
        with pytest.raises(DeliveryError, match=r"b@example\.org: 450 greylisted") as caught:
            sink.deliver(delivery_of())
        box.refuses.clear()
        sink.deliver(delivery_of(attempt=2))
    assert not caught.value.is_final
    assert box.recipients == [["a@example.org"], ["b@example.org"]]


def test_unknown_recipients_are_final():
    """An address that the server does not know is named."""
    with mail_server() as box:
        box.refuses["oncall@example.org"] = "550 no such user"
        with pytest.raises(DeliveryError, match=r"oncall@example\.org: 550 no such user") as caught:
            sink_for(box).deliver(delivery_of())
    assert caught.value.is_final


def test_a_server_that_says_nothing_is_left_in_time():
    """A mail server that hangs costs the time limit and no more."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = MailSink(
            "a@example.org", "127.0.0.1", SENDER, port=silent.getsockname()[1], security="none", timeout_s=0.3
        )
        with pytest.raises(DeliveryError, match=r"127\.0\.0\.1") as caught:
            sink.deliver(delivery_of())
    assert not caught.value.is_final


def test_hostile_text_is_no_header_and_no_html():
    """A line end in a name adds no recipient, and a tag in it is shown."""
    notice = sample_notice(title=HOSTILE, cluster=HOSTILE, advice=(HOSTILE,), links={"cause": HOSTILE})
    mail = mail_of(delivery_of(notice), sender=SENDER, to=(SENDER,))
    assert mail["Bcc"] is None
    assert "Bcc:" not in mail.as_bytes().decode().partition("\r\n\r\n")[0].replace("Subject:", "").split("\r\n")
    page = mail.get_body(("html",)).get_content()
    assert "<img" not in page
    assert "&lt;img src=x" in page


@settings(max_examples=50)
@given(notices, notices)
def test_any_notice_is_a_valid_mail(notice, earlier):
    """Whatever stands in a notice or in what was noted before, the mail can be sent and read again."""
    receipt = {"subject": earlier.title, "last": f"<{earlier.id}>"}
    mail = mail_of(delivery_of(notice, receipt=receipt), sender=SENDER, to=(SENDER,))
    head = mail.as_bytes().partition(b"\r\n\r\n")[0]
    assert head.isascii()
    assert all(len(each) <= 998 for each in head.split(b"\r\n"))
    assert notice.reason


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"to": "oncall"}, "'oncall' is not a mail address"),
        ({"to": ()}, "there is no recipient"),
        ({"sender": "me"}, "'me' is not a mail address"),
        ({"host": ""}, "the mail server is empty"),
        ({"port": 0}, "0 is not a port"),
        ({"security": "ssl"}, "security 'ssl' is unknown"),
        ({"to": "a@b.example\nBcc: c@d.example"}, "is not a mail address"),
    ],
)
def test_wrong_options_are_refused_at_once(changes, problem):
    """A mistake shows when the sink is made, not at the first death."""
    with pytest.raises(SinkSetupError, match=problem):
        MailSink(**{"to": "a@example.org", "host": "mail.example.org", "sender": SENDER, **changes})
