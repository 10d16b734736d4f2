"""Whole incidents whose cause is known: what rules are tried on, and their certainty is measured on.

A folder of incidents holds one folder for each: the texts that were left behind, and
``meta.toml``, which says what they are to be explained by. `knowledge/README.md` has the keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from attrs import asdict, field, frozen
from attrs.validators import min_len

from workerdiag.errors import RuleFileError
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import OUTCOMES
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.structure import rule_converter, table_problems
from workerdiag.sources.logs import LogSource

#: It says how an incident is to be explained; all other files in the folder are its texts.
META_FILE = "meta.toml"
#: Reading what lies on disk takes milliseconds; a folder on a network that hangs must still end.
_READING_S = 60.0


@frozen(kw_only=True)
class IncidentMeta:
    """The content of an incident's ``meta.toml``."""

    #: Ids of causes, or outcomes ("unknown", "no-death"); each is a right answer.
    expected: tuple[str, ...] = field(validator=min_len(1))
    #: Nothing went wrong: no cause that is not expected may be given.
    quiet: bool = False
    #: What happened, in a sentence.
    about: str = ""
    origin: Literal["recorded", "built"] = "recorded"
    #: Where the formats of a built one are from.
    source: str = ""
    #: Releases that wrote the logs.
    distributed: str = ""
    python: str = ""


@frozen(kw_only=True)
class KnownIncident(IncidentMeta):
    """One incident, with what it is to be explained by."""

    #: Name of its folder.
    name: str
    #: The texts that it left, in the order in which they are read.
    logs: tuple[Path, ...]


def read_incidents(folder: Path) -> list[KnownIncident]:
    """The incidents of *folder*, sorted by name; raises RuleFileError with the problems of all."""
    found, problems = [], []
    for place in sorted(each for each in folder.iterdir() if each.is_dir() and not _is_hidden(each)):
        meta, mistakes = _read_meta(place / META_FILE)
        logs = tuple(each for each in text_files(place) if each.name != META_FILE)
        if not logs:
            mistakes.append("holds no text to explain")
        problems += [f"{place.name}: {each}" for each in mistakes]
        if meta is not None and logs:
            found.append(KnownIncident(name=place.name, logs=logs, **asdict(meta)))
    if problems:
        raise RuleFileError(str(folder), tuple(problems))
    return found


def text_files(folder: Path) -> list[Path]:
    """The files directly in *folder*, sorted by name, without hidden ones."""
    return sorted(each for each in folder.iterdir() if each.is_file() and not _is_hidden(each))


def evidence_of(logs: Sequence[Path]) -> Iterator[Evidence]:
    """What `explain` would read from *logs*."""
    return LogSource(logs).collect(budget_s=_READING_S)


def explain_logs(logs: Sequence[Path], book: Rulebook, matcher: Matcher) -> Findings:
    """The findings from *logs* and nothing else."""
    return diagnose(evidence_of(logs), book, matcher=matcher)


def unknown_expectations(incidents: Iterable[KnownIncident], book: Rulebook) -> Iterator[str]:
    """Expectations that are neither a cause nor an outcome, each with the incident's name."""
    known = {*(cause.id for cause in book.causes), *OUTCOMES} - {"explained"}
    for each in incidents:
        for name in each.expected:
            if name not in known:
                yield f"incident {each.name}: expects {name}, which is no cause and no outcome"


def _read_meta(path: Path) -> tuple[IncidentMeta | None, list[str]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, [f"has no {META_FILE}"]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        return None, [f"{META_FILE}: {problem}"]
    try:
        return rule_converter().structure(table, IncidentMeta), []
    except Exception as problem:  # noqa: BLE001  cattrs raises groups of anything
        return None, [f"{META_FILE}: {each}" for each in table_problems(problem)]


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "__"))
