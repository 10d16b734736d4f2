"""Secrets do not leave with a report, and what is no secret stays readable."""

from __future__ import annotations

import re
import sys
import typing
import unicodedata
import zipfile
from pathlib import Path

import pytest
from attrs import evolve, fields, has
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import workerdiag
from support.sample_secrets import KINDS
from workerdiag import LogText
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.bundle.bundle_file import write_bundle
from workerdiag.bundle.kept_evidence import KeptEvidence, KeptLog
from workerdiag.cli import main
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Event, Evidence, LogChunk, LogExcerpt
from workerdiag.model.identity import Identity
from workerdiag.redaction import secrets
from workerdiag.redaction.objects import redact_object
from workerdiag.redaction.secrets import HIDDEN, redact_text
from workerdiag.redaction.visible_text import visible_text
from workerdiag.rulebook.load import load_rulebook

SECRET = "Hunter2x9Qz"
TEXT = f"DB_PASSWORD={SECRET} and more"
#: Of these, redaction is made; so texts of them are hard for it.
PIECES = [
    *"=:,;&?<>()[]{}\"'`\\ \n\t/@-|.",
    *("password", "token", "key", "Cookie", "Authorization", "value", "<password>", "--password", HIDDEN),
    *("Bearer ", "Basic ", "://", "https://a:", "mysql", " -p", "curl", " -u ", "login ", "machine "),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "\x1b[31m",
        "\u200b",
        "&quot;",
        "AKIA",
        "x9Qz",
    ),
]
TEXTS = st.lists(
    st.sampled_from([*PIECES, *(text for text, _ in KINDS.values())]) | st.text(max_size=5), max_size=12
).map("".join)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DB_PASSWORD=hunter22 failed", f"DB_PASSWORD={HIDDEN} failed"),
        ('"aws_secret_access_key": "wJalrXUtnFEMI/K7"', f'"aws_secret_access_key": "{HIDDEN}"'),
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {HIDDEN}"),
        ("postgres://ann:s3cret@db:5432/x", f"postgres://ann:{HIDDEN}@db:5432/x"),
        ("GET /o?X-Amz-Signature=9f3a&x=1", f"GET /o?X-Amz-Signature={HIDDEN}&x={HIDDEN}"),
        ("with key AKIAIOSFODNN7EXAMPLE denied", f"with key {HIDDEN} denied"),
        ("coiled login --token 1234567890abc", f"coiled login --token {HIDDEN}"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----.", f"{HIDDEN}."),
        ("\x1b[31mpassword\x1b[0m=\x1b[1mhunter2\x1b[0m", f"password={HIDDEN}"),
        ("Config(password=hunter2, user='ann')", f"Config(password={HIDDEN}, user='ann')"),
        ("Server=db;Password=a b;User=ann", f"Server=db;Password={HIDDEN};User=ann"),
    ],
)
def test_the_value_is_hidden_and_the_name_stays(text, shown):
    """The name of a secret may be the clue; its value never is. What stands around both is not touched."""
    assert redact_text(text) == shown


@given(TEXTS)
def test_hiding_twice_hides_no_more(text):
    """What was hidden once is not taken for a secret again."""
    assert redact_text(redact_text(text)) == redact_text(text)


@given(TEXTS | st.text(max_size=300))
def test_hiding_has_bounds(text):
    """Whatever the text, nothing is raised, what is shown stays short, and no line moves where lines count."""
    assert len(redact_text(text)) <= 8 * len(text)
    assert redact_text(text, keep_lines=True).count("\n") == text.count("\n")


@pytest.mark.slow
def test_what_does_not_show_hides_nothing():
    """Every character of Unicode that hides or reorders others is left out of what is looked at."""
    for char in map(chr, range(sys.maxunicode + 1)):
        category = unicodedata.category(char)
        is_shown = category not in {"Cc", "Cf", "Co"} or char in "\t\n\r"
        if not is_shown:
            assert not visible_text(char), hex(ord(char))
        elif char.isascii():
            assert visible_text(char) == char


def test_what_the_rules_say_is_no_secret():
    """Advice, commands and links of the shipped rules are shown as they are."""
    for cause in load_rulebook().causes:
        assert redact_object(cause.mitigations) == cause.mitigations
        assert redact_object(cause.next_steps) == cause.next_steps
        for text in (cause.id, cause.title, cause.why, *cause.references):
            assert redact_text(text) == text


def test_values_of_secret_names_are_hidden_in_any_shape():
    """In a mapping, a pair, a list and a name with its value, also where the value looks like nothing."""
    plain = {
        "password": "a b",
        "user": "ann",
        "headers": [("Authorization", "x y"), ["accept", "all"]],
        "env": [{"name": "DB_PASSWORD", "value": "a b"}, {"name": "HOME", "value": "/root"}],
        "tokens": ["a", "b"],
        "secret": None,
        b"raw"[0]: b"password=x",
    }
    assert redact_object(plain) == {
        "password": HIDDEN,
        "user": "ann",
        "headers": [("Authorization", HIDDEN), ["accept", "all"]],
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "HOME", "value": "/root"}],
        "tokens": HIDDEN,
        "secret": None,
        b"raw"[0]: f"password={HIDDEN}".encode(),
    }


def filled(wanted: object, text: str) -> object:
    """A value of a type, with the text in every text of it; of a closed set the first word."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted in {str, type(None)}:
        return text if wanted is str else None
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        return (filled(arguments[0], text),)
    if origin is not None and issubclass(origin if isinstance(origin, type) else object, typing.Mapping):
        return {text: text}
    if arguments:
        return filled(arguments[0], text)
    return of(wanted, text) if isinstance(wanted, type) and has(wanted) else None


def of(cls: type, text: str) -> object:
    """An object of a class, with the text in every field that takes text."""
    hints = typing.get_type_hints(cls)
    arguments = {}
    for each in fields(cls):
        value = filled(hints[each.name], text)
        if each.init and each.eq and value is not None and each.name != "stream":
            arguments[each.name] = value
        elif hints[each.name] in {int, float}:
            arguments[each.name] = 1
    return cls(**arguments)


def texts_in(value: object) -> list[str]:
    """Every text in a value, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.items() for part in each for text in texts_in(part)]
    if isinstance(value, tuple | list):
        return [text for each in value for text in texts_in(each)]
    return (
        [text for each in fields(type(value)) for text in texts_in(getattr(value, each.name))]
        if has(type(value))
        else []
    )


def test_no_field_of_findings_is_forgotten():
    """Every text of findings, at any depth, is without its secret; there are many."""
    findings = of(Findings, TEXT)
    assert sum(SECRET in text for text in texts_in(findings)) > 40
    assert not [text for text in texts_in(redact_object(findings)) if SECRET in text]


def test_no_part_of_a_bundle_is_forgotten(tmp_path, monkeypatch):
    """Nor is any text of the evidence, the logs, the versions, the configuration or the manifest."""
    monkeypatch.setattr("workerdiag.bundle.bundle_file.versions", lambda: {"python": TEXT})
    monkeypatch.setattr(
        "workerdiag.bundle.bundle_file.configuration", lambda: {"distributed.x": TEXT, "password": SECRET}
    )
    pieces = [of(kind, TEXT) for kind in typing.get_args(Evidence) if kind is not LogChunk]
    pieces.append(Event(topic="x", fields={"password": f"{SECRET} {SECRET}", TEXT: 1}))
    log = KeptLog(origin=TEXT, identity=Identity(name=TEXT), parts=(LogExcerpt(0, 1, f"{TEXT}\n".encode()),))
    path = write_bundle(
        of(Findings, TEXT), KeptEvidence(items=(*pieces, log), left_out=(TEXT,)), tmp_path / "death.zip"
    )

    with zipfile.ZipFile(path) as bundle:
        for name in bundle.namelist():
            content = bundle.read(name).decode()
            assert SECRET not in content, name
            assert name == "versions.json" or HIDDEN in content, name


def test_a_report_of_an_old_bundle_hides_what_that_kept(tmp_path):
    """A bundle that was saved with its secrets, or by a version that knew fewer, is reported without them."""
    kept = KeptEvidence(
        items=(Event(topic="x", fields={"password": f"{SECRET} {SECRET}"}, when=1.0), of(Identity, TEXT))[:1]
    )
    findings = evolve(of(Diagnosis, TEXT), causes=())
    path = write_bundle(findings, kept, tmp_path / "death.zip", redact=False)
    report = CliRunner().invoke(main, ["report", str(path)])

    assert report.exit_code == 0
    assert HIDDEN.strip("[]") in report.stdout
    assert SECRET not in report.stdout


def test_a_report_shows_no_secret_of_the_log():
    """A line that is shown as evidence is shown without what it should not have held."""
    line = "OSError: [Errno 28] No space left on device: 's3://ann:s3cret@host/x'"
    log = (
        "2026-05-04 11:22:33,444 - distributed.worker - WARNING - Compute Failed\n"
        f"Key: x\n{line}\n2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 7 exited with status 1\n"
    )
    diagnosis = workerdiag.explain(logs=LogText(log))

    assert "No space left" in diagnosis.to_json()
    assert "s3cret" not in diagnosis.to_json()


def test_messages_of_the_command_line_show_none(tmp_path):
    """A place that cannot be read is named without the password in it."""
    run = CliRunner().invoke(main, ["explain", f"memory://ann:{SECRET}@host/nothing.log"])
    assert SECRET not in run.output + run.stderr


def test_patterns_of_the_room_nest_no_quantifiers():
    """A pattern whose repeats repeat could take time that no text is worth."""
    nested = re.compile(r"(?<!\\)\((?:\?:)?[^()\[\]]*[^\\()\[\]][*+][^()\[\]]*\)[*+]")
    room = Path(workerdiag.__file__).parent / "redaction"
    assert [path.name for path in room.glob("*.py") if nested.search(path.read_text(encoding="utf-8"))] == []


def test_only_what_has_no_secret_is_remembered(monkeypatch):
    """What was found harmless is not searched again, and no text with a secret stays in memory."""
    monkeypatch.setattr(secrets, "_HARMLESS", known := set[str]())
    for text in (TEXT, "a worker died", TEXT, "a worker died"):
        assert SECRET not in redact_text(text)

    assert "a worker died" in known
    assert not any(SECRET in each for each in known)


def test_what_is_remembered_is_bounded(monkeypatch):
    """A watcher that redacts for weeks keeps a few thousand short texts, no more."""
    monkeypatch.setattr(secrets, "_HARMLESS", known := set[str]())
    monkeypatch.setattr(secrets, "_MOST_HARMLESS", 3)
    for number in range(10):
        redact_text(f"worker {number} died")
    redact_text("a worker died " * 1000)

    assert len(known) <= 3
    assert max(map(len, known)) < 1000
