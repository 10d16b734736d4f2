"""
Everything that "proven" means, run on a folder of rules: its examples, whole incidents, quiet logs.

A folder is tried as it would be used: added to the rules that come with workerdiag. So its
rules must not shout at the logs of healthy clusters that come with workerdiag either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from workerdiag.authoring.incidents import (
    KnownIncident,
    answer,
    explained,
    read_incidents,
    texts_in,
    unknown_names,
)
from workerdiag.authoring.lint import prove, unproven
from workerdiag.errors import RuleFileError
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.diagnosis import Findings, RankedCause
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import EventSign, Rulebook
from workerdiag.pipeline import diagnose
from workerdiag.rulebook import load_rulebook, quiet_lines, read_folder, shipped_folder

#: What a folder of rules may hold beside its rules.
INCIDENTS, QUIET, QUIET_LINES = "incidents", "quiet", "quiet.txt"
#: On a quiet log no cause may be given with this chance or more.
ALARM = 0.2
#: What a person needs of a wrong answer: so many causes.
_NAMED = 3


@frozen(kw_only=True)
class Trial:
    """
    What came of trying a folder of rules.
    """

    book: Rulebook
    #: What the rules get wrong.
    problems: tuple[str, ...]
    #: What nothing was tried for, or on: not wrong, but not proven.
    unproven: tuple[str, ...]
    incident_count: int
    quiet_count: int


def tried(folder: Path, *, incidents: Sequence[Path] = ()) -> Trial:
    """
    Try the rules of *folder*, together with those that come with workerdiag.

    Args:
        folder: Rules, and beside them ``incidents/<name>/``, ``quiet.txt`` and ``quiet/<file>``.
        incidents: More folders of incidents.

    Raises:
        RuleFileError: The rules or an incident cannot be read; it lists all problems.
    """
    book = read_folder(folder)
    together = load_rulebook(folder, packs=False)
    matcher = Matcher(together)
    known = [each for place in (folder / INCIDENTS, *incidents) if place.is_dir() for each in _checked(place)]
    quiet = _quiet_logs(folder)
    problems = [
        *prove(book),
        *unknown_names(known, together),
        *(line for each in known for line in incident_problems(each, together, matcher)),
        *(line for name, logs in quiet for line in quiet_problems(name, logs, together, matcher)),
        *_loud_lines(folder, together, matcher),
    ]
    return Trial(
        book=book,
        problems=tuple(problems),
        unproven=(*unproven(book), *_without_incident(book, known)),
        incident_count=len(known),
        quiet_count=len(quiet),
    )


def incident_problems(incident: KnownIncident, book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """
    What *book* says of *incident* and should not, or does not say and should.
    """
    findings = explained(incident.logs, book, matcher)
    if incident.quiet:
        for cause in _alarms(findings):
            if cause.id not in incident.expected:
                yield _alarm(f"quiet incident {incident.name}", cause)
    elif answer(findings) not in incident.expected:
        wanted = " or ".join(incident.expected)
        yield f"incident {incident.name}: expected {wanted}; said {_said(findings, incident.expected)}"


def quiet_problems(name: str, logs: Sequence[Path], book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """
    The causes that *book* sees in the *logs* of a healthy cluster, other than requests to stop.
    """
    for cause in _alarms(explained(logs, book, matcher)):
        if not _is_stop(cause, book):
            yield _alarm(f"quiet log {name}", cause)


def _checked(place: Path) -> list[KnownIncident]:
    found = read_incidents(place)
    if not found:
        raise RuleFileError(str(place), ("holds no incident: one folder each, with its texts and meta.toml",))
    return found


def _quiet_logs(folder: Path) -> list[tuple[str, list[Path]]]:
    """
    The quiet logs of *folder*, and those that come with workerdiag, each by itself.
    """
    places = {each.resolve(): each for each in (folder / QUIET, shipped_folder() / QUIET) if each.is_dir()}
    return [(f"{QUIET}/{path.name}", [path]) for place in places.values() for path in texts_in(place)]


def _loud_lines(folder: Path, book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """
    Lines of ``quiet.txt``, ours and the folder's, in which a cause is seen.
    """
    path = folder / QUIET_LINES
    own = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in dict.fromkeys((*(line for line in own if line and not line.startswith("#")), *quiet_lines())):
        found = diagnose([LogChunk(origin=QUIET_LINES, data=line.encode())], book, matcher=matcher)
        for cause in _alarms(found):
            if not _is_stop(cause, book):
                yield _alarm(f"quiet line {line!r}", cause)


def _alarms(findings: Findings) -> list[RankedCause]:
    return [cause for cause in findings.causes if cause.probability >= ALARM]


def _is_stop(cause: RankedCause, book: Rulebook) -> bool:
    rule = book.cause(cause.id)
    return rule is not None and rule.ends == "stopped"


def _alarm(where: str, cause: RankedCause) -> str:
    seen = cause.evidence[0]
    return (
        f"{where}: {cause.id} gets {cause.probability:.2f}, and nothing there may get {ALARM:.2f}"
        f" (sign {seen.sign}: {seen.text[:100]!r})"
    )


def _said(findings: Findings, expected: Sequence[str]) -> str:
    """
    The answer, the likeliest causes, and where the expected ones came.
    """
    head = "" if findings.outcome == "explained" else f"{findings.outcome}; likeliest "
    causes = [each for index, each in enumerate(findings.causes) if index < _NAMED or each.id in expected]
    told = ", ".join(f"{each.id} {each.probability:.2f}" for each in causes)
    return f"{head}{told}" if told else findings.outcome


def _without_incident(book: Rulebook, known: Sequence[KnownIncident]) -> Iterator[str]:
    shown = {each for incident in known for each in incident.expected}
    for cause in book.causes:
        only_live = all(isinstance(sign, EventSign) for sign in cause.signs)
        if cause.status != "deprecated" and cause.id not in shown and not only_live:
            yield f"{cause.id}: no whole incident shows it"
