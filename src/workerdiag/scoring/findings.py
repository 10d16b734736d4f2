"""Evidence and deaths as findings show them, and the fingerprint: equal for repeats of one trouble."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from math import exp

from workerdiag.model.diagnosis import SURE_ENOUGH, Clue, Death, Factor, Match, RankedCause
from workerdiag.model.evidence import ExceptionFacts, TasksAtLoss
from workerdiag.model.incident import Incident
from workerdiag.model.odds import FREQUENCIES, GRADES
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import AbsentSign, Cause, Sign
from workerdiag.model.signals import signal_of_status
from workerdiag.model.vocabulary import FactorKind, Outcome
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.advice import crash_site, reading_of
from workerdiag.scoring.probabilities import CauseScore, SignEvidence, explainers, weighed_facts

MAX_CLUES = 12
_MAX_KEYS = 20


def ranked_cause(cause: Cause, chance: float, scores: Iterable[CauseScore]) -> RankedCause:
    """A cause with its probability, and what speaks for it in *scores*."""
    return RankedCause(
        id=cause.id,
        revision=cause.revision,
        title=cause.title,
        family=cause.family,
        why=cause.why,
        probability=chance,
        evidence=clues([seen for each in scores for seen in each.evidence]),
    )


def factors(score: CauseScore, scores: Sequence[CauseScore], own: float, chance: float) -> tuple[Factor, ...]:
    """The factors of a probability, *own* in the case where it is likeliest, and *chance* in the whole incident."""
    explaining = explainers(scores)[score.cause.id]
    plain, odds = score.odds(), score.odds(explaining.values())

    def ratio(part: float, whole: float) -> float:
        return part / whole if whole else 0.0  # many signs against it leave no odds at all

    rivals = ", ".join(sorted(each.cause.id for each in scores if each is not score))
    found = [
        Factor(kind="frequency", times=FREQUENCIES[score.cause.frequency], name=score.cause.frequency),
        *_fact_factors(weighed_facts(score.evidence, is_everyday=score.is_everyday)),
        Factor(kind="explained", times=ratio(odds, plain), name=", ".join(sorted(explaining))),
        *_fact_factors(weighed_facts(score.against), is_against=True),
        Factor(kind="rivals", times=ratio(own, odds), name=rivals),
        Factor(kind="deaths", times=ratio(chance, own)),
    ]
    return tuple(each for each in found if each.times != 1.0 or each.kind not in ("explained", "deaths"))


def _fact_factors(
    facts: Iterable[tuple[float, Sequence[SignEvidence]]], *, is_against: bool = False
) -> Iterable[Factor]:
    """A factor for each sign: the strongest of a fact has its ratio, the others count no further."""
    for weight, seen in facts:
        for index, each in enumerate(sorted(seen, key=lambda one: -GRADES[one.sign.grade])):
            clue = _sign_clue(each, each.matches)
            kind: FactorKind = "absence" if isinstance(each.sign, AbsentSign) else "sign"
            yield Factor(
                kind="against" if is_against else kind,
                times=1.0 if index else exp(-weight if is_against else weight),
                name=clue.sign,
                where=clue.where,
            )


def clues(seen: Sequence[SignEvidence]) -> tuple[Clue, ...]:
    """One clue for each sign: the first place where it was seen, and how often."""
    clues: dict[str, tuple[SignEvidence, dict[tuple[str, int, str], Match]]] = {}
    for each in seen:
        _, places = clues.setdefault(each.sign.name, (each, {}))
        places.update(((match.origin, match.line, match.text), match) for match in each.matches)
    return tuple(_sign_clue(one, list(places.values())) for one, places in list(clues.values())[:MAX_CLUES])


def _sign_clue(seen: SignEvidence, matches: Sequence[Match]) -> Clue:
    if not matches:
        return Clue(sign=seen.sign.name, text=_placeless_text(seen.sign), where="", grade=seen.sign.grade)
    first = matches[0]
    return Clue(
        sign=seen.sign.name,
        text=_match_text(first),
        where=f"{first.origin}:{first.line}" if first.line else first.origin,
        grade=seen.sign.grade,
        when=first.when,
        times=len(matches),
    )


def _match_text(match: Match) -> str:
    """The text of a match. Secrets in an event are redacted field by field: in one text a blank ends them."""
    known = redact_object(match.captures)
    if known is match.captures or not match.origin.startswith("event "):
        return match.text
    return f"{match.origin}: {', '.join(f'{name}={value}' for name, value in known.items())}"[:600]


def _placeless_text(sign: Sign) -> str:
    """The basis of a sign without a message: an absence, or the exit status alone."""
    if not isinstance(sign, AbsentSign):
        return "the exit of the process"
    names = (each.rpartition(".")[2].replace("-", " ") for each in sign.landmarks)
    return f"the {sign.inspected} does not mention: {', '.join(names)}"


def unchecked_absences(cause: Cause, incident: Incident) -> tuple[str, ...]:
    """Absences that could not be established because the place was not read."""
    return tuple(
        f'"{sign.name.replace("-", " ")}" could not be checked: the {sign.inspected} was not read'
        for sign in (*cause.signs, *cause.against)
        if isinstance(sign, AbsentSign) and sign.inspected not in incident.inspected
    )


def death_of_end(
    end: ProcessEnd, best: tuple[str, float] | None, incident: Incident, matches: Sequence[Match]
) -> Death:
    """One end as a death in the findings, with its likeliest cause; *matches* may show its crash site."""
    rss_bytes, limit_bytes = reading_of(end, incident)
    losses = tasks_at_loss(end, incident)
    told = (each for each in incident.events("last-output") if end.same_process(each.identity))
    return Death(
        identity=end.identity,
        when=end.when,
        signal=end.signal,
        status=end.status,
        stop_requested=end.stop_requested,
        reporters=end.reporters,
        reason=end.reason,
        assigned=assigned_tasks(end.marks) or next((each.assigned[:_MAX_KEYS] for each in losses), ()),
        executing=_executing_tasks(end, losses, incident),
        crashed_in=crash_site(matches),
        lines=next((each.lines for each in losses if each.lines), ()),
        last_output=next((each.captures.get("line", "") for each in told), ""),
        rss_bytes=rss_bytes,
        limit_bytes=limit_bytes,
        cause=best[0] if best else None,
        probability=best[1] if best else 0.0,
    )


def assigned_tasks(marks: Sequence[Match]) -> tuple[str, ...]:
    """At most 20 tasks that were assigned to a removed worker; a key may be a tuple: ``('x', 0), y``."""
    listed = next((listed for mark in marks if (listed := mark.captures.get("processing"))), "")
    keys, depth, key = [], 0, ""
    for char in listed:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth <= 0:
            keys.append(key.strip())
            key = ""
        else:
            key += char
    return tuple(each for each in (*keys, key.strip()) if each)[:_MAX_KEYS]


def _executing_tasks(end: ProcessEnd, losses: Sequence[TasksAtLoss], incident: Incident) -> tuple[str, ...] | None:
    """Tasks that were executing on a worker when it was lost: by its black box, else by its last heartbeat."""
    known = [each for each in losses if each.tasks or not each.maybe_more]
    if known:
        return min(known, key=lambda each: not each.exact).tasks
    raised = incident.naming(end, ExceptionFacts)
    killed = next((each for each in raised if each.identity.worker == end.identity.worker), None)
    if killed is None or end.identity.worker is None or killed.executing is None:
        return None
    return unfinished_tasks(killed, incident) or None


def unfinished_tasks(killed: ExceptionFacts, incident: Incident) -> tuple[str, ...]:
    """The tasks executing at the last heartbeat that the scheduler still had assigned when it lost the worker."""
    ends = [end for end in incident.ends if end.same_process(killed.identity)]
    known = {key for end in ends for key in assigned_tasks(end.marks)}
    return tuple(key for key in killed.executing or () if key in known)


def tasks_at_loss(end: ProcessEnd, incident: Incident) -> list[TasksAtLoss]:
    """What is known about the tasks of a worker when it was lost."""
    return [each for each in incident.naming(end, TasksAtLoss) if not end.conflicts_with(each.identity)]


def fingerprint(outcome: Outcome, ranked: Sequence[RankedCause], deaths: Sequence[Death], task: str | None) -> str:
    """Twelve digits, equal for repeats of a likely cause, else of outcome, class of the exits and kind of task."""
    if ranked and ranked[0].probability >= SURE_ENOUGH:
        parts = ["cause", ranked[0].id]
    else:
        parts = ["outcome", outcome, exit_class(deaths), kind_of_task(task or "")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def exit_class(deaths: Sequence[Death]) -> str:
    """How the first unexpected death with a known exit ended (signal(7)): crashed, killed, terminated, exited."""
    for death in deaths:
        signal, status = death.signal, death.status
        if death.stop_requested or signal is status is None:
            continue
        if signal is None and status is not None:
            signal = signal_of_status(status)
        if signal is None:
            return "exited"
        if signal in (4, 5, 6, 7, 8, 11, 31):
            return "crashed"
        return "terminated" if signal in (1, 2, 3, 15) else "killed"
    return "unknown"


def kind_of_task(key: str) -> str:
    """The part of a key that names the kind of task (dask.utils.key_split, roughly)."""
    name = re.sub(r"^[(\['\"]+", "", key)
    name = re.split(r"['\",]", name)[0]
    parts = [word for word in name.split("-") if not re.fullmatch(r"[0-9a-f]{6,}|\d+", word)]
    return "-".join(parts)
