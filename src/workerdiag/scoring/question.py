"""What was asked: the error that was handed in; else what stands still now; else who died.

A death belongs to the question only if a tie in identity says so, or if nothing else can have led to it. Any other
death is a separate matter, however certain its cause is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from workerdiag.model.diagnosis import Churn, Match
from workerdiag.model.evidence import ExceptionFacts
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import ErrorRule, Rulebook
from workerdiag.scoring.evaluate import EvaluatedCase, deaths_in_question, evaluate_unclaimed, narrowed_case
from workerdiag.scoring.failures import EXCEPTION_ORIGIN, is_own_error, split_exception
from workerdiag.scoring.present import churn_of
from workerdiag.values import evolve, frozen

#: Errors of a caller that waited in vain, or no longer wants to wait.
_WAITS = ("TimeoutError", "KeyboardInterrupt")
_WAITS_FOR_WORKERS = "WorkerStartTimeoutError"
#: `Match.origin` of what a scheduler says of this moment.
_TOPICS_OF_NOW = {"awaited-task", "cluster", "disk", "scheduler-state", "task-state", "worker-state"}
_PRESENT = frozenset({EXCEPTION_ORIGIN, *(f"event {topic}" for topic in _TOPICS_OF_NOW)})


@frozen(kw_only=True)
class Question:
    """The part of an incident that the question is about."""

    #: The evidence that may answer it.
    scope: Incident
    #: The ends of workers that may answer it.
    ends: Sequence[EvaluatedCase]
    #: Whether workers died that have nothing to do with it.
    deaths_are_separate: bool = False
    #: How workers die and are replaced again and again, if that is what happens now.
    churn: Churn | None = None


def split_cases(incident: Incident) -> Incident:
    """The incident in which the deaths are evaluated: without an exception that no death is behind."""
    is_of_no_loss = incident.asked is not None and not incident.asked.ends
    return split_exception(incident)[1] if is_of_no_loss or _has_separate_error(incident) else incident


def question_of(incident: Incident, evaluated: Sequence[EvaluatedCase], book: Rulebook) -> Question:
    """What was asked about *incident*; *evaluated* are all its ends."""
    if incident.asked is not None:
        return _question_of_error(incident, incident.asked, evaluated, book)
    if _has_separate_error(incident):
        return Question(scope=split_exception(incident)[0], ends=(), deaths_are_separate=True)
    if not incident.about and _is_of_waiting_work(incident) and (found := churn_of(incident, evaluated)):
        churn, ends = found
        return Question(scope=incident, ends=ends, churn=churn)
    if is_about_now(incident):
        stopped = [each for each in evaluated if each.end is not None and each.end.stop_requested]
        scope = evolve(incident, cases=(), unassigned_signs=tuple(_signs_of_now(incident, book)))
        are_separate = _has_unexpected(incident)
        stands_still = bool(evaluate_unclaimed(scope, book).chances.explanation)
        if stands_still or are_separate:
            ends = () if _has_workers(incident) else tuple(stopped)
            return Question(scope=scope, ends=ends, deaths_are_separate=are_separate)
    return Question(scope=incident, ends=_with_work_left(deaths_in_question(evaluated, incident), incident))


def _with_work_left(ends: Sequence[EvaluatedCase], incident: Incident) -> Sequence[EvaluatedCase]:
    """The *ends* without those of workers whose work others have done, if somebody waits for the work of others."""
    if incident.about or not all(map(_is_end_of_wait, incident.exceptions[:1])):
        return ends
    left = [each for each in ends if each.end is None or not _is_made_good(each.end, incident)]
    return left if any(each.is_unexpected for each in left) else ends


def _signs_of_now(incident: Incident, book: Rulebook) -> Iterator[Match]:
    """Signs of what keeps work from going on now, and of living workers; of any place where workers are missing."""
    ended = {address for end in incident.ends for address in end.addresses}
    lacks_workers = _lacks_workers(incident)
    for each in incident.all_signs:
        cause = book.cause(each.owner)
        names_living = each.identity.worker is not None and each.identity.worker not in ended
        is_present = lacks_workers or each.origin in _PRESENT
        is_deathless = cause is not None and cause.ends in ("standstill", "never-started", "raised")
        if names_living or (is_present and is_deathless):
            yield each


def _has_separate_error(incident: Incident) -> bool:
    return is_own_error(incident) and _has_unexpected(incident)


def _has_unexpected(incident: Incident) -> bool:
    return any(end.unexpected for end in incident.ends)


def _question_of_error(
    incident: Incident, rule: ErrorRule, evaluated: Sequence[EvaluatedCase], book: Rulebook
) -> Question:
    """The question that the caught error is, by what it can come of."""
    admitted = frozenset(each.id for each in book.causes if rule.admits(each))

    def kept(signs: Iterable[Match]) -> tuple[Match, ...]:
        return tuple(each for each in signs if each.owner in admitted)

    cases = tuple(evolve(each, signs=kept(each.signs)) for each in incident.cases)
    scope = evolve(incident, cases=cases, unassigned_signs=kept(incident.unassigned_signs))
    ends = [narrowed_case(each, admitted) for each in deaths_in_question(evaluated, incident)]
    if rule.ends:
        return Question(scope=scope, ends=ends)
    tied = [each for each in ends if each.chances.explanation]
    of_others = [each for each in evaluated if each.is_unexpected and each.end not in [one.end for one in tied]]
    return Question(scope=evolve(scope, cases=()), ends=tied, deaths_are_separate=bool(of_others))


def is_about_now(incident: Incident) -> bool:
    """Whether what runs and waits now is in question, and no longer those who died.

    It is if nobody handed in more than the end of a wait, work is unfinished, and others have done whatever the
    dead were to do. Where workers are missing, a nanny must have replaced each of the dead as well, or others
    have left later, as asked.
    """
    if incident.about or not _is_of_waiting_work(incident):
        return False
    lacks_workers = _lacks_workers(incident)
    return all(
        _is_made_good(end, incident)
        and (
            not lacks_workers
            or any(mark.role == "restart" for mark in end.marks)
            or _others_left_later(end, incident)
        )
        for end in incident.ends
        if end.unexpected
    )


def _is_of_waiting_work(incident: Incident) -> bool:
    """Whether nobody handed in more than the end of a wait, and the scheduler says that work is unfinished."""
    is_of_wait = all(map(_is_end_of_wait, incident.exceptions[:1]))
    return (
        bool(incident.fields_of("scheduler-state"))
        and is_of_wait
        and (_wants_workers(incident) or _has_work(incident))
    )


def _has_workers(incident: Incident) -> bool:
    return all(whole(each.get("workers")) for each in incident.fields_of("scheduler-state"))


def _wants_workers(incident: Incident) -> bool:
    return any(each.class_name == _WAITS_FOR_WORKERS for each in incident.exceptions[:1])


def _lacks_workers(incident: Incident) -> bool:
    return _wants_workers(incident) or not _has_workers(incident)


def _others_left_later(end: ProcessEnd, incident: Incident) -> bool:
    """Whether workers lived on after a death and then left as asked: that is why there are none."""
    stops = [each.when for each in incident.ends if each.stop_requested]
    return any(end.when is not None and when is not None and when > end.when for when in stops)


def _is_end_of_wait(facts: ExceptionFacts) -> bool:
    is_of_work = facts.from_task or facts.task or facts.identity.worker
    return not is_of_work and facts.class_name in (*_WAITS, _WAITS_FOR_WORKERS)


def _has_work(incident: Incident) -> bool:
    return (
        any(whole(each.get("waiting_tasks")) for each in incident.fields_of("scheduler-state"))
        or bool(incident.events("awaited-task"))
        or any(
            each.get("state") in ("processing", "queued", "waiting", "no-worker")
            for each in incident.fields_of("task-state")
        )
    )


def _is_made_good(end: ProcessEnd, incident: Incident) -> bool:
    """Whether all that was assigned to a lost worker is known to be done, and nothing waits for it still."""
    fates = [each.captures for each in incident.events("lost-tasks") if each.identity.worker in end.addresses]
    awaited = {each.get("worker") for each in incident.fields_of("awaited-task")}
    is_done = bool(fates) and all(each.get("unfinished") == "0" for each in fates)
    return is_done and awaited.isdisjoint(end.addresses)


#: What the address of a scheduler that is gone says, and how a person says it.
_GONE = {
    "refused": "nothing listens at its address any more ({address}: connection refused)",
    "no-route": "no route leads to its address any more ({address})",
    "unknown-host": "its host is not known any more ({address})",
}


def lost_scheduler(incident: Incident) -> str:
    """What shows that the client's scheduler is gone; empty if it answers, or if nothing is known."""
    for known in incident.fields_of("client-state"):
        if known.get("scheduler") in ("closed", "failed"):
            return f"it ran in this process, and its status is {known['scheduler']}"
        if (answer := known.get("answer")) in _GONE:
            return _GONE[answer].format(address=known.get("address"))
    return ""
