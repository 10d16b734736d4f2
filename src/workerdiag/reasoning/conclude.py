"""
From one incident to findings: ranks the causes, decides the outcome, gathers the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from workerdiag.model.diagnosis import Clue, Death, Findings, Match, RankedCause
from workerdiag.model.evidence import Gap
from workerdiag.model.rules import AbsentSign, Cause, Rulebook
from workerdiag.reasoning.advice import mitigations
from workerdiag.reasoning.blame import blame, decision
from workerdiag.reasoning.incident import Case, Incident
from workerdiag.reasoning.limits import Numbers, numbers_of, reading_of
from workerdiag.reasoning.next_steps import next_steps
from workerdiag.reasoning.scoring import Distribution, Seen, Support, distribution, mixed, supports
from workerdiag.reasoning.summary import fingerprint, summary

#: The first death counts double: what follows may be its consequence.
FIRST_WEIGHT = 2.0
#: Clues and deaths that findings carry, at most.
MOST_CLUES = 12
MOST_DEATHS = 1000
_MARKS_OF_AN_END = ("death", "ended", "removal", "restart", "blame", "trouble")
#: What asks a process to stop comes before its end; clocks and log buffers allow for this much.
ORDER_SLACK_S = 2.0


@frozen(kw_only=True)
class Judged:
    """
    One case with what speaks for each cause in it.
    """

    case: Case
    supports: tuple[Support, ...]
    chances: Distribution


def conclude(incident: Incident, book: Rulebook, *, gaps: Sequence[Gap], version: str) -> Findings:
    """
    Everything that can be said about *incident* by what *book* knows.
    """
    judged = [_judge(case, incident, book) for case in incident.cases]
    deciding = _deciding(judged) or [_judge(Case(end=None), incident, book)]
    chances = mixed(
        [(FIRST_WEIGHT if index == 0 else 1.0, each.chances) for index, each in enumerate(deciding)]
    )
    outcome = _outcome(chances, incident, deciding)
    if outcome == "no-death":
        chances = Distribution()
    numbers = numbers_of(incident, [match for each in deciding for match in _matches(each)])
    ranked = _ranked(chances, deciding, book, incident, numbers) if outcome != "no-death" else ()
    deaths = tuple(_death(each, incident) for each in judged[:MOST_DEATHS])
    verdict = blame(ranked, book, incident)
    return Findings(
        outcome=outcome,
        summary=summary(outcome, ranked, deaths, incident),
        causes=ranked,
        unknown_probability=_rest(ranked),
        deaths=deaths,
        blame=verdict,
        next_steps=next_steps(outcome, ranked, book, incident),
        gaps=tuple(gaps),
        decision=decision(outcome, ranked, book, verdict, numbers),
        fingerprint=fingerprint(outcome, ranked, deaths, verdict),
        knowledge=book.release,
        version=version,
        notes=book.notes,
    )


def _judge(case: Case, incident: Incident, book: Rulebook) -> Judged:
    signs = [each for each in (*case.signs, *incident.loose) if _counts(each, case, book)]
    found = tuple(
        each
        for each in supports(book, signs, incident.marks, case.end, incident.looked)
        if case.end is not None or not _only_foreboding(each, incident)
    )
    return Judged(case=case, supports=found, chances=distribution(found))


def _counts(match: Match, case: Case, book: Rulebook) -> bool:
    """
    Whether a sign speaks for its cause in this case.

    A failed task kills nobody, and an order to stop that came after the death did not cause it.
    """
    cause = book.cause(match.owner)
    if cause is None or (match.in_task and not cause.in_tasks):
        return False
    if cause.ends != "stopped" or case.end is None or not case.end.lost:
        return True
    known = case.end.when is not None and match.when is not None
    return not known or (match.when or 0.0) <= (case.end.when or 0.0) + ORDER_SLACK_S


def _only_foreboding(support: Support, incident: Incident) -> bool:
    """
    Whether a cause that kills is only hinted at while nothing at all has died.
    """
    return (
        support.cause.ends in ("killed", "crashed")
        and all(seen.sign.grade in ("weak", "hint") for seen in support.shown)
        and not any(mark.role in _MARKS_OF_AN_END for mark in incident.marks)
    )


def _deciding(judged: Sequence[Judged]) -> list[Judged]:
    """
    The deaths that the ranking rests on: those nobody asked for, else all.
    """
    unasked = [each for each in judged if _unasked(each)]
    explained = [each for each in unasked if _explained(each.chances)]
    return explained or unasked or [each for each in judged if _explained(each.chances)] or list(judged)


def _unasked(judged: Judged) -> bool:
    end = judged.case.end
    return end is not None and end.lost and not end.asked


def _explained(chances: Distribution) -> bool:
    best = chances.best
    return best is not None and best[1] > chances.unknown


def _outcome(chances: Distribution, incident: Incident, deciding: Sequence[Judged]) -> str:
    if _explained(chances):
        return "explained"
    if any(_unasked(each) for each in deciding) or any(
        mark.role in ("death", "blame") for mark in incident.marks
    ):
        return "unknown"
    if not incident.cases and any(mark.role in ("trouble", "ended") for mark in incident.marks):
        return "unknown"
    if any(facts.relation == "raised" and not facts.from_task for facts in incident.exceptions):
        return "unknown"
    return "no-death"


def _ranked(
    chances: Distribution, deciding: Sequence[Judged], book: Rulebook, incident: Incident, numbers: Numbers
) -> tuple[RankedCause, ...]:
    ranked = []
    for cause_id, chance in sorted(chances.chances.items(), key=lambda item: (-item[1], item[0])):
        cause = book.cause(cause_id)
        if cause is None:
            continue
        own = [each for judged in deciding for each in judged.supports if each.cause.id == cause_id]
        ranked.append(
            RankedCause(
                id=cause.id,
                revision=cause.revision,
                title=cause.title,
                family=cause.family,
                why=cause.why,
                probability=chance,
                evidence=_clues([seen for each in own for seen in each.shown]),
                against=_clues([seen for each in own for seen in each.against]),
                unchecked=_unchecked(cause, incident),
                mitigations=mitigations(cause, numbers, [m for e in own for s in e.shown for m in s.matches]),
                references=cause.references,
            )
        )
    return tuple(ranked)


def _rest(ranked: Sequence[RankedCause]) -> float:
    return min(1.0, max(0.0, 1.0 - sum(each.probability for each in ranked)))


def _clues(seen: Sequence[Seen]) -> tuple[Clue, ...]:
    """
    One clue for each sign, the first place it was seen in, and how often.
    """
    clues: dict[str, tuple[Seen, dict[tuple[str, int, str], Match]]] = {}
    for each in seen:
        _, places = clues.setdefault(each.sign.name, (each, {}))
        places.update(((match.origin, match.line, match.text), match) for match in each.matches)
    return tuple(_clue(one, list(places.values())) for one, places in list(clues.values())[:MOST_CLUES])


def _clue(seen: Seen, matches: Sequence[Match]) -> Clue:
    if not matches:
        text = "looked for and not there" if isinstance(seen.sign, AbsentSign) else "the exit of the process"
        return Clue(sign=seen.sign.name, text=text, where="", grade=seen.sign.grade)
    first = matches[0]
    return Clue(
        sign=seen.sign.name,
        text=first.text,
        where=f"{first.origin}:{first.line}" if first.line else first.origin,
        grade=seen.sign.grade,
        when=first.when,
        times=len(matches),
    )


def _unchecked(cause: Cause, incident: Incident) -> tuple[str, ...]:
    """
    Absences that could not be established because the place was not looked at.
    """
    return tuple(
        f"{sign.name} ({sign.looked} not looked at)"
        for sign in (*cause.signs, *cause.against)
        if isinstance(sign, AbsentSign) and sign.looked not in incident.looked
    )


def _matches(judged: Judged) -> list[Match]:
    return [match for each in judged.supports for seen in each.shown for match in seen.matches]


def _death(judged: Judged, incident: Incident) -> Death:
    end = judged.case.end
    assert end is not None  # only cases made of ends are listed as deaths
    best = judged.chances.best if _explained(judged.chances) else None
    rss_bytes, limit_bytes = reading_of(end, incident)
    return Death(
        whose=end.whose,
        when=end.when,
        signal=end.signal,
        status=end.status,
        asked=end.asked,
        noticed=tuple(end.noticed),
        reason=end.reason,
        assigned=_assigned(end.marks),
        executing=_executing(end.whose.worker, incident),
        rss_bytes=rss_bytes,
        limit_bytes=limit_bytes,
        cause=best[0] if best else None,
        probability=best[1] if best else 0.0,
    )


def _assigned(marks: Sequence[Match]) -> tuple[str, ...]:
    for mark in marks:
        if listed := mark.captures.get("processing"):
            return tuple(key.strip() for key in listed.split(", ") if key.strip())[:20]
    return ()


def _executing(worker: str | None, incident: Incident) -> tuple[str, ...] | None:
    if worker is None:
        return None
    return next((facts.executing for facts in incident.exceptions if facts.whose.worker == worker), None)
