"""Everything that "proven" means, run on a folder of rules: its examples, whole incidents, quiet logs.

A folder is tried as it would be used: added to the rules that come with workerdiag. So its
rules must not shout at the logs of healthy clusters that come with workerdiag either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from workerdiag.authoring.known_incidents import (
    KnownIncident,
    explain_logs,
    read_incidents,
    text_files,
    unknown_expectations,
)
from workerdiag.authoring.lint import check_examples, signs_without_lookalikes
from workerdiag.errors import RuleFileError
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.diagnosis import Findings, RankedCause, findings_answer
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.model.signs import EventSign, ExitSign
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.folder import read_folder
from workerdiag.rulebook.load import load_rulebook, quiet_lines, shipped_folder

#: What a folder can hold in addition to its rules.
INCIDENTS, QUIET, QUIET_LINES = "incidents", "quiet", "quiet.txt"
#: On a quiet log no cause may be given with this chance or more.
FALSE_ALARM = 0.2
#: A wrong answer is shown with this many causes.
_NAMED = 3


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
    known = [
        each
        for place in (folder / INCIDENTS, *incidents)
        if place.is_dir()
        for each in _require_incidents(place)
    ]
    quiet = _quiet_logs(folder)
    problems = [
        *check_examples(book),
        *unknown_expectations(known, together),
        *(line for each in known for line in incident_problems(each, together, matcher)),
        *(line for name, logs in quiet for line in quiet_problems(name, logs, together, matcher)),
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


def quiet_problems(name: str, logs: Sequence[Path], book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """The causes that *book* sees in the *logs* of a healthy cluster, other than requests to stop."""
    yield from _quiet_alarms(f"quiet log {name}", explain_logs(logs, book, matcher), book)


def _require_incidents(place: Path) -> list[KnownIncident]:
    found = read_incidents(place)
    if not found:
        raise RuleFileError(str(place), ("holds no incident: one folder each, with its texts and meta.toml",))
    return found


def _quiet_logs(folder: Path) -> list[tuple[str, list[Path]]]:
    places = {each.resolve(): each for each in (folder / QUIET, shipped_folder() / QUIET) if each.is_dir()}
    return [(f"{QUIET}/{path.name}", [path]) for place in places.values() for path in text_files(place)]


def _false_alarm_lines(folder: Path, book: Rulebook, matcher: Matcher) -> Iterator[str]:
    path = folder / QUIET_LINES
    own = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in dict.fromkeys((*(line for line in own if line and not line.startswith("#")), *quiet_lines())):
        found = diagnose([LogChunk(origin=QUIET_LINES, data=line.encode())], book, matcher=matcher)
        yield from _quiet_alarms(f"quiet line {line!r}", found, book)


def _false_alarms(findings: Findings) -> list[RankedCause]:
    return [cause for cause in findings.causes if cause.probability >= FALSE_ALARM]


def _quiet_alarms(where: str, findings: Findings, book: Rulebook) -> Iterator[str]:
    """The causes that are seen on a quiet log, other than requests to stop."""
    for cause in _false_alarms(findings):
        rule = book.cause(cause.id)
        if rule is None or rule.ends != "stopped":
            yield _alarm_text(where, cause)


def _alarm_text(where: str, cause: RankedCause) -> str:
    seen = cause.evidence[0]
    return (
        f"{where}: {cause.id} gets {cause.probability:.2f}, and nothing there may get {FALSE_ALARM:.2f}"
        f" (sign {seen.sign}: {seen.text[:100]!r})"
    )


def _outcome_text(findings: Findings, expected: Sequence[str]) -> str:
    head = "" if findings.outcome == "explained" else f"{findings.outcome}; likeliest "
    causes = [each for index, each in enumerate(findings.causes) if index < _NAMED or each.id in expected]
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
