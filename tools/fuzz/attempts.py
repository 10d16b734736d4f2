"""One input of each kind, given to `workerdiag` as a user would."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import workerdiag
from fuzz import boxes, bundles, corpus
from fuzz.hostile import Client, exception_of
from workerdiag import Diagnosis
from workerdiag.errors import WorkerdiagError

#: Seconds that each call is given.
TIMEOUT_S = 2.0


class Attempt(Protocol):
    """Gives some bytes to `workerdiag`."""

    def __call__(self, data: bytes) -> Diagnosis | None:
        """The diagnosis, or None where the input was refused as it should be."""


def of_log(data: bytes) -> Diagnosis:
    """Log text, as a file that is open."""
    return workerdiag.explain(logs=io.BytesIO(data), timeout=TIMEOUT_S)


def of_exception(data: bytes) -> Diagnosis:
    """An exception that was caught."""
    return workerdiag.explain(exception_of(data), timeout=TIMEOUT_S)


def of_client(data: bytes) -> Diagnosis:
    """A client, with an exception."""
    client = Client(data)
    return workerdiag.explain(exception_of(data), client, timeout=TIMEOUT_S)


def of_rules(data: bytes) -> Diagnosis | None:
    """A folder with a rule of one's own, and a death judged by it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "causes", "house", "rule.toml")
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        try:
            book = workerdiag.load_rulebook(folder, packs=False)
        except WorkerdiagError:
            return None
    return workerdiag.explain(logs=io.BytesIO(corpus.DEATH), rulebook=book, timeout=TIMEOUT_S)


ATTEMPTS: Mapping[str, Attempt] = {
    "log": of_log,
    "bundle": of_log,  # known by their content
    "box": of_log,
    "exception": of_exception,
    "client": of_client,
    "rules": of_rules,
}


def seeds(kind: str) -> Sequence[bytes]:
    """What inputs of a kind are made of."""
    match kind:
        case "bundle":
            return bundles.bundles()
        case "box":
            return boxes.boxes()
        case "rules":
            return corpus.rules()
        case "log":
            return (*corpus.logs(), *corpus.packed())
    return (
        *(bytes(range(at, at + 8)) + log[:2000] for at, log in enumerate(corpus.logs()[:200])),
        *corpus.HOSTILE,
    )
