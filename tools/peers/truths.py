"""The table of true causes: what each test does to its workers, as read from the test's code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import frozen

from workerdiag.model.rules import Rulebook

#: When a test's answer is asked for: while its cluster is up, as an error reaches it, of its log afterwards.
Asked = Literal["live", "exception", "log"]
#: Answers without a cause that may be right, beside the ids of causes.
OUTCOMES = ("no-death", "unknown", "no-evidence")
TABLE = Path(__file__).with_name("truths.toml")


class TableError(Exception):
    """The table of truths cannot be used as it is."""


@frozen(kw_only=True)
class Truth:
    """What is right to say of one test."""

    #: File and function as pytest writes them; with parameters where these decide.
    test: str
    #: Ids of causes, and outcomes, that are right; by when it was asked.
    right: Mapping[Asked, frozenset[str]]
    why: str


def read_truths(book: Rulebook, table: Path = TABLE) -> dict[str, Truth]:
    """The truths, by test.

    Raises:
        TableError: It names a cause, a scenario or a key that there is not; all of them are said.
    """
    content = tomllib.loads(table.read_text())
    scenarios = content.pop("scenarios", {})
    truths: dict[str, Truth] = {}
    problems: list[str] = []
    for file, tests in content.items():
        for name, entry in tests.items():
            truth = _truth(f"{file}::{name}", entry, scenarios)
            truths[truth.test] = truth
            problems += _problems(truth, entry, scenarios, book)
    if problems:
        raise TableError("\n".join(problems))
    return truths


def truth_of(test: str, truths: Mapping[str, Truth]) -> Truth | None:
    """The truth about a test with its parameters, or about its function; None: the table has neither."""
    return truths.get(test) or truths.get(function_of(test))


def function_of(test: str) -> str:
    """A test's name without its parameters."""
    return test.partition("[")[0]


def _truth(test: str, entry: Mapping[str, Any], scenarios: Mapping[str, Any]) -> Truth:
    """What its scenario says, changed by what the entry says for itself."""
    merged = {**scenarios.get(entry.get("did"), {}), **entry}
    right = {asked: frozenset(merged.get(asked, merged.get("is", ()))) for asked in get_args(Asked)}
    return Truth(test=test, right=right, why=str(entry.get("why", "")))


def _problems(truth: Truth, entry: Mapping[str, Any], scenarios: Mapping[str, Any], book: Rulebook) -> list[str]:
    known = {cause.id for cause in book.causes} | set(OUTCOMES)
    named: set[str] = set().union(*truth.right.values())
    found = [f"no cause is called {each}" for each in sorted(named - known)]
    found += [f"unknown key {each}" for each in sorted(entry.keys() - {"did", "is", "why", *get_args(Asked)})]
    if "did" in entry and entry["did"] not in scenarios:
        found.append(f"no scenario is called {entry['did']}")
    if not all(truth.right.values()):
        found.append("nothing is right")
    if not truth.why:
        found.append("why?")
    return [f"{truth.test}: {each}" for each in found]
