"""Answers of `explain` about tests, and the files that keep them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

import workerdiag
from peers.truths import Asked


@frozen(kw_only=True)
class Answer:
    """One answer of `explain` about one test."""

    #: As pytest names it, parameters included.
    test: str
    asked: Asked
    #: Of the diagnosis, or ``raised``.
    outcome: str
    #: The likeliest cause, and its probability; None where none is given.
    cause: str | None = None
    probability: float | None = None
    #: The first lines of the report, or the error.
    summary: str = ""
    seconds: float = 0.0
    #: The death bundle it can be judged again from; empty: none was kept.
    bundle: str = ""

    @property
    def said(self) -> str:
        """The cause where one is given, else the outcome."""
        return self.cause if self.outcome == "explained" and self.cause else self.outcome


def answer_of(diagnosis: workerdiag.Diagnosis, test: str, asked: Asked, *, bundle: str, seconds: float) -> Answer:
    """A diagnosis as one line of the answers."""
    top = diagnosis.top
    return Answer(
        test=test,
        asked=asked,
        outcome=diagnosis.outcome,
        cause=top.id if top else None,
        probability=top.probability if top else None,
        summary=diagnosis.summary,
        seconds=seconds,
        bundle=bundle,
    )


def write_row(file: Path, row: dict[str, Any]) -> None:
    """Append one line of JSON; what was written stays when the process dies."""
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def read_answers(folder: Path) -> Iterator[Answer]:
    """The answers that were written there."""
    for line in (folder / "answers.jsonl").read_text().splitlines():
        yield Answer(**json.loads(line))
