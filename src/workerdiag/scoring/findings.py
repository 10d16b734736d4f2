"""
Evidence and deaths as findings show them.
"""

from __future__ import annotations

from collections.abc import Sequence

from workerdiag.model.diagnosis import Clue, Death, Match
from workerdiag.model.evidence import ExceptionFacts, TasksAtLoss
from workerdiag.model.incident import Incident
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Cause
from workerdiag.model.signs import AbsentSign
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.crash_site import frame_texts, frames_of
from workerdiag.scoring.distribution import SignEvidence
from workerdiag.scoring.memory_numbers import reading_of

#: Clues that findings carry for one cause, at most.
MAX_CLUES = 12


def clues(seen: Sequence[SignEvidence]) -> tuple[Clue, ...]:
    """
    One clue for each sign, the first place it was seen in, and how often.
    """
    clues: dict[str, tuple[SignEvidence, dict[tuple[str, int, str], Match]]] = {}
    for each in seen:
        _, places = clues.setdefault(each.sign.name, (each, {}))
        places.update(((match.origin, match.line, match.text), match) for match in each.matches)
    return tuple(_sign_clue(one, list(places.values())) for one, places in list(clues.values())[:MAX_CLUES])


def _sign_clue(seen: SignEvidence, matches: Sequence[Match]) -> Clue:
    if not matches:
        return Clue(sign=seen.sign.name, text=_placeless_text(seen), where="", grade=seen.sign.grade)
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
    """
    The words of a match. An event's secrets are hidden by field: as one text, blanks would end them.
    """
    known = redact_object(match.captures)
    if known is match.captures or not match.origin.startswith("event "):
        return match.text
    return f"{match.origin}: {', '.join(f'{name}={value}' for name, value in known.items())}"[:600]


def _placeless_text(seen: SignEvidence) -> str:
    """
    What a sign rests on that no message shows: an absence, or the exit status alone.
    """
    if isinstance(seen.sign, AbsentSign):
        names = (each.rpartition(".")[2].replace("-", " ") for each in seen.sign.landmarks)
        return f"the {seen.sign.inspected} says nothing of: {', '.join(names)}"
    return "the exit of the process"


def unchecked_absences(cause: Cause, incident: Incident) -> tuple[str, ...]:
    """
    Absences that could not be established because the place was not looked at.
    """
    return tuple(
        f'"{sign.name.replace("-", " ")}" could not be checked: the {sign.inspected} was not read'
        for sign in (*cause.signs, *cause.against)
        if isinstance(sign, AbsentSign) and sign.inspected not in incident.inspected
    )


def death_of_end(
    end: ProcessEnd, best: tuple[str, float] | None, incident: Incident, matches: Sequence[Match] = ()
) -> Death:
    """
    One end as findings list it, with the likeliest cause of it alone, and what *matches* tell of it.
    """
    rss_bytes, limit_bytes = reading_of(end, incident)
    return Death(
        identity=end.identity,
        when=end.when,
        signal=end.signal,
        status=end.status,
        stop_requested=end.stop_requested,
        reporters=end.reporters,
        reason=end.reason,
        assigned=assigned_tasks(end.marks) or _assigned_at_loss(end, incident),
        executing=_executing_tasks(end, incident),
        crashed_in=frame_texts(frames_of(matches)),
        rss_bytes=rss_bytes,
        limit_bytes=limit_bytes,
        cause=best[0] if best else None,
        probability=best[1] if best else 0.0,
    )


def assigned_tasks(marks: Sequence[Match]) -> tuple[str, ...]:
    """
    Tasks that were assigned to a worker when the scheduler let go of it, at most 20.
    """
    for mark in marks:
        if listed := mark.captures.get("processing"):
            return _split_keys(listed)[:20]
    return ()


def _split_keys(listed: str) -> tuple[str, ...]:
    """
    Task keys joined by commas; a key may itself be a tuple: ``('x', 0), y``.
    """
    keys, depth, key = [], 0, ""
    for char in listed:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth <= 0:
            keys.append(key.strip())
            key = ""
        else:
            key += char
    return tuple(each for each in (*keys, key.strip()) if each)


def _executing_tasks(end: ProcessEnd, incident: Incident) -> tuple[str, ...] | None:
    """
    Tasks that ran on a worker when it was lost: by its own notes, else by its last heartbeat.
    """
    known = [each for each in _tasks_at_loss(end, incident) if each.tasks or not each.maybe_more]
    if known:
        return min(known, key=lambda each: not each.exact).tasks
    worker = end.identity.worker
    if worker is None:
        return None
    raised = incident.exceptions_by_name.find(*end.identities)
    killed = next((each for each in raised if each.identity.worker == worker), None)
    if killed is None or killed.executing is None:
        return None
    return unfinished_tasks(killed, incident) or None


def unfinished_tasks(killed: ExceptionFacts, incident: Incident) -> tuple[str, ...]:
    """
    The tasks executing at the last heartbeat that were not finished when the scheduler lost the worker.

    What the heartbeat names may have ended long before the worker: the scheduler's own list decides, as far
    as it is known.
    """
    ends = [
        each.end for each in incident.cases if each.end is not None and each.end.same_process(killed.identity)
    ]
    known = {key for end in ends for key in assigned_tasks(end.marks)}
    return tuple(key for key in killed.executing or () if key in known)


def finished_kinds(incident: Incident) -> frozenset[str]:
    """
    Those tasks that ran at the last heartbeat and of whose kind others have finished.
    """
    return frozenset(
        mark.captures["key"]
        for mark in incident.marks
        if mark.owner == "event.finished-kind" and not mark.sign
    )


def _assigned_at_loss(end: ProcessEnd, incident: Incident) -> tuple[str, ...]:
    return next((each.assigned[:20] for each in _tasks_at_loss(end, incident)), ())


def _tasks_at_loss(end: ProcessEnd, incident: Incident) -> list[TasksAtLoss]:
    losses = incident.tasks_at_loss_by_name.find(*end.identities)
    return [each for each in losses if not end.conflicts_with(each.identity)]
