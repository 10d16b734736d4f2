"""What hiding secrets costs: time that grows with the text, whatever is in it."""

from __future__ import annotations

import base64
import json
import random
import time

import pytest

from workerdiag.redaction.secrets import HIDDEN, redact_text

#: Characters of the shorter text; the longer one has four times as many.
CHARS = 2**15


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
    "equals": "=",
    "escapes-without-ends": "\x1b]",
    "tokens-cut-off": "eyJ",
    "urls-with-ports": "://a:1/b@",
}


def redaction_s(text):
    began = time.process_time()
    assert len(redact_text(text, keep_lines=True)) <= 8 * len(text)
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("gap", ["", " and so on, for the length of some words\n"])
@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_four_times_the_text_takes_four_times_as_long(piece, gap):
    """Not sixteen times, whatever its shape."""
    short = (piece + gap) * (CHARS // len(piece + gap))
    assert any(redaction_s(short * 4) < 10 * max(redaction_s(short), 0.005) for _ in range(3))
