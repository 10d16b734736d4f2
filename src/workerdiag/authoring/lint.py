"""Whether a rulebook keeps what it promises: its patterns, its own examples, its references."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter

from workerdiag.matching.literals import NoLiteralError, is_common_in_healthy_logs, literals
from workerdiag.matching.log_lines import parse_line
from workerdiag.matching.match import search
from workerdiag.matching.patterns import pattern_texts
from workerdiag.matching.regex import BadPatternError, pattern
from workerdiag.matching.scan import Matcher
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import (
    CAPTURE_PLACEHOLDERS,
    CLUSTER_PLACEHOLDERS,
    CRASH_PLACEHOLDERS,
    MEMORY_PLACEHOLDERS,
    MEMORY_REASON,
    STACK_CAPTURE,
    AbsentSign,
    Cause,
    EventSign,
    ExitSign,
    Landmark,
    LandmarkSign,
    LogSign,
    Rulebook,
    Sign,
    TogetherSign,
)

#: What is seen where workers never start: the consequence of every cause that keeps them from it.
NO_WORKERS_CAUSE = "standstill.no-workers"

#: What the project asks of its own causes, as rule files have it.
_WANTED = {name: name for name in ("author", "added", "origin", "references")}
_WANTED |= {"signs": "[[sign]]", "mitigations": "[[mitigation]]", "next_steps": "[[next_step]]"}


def lint(book: Rulebook) -> list[str]:
    """Problems of patterns and references, all of them, each with id and sign."""
    return [*_pattern_problems(book)] or [*_reference_problems(book)]


def check_examples(book: Rulebook) -> list[str]:
    """Signs that miss a line they are for, or match one they are not."""
    matcher = Matcher(book)
    problems = []
    for owner, name, rule in book.log_rules():
        label = f"{owner} {name}".strip()
        for is_for, line in (*((True, each) for each in rule.seen), *((False, each) for each in rule.lookalikes)):
            found = search([LogChunk(origin="example", data=line.encode())], book, matcher).matches
            if is_for != any(each.owner == owner and each.sign == name for each in found):
                what = "does not match a line it is for" if is_for else "matches a line it is not for"
                problems.append(f"{label}: {what}: {line!r}")
        if not rule.seen:
            problems.append(f"{label}: has no `seen` line")
        messages = [
            "\n".join(parse_line(each.encode()).message for each in text.splitlines()) for text in rule.seen
        ]
        problems += [
            f"{label}: no `seen` line shows the pattern {text!r}"
            for text in rule.patterns
            if not any(map(pattern(text).search, messages))
        ]
    return problems


def incomplete_rules(book: Rulebook) -> list[str]:
    """Return what the project asks of its own rules and *book* lacks: provenance, next steps, examples."""
    problems = []
    for cause in book.causes:
        lacking = [key for name, key in _WANTED.items() if not getattr(cause, name)]
        if lacking:
            problems.append(f"{cause.id}: has no {', '.join(lacking)}")
    problems += [
        f"{landmark.id}: has no [[landmark.next_step]], so nobody is told where to look"
        for landmark in book.landmarks
        if landmark.id.startswith("untold.") and not landmark.next_steps
    ]
    problems += [f"reason {each.id}: has no [[reason.example]]" for each in book.reasons if not each.examples]
    return problems + signs_without_lookalikes(book)


def signs_without_lookalikes(book: Rulebook) -> list[str]:
    """Log signs without lookalikes: nobody has said what they might be taken for."""
    return [
        f"{owner} {name}: has no `lookalikes` line"
        for owner, name, rule in book.log_rules()
        if isinstance(rule, LogSign) and not rule.lookalikes
    ]


def _pattern_problems(book: Rulebook) -> Iterator[str]:
    for owner, name, rule in book.log_rules():
        label = f"{owner} {name}".strip()
        in_line = rule.unless_in_line if isinstance(rule, Landmark) else None
        for text in (rule.unless, in_line, *rule.wordings):
            yield from _syntax_problems(label, text)
        for text in rule.wordings:
            yield from _literal_problems(label, text, may_be_common=not isinstance(rule, LogSign))
    for cause in book.causes:
        for sign in (*cause.signs, *cause.against):
            for text in pattern_texts(sign):
                yield from _syntax_problems(f"{cause.id} {sign.name}", text)


def _literal_problems(label: str, text: str, *, may_be_common: bool) -> Iterator[str]:
    try:
        found = literals(text)
        if not may_be_common and is_common_in_healthy_logs(text):
            yield f"{label}: its fixed text is common in healthy logs: {found}"
    except NoLiteralError as problem:
        yield f"{label}: {problem}"


def _syntax_problems(label: str, text: str | None) -> Iterator[str]:
    if text is None:
        return
    try:
        pattern(text)
    except BadPatternError as problem:
        yield f"{label}: not in RE2's language: {problem}: {text!r}"


def _reference_problems(book: Rulebook) -> Iterator[str]:
    causes = {each.id for each in book.causes}
    landmarks = {each.id for each in book.landmarks}
    for cause in book.causes:
        yield from _lifecycle_problems(cause, causes)
        for named in (*cause.explains, *(each.cause for each in cause.rivals)):
            if named not in causes:
                yield f"{cause.id}: names an unknown cause: {named}"
        for sign in (*cause.signs, *cause.against):
            for mark in _landmark_ids(cause, sign):
                if mark not in landmarks:
                    yield f"{cause.id} {sign.name}: names an unknown landmark: {mark}"
        yield from _mitigation_problems(cause, book)
    for landmark in book.landmarks:
        yield from _landmark_step_problems(landmark)
    yield from _error_problems(book)
    yield from _explanation_cycles(book)


def _error_problems(book: Rulebook) -> Iterator[str]:
    names = [each.name for each in book.errors]
    for each in book.errors:
        if names.count(each.name) > 1:
            yield f"error {each.name}: defined twice"
        if not (each.types or each.pattern):
            yield f"error {each.name}: fits every exception (expected types or pattern)"
        yield from _syntax_problems(f"error {each.name}", each.pattern)
        if each.landmark is not None and each.landmark not in book.landmarks_by_id:
            yield f"error {each.name}: no landmark {each.landmark}"


def _landmark_step_problems(landmark: Landmark) -> Iterator[str]:
    captured = [set(re.findall(r"\(\?P<(\w+)>", text)) for text in landmark.wordings]
    quoted = {name for each in landmark.next_steps for name in _placeholders(each.inspect, each.command)}
    for name in sorted(quoted - set.intersection(*captured)):
        yield f"{landmark.id}: a next step quotes what not every pattern captures: {{{name}}}"


def _placeholders(*texts: str) -> set[str]:
    return set(re.findall(r"\{([a-z_]+)\}", " ".join(texts)))


def _mitigation_problems(cause: Cause, book: Rulebook) -> Iterator[str]:
    known = _known_placeholders(cause, book)
    for number, mitigation in enumerate(cause.mitigations, 1):
        where = f"{cause.id} mitigation {number}"
        typed = "\n".join((mitigation.example, *mitigation.examples.values()))
        quoted = _placeholders(mitigation.do, mitigation.inspect, mitigation.when, mitigation.cost, typed)
        # of these it depends whether it is worded at all
        quoted.update(mitigation.uses, mitigation.superseded_by, mitigation.requires)
        for word in sorted(quoted - known):
            yield f"{where}: quotes what no death has: {{{word}}}"
        size = re.search(r"\b\d+(?:\.\d+)? ?[GM](?:iB?|B)\b", typed)
        if "{needs_memory}" in mitigation.do and size:
            yield f"{where}: its example has a fixed size beside {{needs_memory}}: {size[0]}"
        for name in sorted({*mitigation.signs} - {each.name for each in cause.signs}):
            yield f"{where}: is for a sign that the cause does not have: {name}"


def _lifecycle_problems(cause: Cause, causes: Collection[str]) -> Iterator[str]:
    if cause.status == "deprecated" and not cause.deprecated_because:
        yield f"{cause.id}: is deprecated and does not say why (deprecated_because)"
    if cause.successor and cause.successor not in causes:
        yield f"{cause.id}: names an unknown successor: {cause.successor}"
    if cause.ends == "never-started" and NO_WORKERS_CAUSE in causes and NO_WORKERS_CAUSE not in cause.explains:
        yield f"{cause.id}: keeps workers from starting and does not explain {NO_WORKERS_CAUSE}"


def _landmark_ids(cause: Cause, sign: Sign) -> tuple[str, ...]:
    if isinstance(sign, LandmarkSign):
        return (sign.landmark,)
    if isinstance(sign, AbsentSign):
        return sign.landmarks
    if isinstance(sign, TogetherSign):
        own = {each.name for each in cause.signs}
        return tuple(each for each in (*sign.signs, *sign.any_of) if each not in own)
    if isinstance(sign, ExitSign):
        return sign.except_reports
    return ()


#: Fields that advice may quote of events that sources create.
_FIELDS_OF_TOPIC = {
    "module": ("module", "path"),
    "scheduler-state": ("workers_awaited",),
    "undelivered-error": ("error",),
    "unread-task": ("module", "path"),
    "worker-state": ("pid", "address"),
}


def _known_placeholders(cause: Cause, book: Rulebook) -> set[str]:
    captured = _capture_names(cause, book)
    of_crashes = CRASH_PLACEHOLDERS if STACK_CAPTURE in captured else ()
    always = {*MEMORY_PLACEHOLDERS, MEMORY_REASON, *CLUSTER_PLACEHOLDERS}
    return always | {*of_crashes} | captured.intersection(CAPTURE_PLACEHOLDERS)


def _capture_names(cause: Cause, book: Rulebook) -> set[str]:
    marks = {each for sign in cause.signs for each in _landmark_ids(cause, sign)}
    texts = [text for each in book.landmarks if each.id in marks for text in each.wordings]
    fields: set[str] = set()
    for sign in cause.signs:
        texts += sign.wordings if isinstance(sign, LogSign) else pattern_texts(sign)
        if isinstance(sign, EventSign):
            fields |= {*sign.where, *sign.at_least, *_FIELDS_OF_TOPIC.get(sign.topic, ())}
    return fields | {name for text in texts for name in re.findall(r"\(\?P<(\w+)>", text)}


def _explanation_cycles(book: Rulebook) -> Iterator[str]:
    try:
        TopologicalSorter({each.id: each.explains for each in book.causes}).prepare()
    except CycleError as problem:
        circle = problem.args[1][::-1]  # graphlib begins with the end of the chain
        yield f"{circle[0]}: explains itself in a circle: {' explains '.join(circle)}"
