"""Tests a folder of rules, added to the shipped ones: its examples, whole incidents, quiet logs.

A folder of incidents holds one folder for each: the texts that were left behind, and ``meta.toml`` with what they
are to be explained by (`knowledge/README.md` has the keys).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from attrs import asdict, field
from attrs.validators import min_len

from workerdiag.authoring.lint import check_examples, signs_without_lookalikes
from workerdiag.errors import RuleFileError
from workerdiag.guard import guarded
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Findings, RankedCause, findings_answer
from workerdiag.model.evidence import Event, Evidence, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.rules import EventSign, ExitSign, ReasonRule, Rulebook
from workerdiag.model.vocabulary import OUTCOMES
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook, quiet_lines, shipped_folder
from workerdiag.rulebook.toml_folder import read_folder, rule_converter, table_problems
from workerdiag.sources.logs.source import LogSource
from workerdiag.values import frozen

#: What a folder can hold in addition to its rules.
INCIDENTS, QUIET, QUIET_LINES = "incidents", "quiet", "quiet.txt"
#: On a quiet log no cause may be given with this chance or more.
FALSE_ALARM = 0.2
#: The worker that examples of reasons are about.
_DEAD = Identity(worker="tcp://10.3.4.5:38211", pid=4711)


@frozen(kw_only=True)
class RuleEvaluation:
    """What came of trying a folder of rules."""

    book: Rulebook
    #: What the rules get wrong.
    problems: tuple[str, ...]
    #: What nothing was tried for, or on: not wrong, but not proven.
    unproven: tuple[str, ...]
    incident_count: int
    quiet_count: int


def evaluate_rules(folder: Path, *, incidents: Sequence[Path] = ()) -> RuleEvaluation:
    """Try the rules of *folder* and its incidents, with those that come with workerdiag.

    A folder has rules, ``incidents/<name>/``, ``quiet.txt`` and ``quiet/<file>``; *incidents* are more
    folders. Raises RuleFileError with all problems if rules or an incident cannot be read.
    """
    book = read_folder(folder)
    together = load_rulebook(folder, packs=False)
    matcher = Matcher(together)
    known = [each for place in (folder / INCIDENTS, *incidents) if place.is_dir() for each in read_incidents(place)]
    quiet = _quiet_logs(folder)
    problems = [
        *check_examples(book),
        *(line for each in book.reasons for line in reason_problems(each, together, matcher)),
        *unknown_expectations(known, together),
        *(line for each in known for line in incident_problems(each, together, matcher)),
        *(
            line
            for path in quiet
            for line in quiet_problems(
                f"quiet log {QUIET}/{path.name}", explain_logs([path], together, matcher), together
            )
        ),
        *_false_alarm_lines(folder, together, matcher),
    ]
    return RuleEvaluation(
        book=book,
        problems=tuple(problems),
        unproven=(
            *signs_without_lookalikes(book),
            *_untested_causes(book, known),
            *_exits_left_to_others(book, together),
        ),
        incident_count=len(known),
        quiet_count=len(quiet),
    )


def reason_problems(rule: ReasonRule, book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """The examples of a reason for which *book* names another one, or none."""
    for each in rule.examples:
        topics = [(str(event.get("topic", "")), event) for event in each.events]
        events = [
            Event(topic=topic, fields=event, identity=_DEAD if topic == "all" else NO_IDENTITY)
            for topic, event in topics
        ]
        log = LogChunk(origin="example", data=each.text.encode())
        findings = diagnose([log, *events], book, matcher=matcher)
        reason = findings.memory.reason if findings.memory else None
        if (reason == rule.id) != each.is_named:
            yield f"reason {rule.id}: {each.about}: said {reason or 'nothing'}"


def incident_problems(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """How the answer of *book* to *incident* differs from what is expected."""
    findings = explain_logs(incident.logs, book, matcher)
    if incident.quiet:
        for cause in _false_alarms(findings):
            if cause.id not in incident.expected:
                yield _alarm_text(f"quiet incident {incident.name}", cause)
    elif findings_answer(findings) not in incident.expected:
        wanted = " or ".join(incident.expected)
        said = _outcome_text(findings, incident.expected)
        yield f"incident {incident.name}: expected {wanted}; said {said}"


def quiet_problems(where: str, findings: Findings, book: Rulebook) -> Iterator[str]:
    """The causes that are seen in the log of a healthy cluster, other than requests to stop."""
    for cause in _false_alarms(findings):
        rule = book.cause(cause.id)
        if rule is None or rule.ends != "stopped":
            yield _alarm_text(where, cause)


def _quiet_logs(folder: Path) -> list[Path]:
    places = (each.resolve() for each in (folder / QUIET, shipped_folder() / QUIET) if each.is_dir())
    return [path for place in dict.fromkeys(places) for path in text_files(place)]


def _false_alarm_lines(folder: Path, book: Rulebook, matcher: Matcher) -> Iterator[str]:
    for line in dict.fromkeys((*quiet_lines(folder), *quiet_lines())):
        found = diagnose([LogChunk(origin=QUIET_LINES, data=line.encode())], book, matcher=matcher)
        yield from quiet_problems(f"quiet line {line!r}", found, book)


def _false_alarms(findings: Findings) -> list[RankedCause]:
    return [cause for cause in findings.causes if cause.probability >= FALSE_ALARM]


def _alarm_text(where: str, cause: RankedCause) -> str:
    seen = cause.evidence[0]
    return (
        f"{where}: {cause.id} gets {cause.probability:.2f}, and nothing there may get {FALSE_ALARM:.2f}"
        f" (sign {seen.sign}: {seen.text[:100]!r})"
    )


def _outcome_text(findings: Findings, expected: Sequence[str]) -> str:
    head = "" if findings.outcome == "explained" else f"{findings.outcome}; likeliest "
    causes = [each for index, each in enumerate(findings.causes) if index < 3 or each.id in expected]
    causes_text = ", ".join(f"{each.id} {each.probability:.2f}" for each in causes)
    return f"{head}{causes_text}" if causes_text else findings.outcome


def _exits_left_to_others(book: Rulebook, together: Rulebook) -> Iterator[str]:
    """Crashes whose exit another cause shows too, which wins on a live cluster, where both are seen."""
    by_exit = {each.id for each in together.causes if any(isinstance(sign, ExitSign) for sign in each.signs)}
    for cause in book.causes:
        if cause.ends == "crashed" and cause.id not in by_exit and by_exit.isdisjoint(cause.explains):
            yield (
                f"{cause.id}: its worker crashes, and a live cluster also shows how the process ended: "
                'name the cause of that exit, e.g. explains = ["code.process-exit"], or that cause may win'
            )


def _untested_causes(book: Rulebook, known: Sequence[KnownIncident]) -> Iterator[str]:
    expected_causes = {each for incident in known for each in incident.expected}
    for cause in book.causes:
        only_live = all(isinstance(sign, EventSign) for sign in cause.signs)
        if cause.status != "deprecated" and cause.id not in expected_causes and not only_live:
            yield f"{cause.id}: no whole incident shows it"


#: It says how an incident is to be explained; all other files in the folder are its texts.
META_FILE = "meta.toml"


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
    #: Where its evidence is from: log files, what a terminal showed, a live cluster without or with the recorder.
    channel: Literal["logs", "terminal", "live", "recorder"] = "logs"
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
    if not found and not problems:
        problems.append("holds no incident: one folder each, with its texts and meta.toml")
    if problems:
        raise RuleFileError(str(folder), tuple(problems))
    return found


def text_files(folder: Path) -> list[Path]:
    """The files directly in *folder*, sorted by name, without hidden ones."""
    return sorted(each for each in folder.iterdir() if each.is_file() and not _is_hidden(each))


def evidence_of(logs: Sequence[Path]) -> Iterator[Evidence]:
    """What `explain` would read from *logs*; a folder on a network that hangs must still end."""
    return LogSource(logs).collect(budget_s=60.0)


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
    with guarded("reading an incident") as reading:
        return rule_converter().structure(table, IncidentMeta), []
    problems = table_problems(reading.problem) if reading.problem is not None else []
    return None, [f"{META_FILE}: {each}" for each in problems]


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "__"))
