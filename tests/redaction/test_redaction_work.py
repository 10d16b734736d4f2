"""What hiding secrets costs: work that grows with the text, whatever is in it, counted and not timed."""

from __future__ import annotations

import base64
import json
import random
from functools import partial

import pytest

from workerdiag.redaction import secrets
from workerdiag.redaction.secrets import HIDDEN, MOST_WORK, WINDOW_CHARS, redact_text
from workerdiag.redaction.tokens import Userinfo

#: Texts of so many characters, and of twice as many.
CHARS = 4 * WINDOW_CHARS
MESSAGE = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7 was killed by signal 11"


def in_json(depth):
    text = json.dumps({"password": "Hunter2x9Qz", "user": "ann"})
    for _ in range(depth):
        text = json.dumps({"message": text})
    return f"{text}\n"


#: What nearly everything looks like a secret in, or nearly so: a text is many of one.
PIECES = {
    "base64": base64.b64encode(random.Random(1).randbytes(3000)).decode(),
    "base64-lines": base64.b64encode(random.Random(2).randbytes(48)).decode() + "\n",
    "base64-ends": "aaaaaaaaa==",
    "pairs": "password=Hunter2 ",
    "pairs-in-lines": "token=Hunter2x9\n",
    "pairs-with-commas": "pwd=a,",
    "pairs-with-semicolons": "Password=a b;",
    "pairs-with-ampersands": "token=Hunter2&",
    "names-of-no-secrets": "key=",
    "names-alone": "password",
    "names-in-quotes": 'key"',
    "tuples": "('password', 'x'), ",
    "nested-quotes": 'password="a\'b`c\\"d\\\'e" ',
    "open-quotes": "password='",
    "open-brackets": "password=[('a',",
    "open-calls": "password=f(",
    "slashes": 'password=\\\\\\"a\\\\\\" ',
    "urls": "https://ann:Hunter2@h/x ",
    "urls-without-ends": "/a:b@",
    "urls-in-urls": "a://b:c@",
    "queries": "?a=b&c=d",
    "pem-begins": "-----BEGIN PRIVATE KEY-----\nabc\n",
    "pem-ends": "abc-----END PRIVATE KEY-----\n",
    "json": in_json(0),
    "json-in-json": in_json(2),
    "json-in-json-in-json": in_json(4),
    "headers": "Authorization: Bearer Hunter2x9\n",
    "schemes": "bearer ",
    "prefixes": "ghp_ ",
    "prefixes-in-words": "task-",
    "tokens": "ghp_0123456789ab ",
    "ids-of-keys": "AKIA0123456789ABCDEF" + "-" * 40,
    "options": " -p",
    "commands": "mysql -pa ",
    "netrc": "login a password b\n",
    "xml": "<password>a</password>",
    "blocks": "password: |\n  a\n",
    "colours": "\x1b[31mpassword\x1b[0m=\x1b[1mx\x1b[0m ",
    "hidden-before": f"password={HIDDEN} ",
}


@pytest.fixture
def work(monkeypatch):
    """Counts the places that are looked at, and the values that are read, while a text is redacted."""
    counts = {"hints": 0, "values": 0}

    def counted(hints, data, begin=0):
        for each in hints(data, begin):
            counts["hints"] += 1
            yield each

    def read(value_of, text, name):
        counts["values"] += 1
        return value_of(text, name)

    for name in ("name_hints", "url_hints", "token_hints", "key_line_hints"):
        monkeypatch.setattr(secrets, name, partial(counted, getattr(secrets, name)))
    monkeypatch.setattr(secrets, "value_of", partial(read, secrets.value_of))

    def of(text):
        counts.update(hints=0, values=0)
        redact_text(text, keep_lines=True)
        return dict(counts)

    return of


@pytest.mark.slow
@pytest.mark.parametrize("gap", ["", " and so on, for the length of some words\n"])
@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_twice_the_text_is_twice_the_work(work, piece, gap):
    """Whatever its shape; and there is no more of it than the length of a text allows."""
    unit = piece + gap
    half = unit * (CHARS // len(unit))
    once, twice = work(half), work(half + half)

    assert twice["hints"] <= 2 * once["hints"] + MOST_WORK
    assert twice["values"] <= 2 * once["values"] + MOST_WORK
    assert twice["hints"] <= 4 * 2 * CHARS / 8
    assert twice["values"] <= 4 * 2 * CHARS / 64


def test_a_url_is_searched_once_however_many_seem_to_begin_in_it():
    """Where it ends and where its last ``@`` stands is not looked up again for what begins within it."""
    searched = []

    class Text(str):
        __slots__ = ()

        def rfind(self, what, begin, end):
            searched.append(end - begin)
            return super().rfind(what, begin, end)

    text = Text("/a:b@" * 1000)
    userinfo = Userinfo(text)
    for at in range(0, len(text), 5):
        userinfo.at(at, at + 1)
    assert sum(searched) <= len(text)


def test_a_dense_stretch_is_hidden_whole():
    """It is hidden up to the next message with a date, which is shown; and no line is lost."""
    stretch = "".join(f"token{at}=Hunter2x{at}\n" for at in range(5000))
    text = f"{MESSAGE}\n{'x' * 60}\n{stretch}{MESSAGE}\n"
    shown = redact_text(text, keep_lines=True)

    assert "Hunter2" not in shown
    assert shown.endswith(f"\n{MESSAGE}\n")
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize("place", range(-40, 8, 3))
def test_a_secret_at_the_edge_of_a_dense_stretch_is_hidden(place):
    """Wherever a window begins, in a name, a value, or a token with its mark at its end."""
    account_key = base64.b64encode(random.Random(3).randbytes(64)).decode()
    filling = ("and so on " * WINDOW_CHARS)[: WINDOW_CHARS + place]
    for secret in ("password=Hunter2x9Qz", account_key):
        shown = redact_text(f"{filling} {secret} {'pwd=a ' * WINDOW_CHARS}")
        assert "x9Qz" not in shown
        assert account_key[20:40] not in shown


def test_a_log_of_ordinary_lines_is_never_dense():
    """Lines in which one value is hidden each are shown, however many there are."""
    line = f"{MESSAGE}, fetched https://host/data?token=Hunter2x9Qz\n"
    shown = redact_text(line * 5000)
    assert shown.count(MESSAGE) == 5000
    assert "Hunter2" not in shown


def test_the_keys_of_tasks_are_never_dense():
    """A long list of tasks whose keys have something of a token in them stays as it is."""
    text = ", ".join(f"'task-{at}'" for at in range(20_000))
    assert redact_text(text) == text
