"""Every kind of secret stays inside, wherever it stands and however a diagnosis leaves the process."""

from __future__ import annotations

import zipfile

import pytest

import workerdiag
from support.sample_secrets import HARMLESS, KINDS
from workerdiag import LogText
from workerdiag.model.evidence import Event, ExceptionFacts, Gap, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.redaction.secrets import redact_text

#: Of a secret not even so many characters in a row may be shown.
_CHARS = 6


class SecretSource:
    """A source with a secret in everything it says."""

    name = "told"

    def __init__(self, text, secret):
        self._text, self._secret = text, secret

    def collect(self, *, budget_s):
        assert budget_s > 0
        text = self._text
        identity = Identity(worker="tcp://10.0.0.4:4002", pid=7, name=text)
        yield ExceptionFacts(type="distributed.scheduler.KilledWorker", text=text, task=text, identity=identity)
        yield ExceptionFacts(
            type="builtins.OSError", text=f"[Errno 28] No space left on device: {text}", identity=identity
        )
        yield Event(
            topic="worker-restart-memory",
            fields={"worker": identity.worker, "pid": 7, "note": text, "password": self._secret},
        )
        yield TasksAtLoss(identity=identity, tasks=(text,), assigned=(text, text))
        yield Gap(source=text, reason="forbidden", detail=text, remedy=text)


def log_of(text):
    return (
        "2026-05-04 11:22:33,444 - distributed.worker - WARNING - Compute Failed\nKey: x\n"
        f"OSError: [Errno 28] No space left on device: {text}\n"
        "2026-05-04 11:22:34,000 - distributed.nanny - INFO - Worker process 7 was killed by signal 11\n"
    )


def shown_of(secret, text, output):
    """Pieces of the secret in an output, but for those that also stand in the text around it."""
    around = text.replace(secret, "\n")
    pieces = {secret[at : at + _CHARS] for at in range(max(1, len(secret) - _CHARS + 1))}
    return sorted(each for each in pieces if each in output and each not in around)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_part_of_the_secret_is_left(kind):
    """What is hidden of a text is the whole secret."""
    text, secret = KINDS[kind]
    assert secret in text
    assert not shown_of(secret, text, redact_text(text))
    assert not shown_of(secret, text, redact_text(f"  at x ({text}), then\n\ttold so"))


def test_there_are_enough_kinds():
    """The table does not shrink."""
    assert len(KINDS) >= 98
    assert len(HARMLESS) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_output_shows_it(kind, tmp_path):
    """Not in a log, an exception, a task's key, a worker's name or an event; not as text, Markdown, HTML, JSON or bundle."""
    text, secret = KINDS[kind]
    diagnosis = workerdiag.explain(logs=LogText(log_of(text)), sources=[SecretSource(text, secret)])
    with zipfile.ZipFile(diagnosis.save(tmp_path / "death.zip")) as bundle:
        files = "\n".join(bundle.read(name).decode() for name in bundle.namelist())
    outputs = {
        "text": diagnosis.to_text(full=True),
        "markdown": diagnosis.to_markdown(),
        "html": diagnosis.to_html(),
        "json": diagnosis.to_json(),
        "bundle": files,
    }
    assert diagnosis.outcome in {"explained", "unknown"}
    assert {name: shown for name, output in outputs.items() if (shown := shown_of(secret, text, output))} == {}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    """Keys of tasks, addresses, numbers and source code are what a person needs to read."""
    assert redact_text(text) == text
