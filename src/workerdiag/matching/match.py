"""From evidence to matches: log text goes through the scan, other evidence is compared sign by sign."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from workerdiag.deadline import NO_DEADLINE, Deadline, GraceDeadline
from workerdiag.matching.log_lines import guesses, infer_years, without_other_programs
from workerdiag.matching.messages import MatchObserver
from workerdiag.matching.other_lines import LastLine, Recognition
from workerdiag.matching.patterns import END_REPORTS_PER_END, SignTables
from workerdiag.matching.prefilter import available
from workerdiag.matching.regex import BadPatternError, SearchWork, pattern, uses_re2
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, Gap, LogChunk
from workerdiag.model.incident import END_ROLES, ClippedReports
from workerdiag.model.rules import EXPECTED_REMOVALS, ErrorRule, EventSign, ExceptionSign, Rulebook
from workerdiag.model.signals import reported_exit
from workerdiag.model.vocabulary import MatchRole
from workerdiag.values import evolve, frozen

#: The landmarks that events are (distributed: scheduler.py, worker.py, nanny.py; 2024.8.1+).
_ROLE_OF_ACTION: Mapping[str, MatchRole] = {
    "remove-worker": "removal",
    "worker-restart-memory": "trouble",
    "worker-ttl-timed-out": "trouble",
    "worker-fail-hard": "self-closed",
    "closing-worker": "closing",
    "retired": "stop-request",
    "asked-to-stop": "stop-request",  # the flight recorder's: somebody told the nanny
    "add-worker": "start",
    "cluster-setup": "deployment",
}


@frozen
class SearchResult:
    """The matches in the evidence, the parts that were not searched, and the rules that could not be used."""

    matches: list[Match]
    gaps: list[Gap]
    left_out: tuple[str, ...]
    #: Minimum number of reports of ends, for logs with so many that only the first and last are kept.
    clipped_reports: tuple[ClippedReports, ...]


def search(
    evidence: Iterable[Evidence],
    book: Rulebook,
    matcher: Matcher | None = None,
    observer: MatchObserver | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> SearchResult:
    """Return every landmark and sign in the evidence, in its order. Chunks of one log must be consecutive.

    *matcher* has the compiled patterns of *book*. *observer* is called with the place of each match in log text.
    After *deadline*, evidence is only counted.
    """
    matcher = matcher or Matcher(book)
    found = find_matches(evidence, matcher, observer, deadline)
    return evolve(found, matches=derive_matches(found.matches, matcher.signs))


def find_matches(
    evidence: Iterable[Evidence],
    matcher: Matcher,
    observer: MatchObserver | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> SearchResult:
    """Return the matches in each piece of evidence: `search` without the signs that `derive_matches` adds."""
    clock = GraceDeadline(deadline, grace=20)  # the first messages are always searched
    signs = matcher.signs
    left_out = dict.fromkeys((*matcher.left_out, *signs.left_out))
    found: list[Match] = []
    gaps: list[Gap] = []
    clipped: list[ClippedReports] = []
    other_matches = SearchWork(clock)  # for evidence that is not text
    for origin, pieces in groupby(
        evidence, key=lambda piece: piece.origin if isinstance(piece, LogChunk) else None
    ):
        if origin is not None:
            work = SearchWork(clock, is_late=clock.is_over())
            chunks = (piece for piece in pieces if isinstance(piece, LogChunk))
            known, end = Recognition(), LastLine()
            in_text = list(matcher.matches(end.tee(known.tee(chunks)), observer, work))
            found += in_text
            clipped += _clipped_reports(in_text, work)
            found += known.matches(observer)
            found += end.matches()
            gaps += work.gaps(origin, "log", "bytes of its text")
            left_out |= work.left_out
            continue
        for piece in pieces:
            if isinstance(piece, Event | ExceptionFacts) and not other_matches.has_time():
                other_matches.late_bytes += 1
            elif isinstance(piece, Event):
                found += _event_matches(piece, signs)
            elif isinstance(piece, ExceptionFacts):
                found += _exception_matches(piece, signs)
    gaps += other_matches.gaps("scheduler events", "scheduler events", "events")
    return SearchResult(found, gaps, tuple(left_out), tuple(clipped))


def _clipped_reports(found: Iterable[Match], work: SearchWork) -> Iterator[ClippedReports]:
    """Yield the number of reports of ends in one log, if it may have more than are kept."""
    ends = (each for each in found if each.role in END_ROLES and not each.sign)
    kept = Counter((each.owner, "follows" in each.captures) for each in ends)
    for (landmark, follows), count in kept.items():
        following = work.following[landmark]
        told = following if follows else work.reports[landmark] - following
        is_exact = landmark not in work.unsure_reports
        if count >= 2 * END_REPORTS_PER_END and not (is_exact and told == count):
            yield ClippedReports(
                landmark=landmark,
                kept=count,
                count=max(count, told),
                is_exact=is_exact,
                of_losses=not follows and landmark not in EXPECTED_REMOVALS,
            )


def derive_matches(found: Sequence[Match], signs: SignTables) -> list[Match]:
    """Return the matches of an incident, without other programs and with years, and the derived signs."""
    found = infer_years(without_other_programs(found))
    return [*found, *_landmark_sign_matches(found, signs), *_exit_sign_matches(found, signs)]


def engine_notes() -> tuple[str, ...]:
    """Return notes about missing engines, and what they cost."""
    engines = (("google-re2", uses_re2()), ("hyperscan", available()))
    missing = " and ".join(name for name, is_there in engines if not is_there)
    return (
        (f"without {missing} text is searched more slowly: pip install {missing.replace(' and', '')}",)
        if missing
        else ()
    )


def _event_matches(event: Event, signs: SignTables) -> Iterator[Match]:
    values = {key: str(value) for key, value in event.fields.items() if value is not None}
    action = values.get("action") or event.topic

    def make_match(owner: str, sign: str, role: MatchRole) -> Match:
        return Match(
            owner=owner,
            sign=sign,
            role=role,
            text=event.describe()[:600],
            captures=values,
            origin=f"event {event.topic}",
            when=event.when,
            identity=event.identity,
        )

    yield make_match(f"event.{action}", "", _ROLE_OF_ACTION.get(action, "event"))
    for cause, sign in signs.for_events_of(event.topic):
        if _event_fits(sign, event, values):
            yield make_match(cause.id, sign.name, "sign")


@lru_cache(maxsize=2000)  # thousands of events have few values
def _matches_whole(wanted: str, value: str) -> bool:
    return pattern(wanted).matches_whole(value)


def _event_fits(sign: EventSign, event: Event, values: Mapping[str, str]) -> bool:
    for key, wanted in sign.where.items():
        if isinstance(wanted, bool):
            if event.fields.get(key) is not wanted:
                return False
        elif key not in values or not _matches_whole(wanted, values[key]):
            return False
    numbers = ((event.fields.get(key), least) for key, least in sign.at_least.items())
    return all(isinstance(value, int | float) and value >= least for value, least in numbers)


def _exception_matches(facts: ExceptionFacts, signs: SignTables) -> Iterator[Match]:
    for cause, sign in signs.exceptions:
        if _is_for(sign, facts):
            first = facts.text.strip().splitlines()[0] if facts.text.strip() else ""
            found = pattern(sign.pattern).search(facts.text) if sign.pattern else None
            yield Match(
                owner=cause.id,
                sign=sign.name,
                role="sign",
                text=f"{facts.type.rpartition('.')[2]}: {first}"[:600],
                captures={key: value for key, value in found.groupdict().items() if value} if found else {},
                origin="exception",
                when=facts.when,
                identity=facts.identity,
            )


def error_rule(evidence: Iterable[Evidence], book: Rulebook) -> ErrorRule | None:
    """What the caught exception can come of: the rule for it, else for a linked one; a bad pattern fits nothing."""
    caught = [each for each in evidence if isinstance(each, ExceptionFacts)]
    return next((rule for facts in caught for rule in book.errors if _is_for(rule, facts)), None)


def _is_for(rule: ErrorRule | ExceptionSign, facts: ExceptionFacts) -> bool:
    is_type = not rule.types or not {facts.type, facts.type.rpartition(".")[2]}.isdisjoint(rule.types)
    if not is_type or rule.from_task not in (None, facts.from_task):
        return False
    return rule.pattern is None or _is_said(rule.pattern, facts.text)


def _is_said(wanted: str, text: str) -> bool:
    guessed = tuple(guesses(text))
    with contextlib.suppress(BadPatternError):
        starts = (found.span()[0] for found in pattern(wanted).finditer(text))
        return any(not any(low <= start < high for low, high in guessed) for start in starts)
    return False


def _landmark_sign_matches(found: Iterable[Match], signs: SignTables) -> Iterator[Match]:
    for mark in found:
        for cause, sign in signs.by_landmark.get(mark.owner, ()) if not mark.sign else ():
            if all(pattern(text).matches_whole(mark.captures.get(key, "")) for key, text in sign.where.items()):
                yield evolve(mark, owner=cause.id, sign=sign.name, role="sign")


def _exit_sign_matches(found: Iterable[Match], signs: SignTables) -> Iterator[Match]:
    for mark in found:
        if mark.role != "exit-report":
            continue
        signal, status = reported_exit(mark.captures)
        for cause, sign in signs.reported_exits:
            if sign.is_for(signal, status) and mark.owner not in sign.except_reports:
                yield evolve(mark, owner=cause.id, sign=sign.name, role="sign")
