"""What happened, in one sentence, and how many deaths it speaks of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from workerdiag.model.diagnosis import Death, Match, RankedCause, TaskFailure, UnlistedDeaths
from workerdiag.model.evidence import Gap
from workerdiag.model.incident import ClippedReports, Incident
from workerdiag.model.normalize import whole
from workerdiag.model.rules import LAST_LINE, LOG_OF_OTHERS, SCHEDULER_STATE, Rulebook
from workerdiag.model.vocabulary import Outcome, Place
from workerdiag.redaction.secrets import redact_text
from workerdiag.scoring.all_clear import AllClearObstacles, endless_sentence, is_start
from workerdiag.scoring.failures import caught_failure, failed_tasks, is_callers_own, task_failure
from workerdiag.scoring.question import is_about_now, lost_scheduler
from workerdiag.values import evolve, field, frozen

#: Deaths that findings list at most: the first and the last.
MAX_DEATHS = 1000
#: Of these, gaps in time mean that evidence was not read completely.
_MAY_BE_CUT: tuple[Place, ...] = ("log", "scheduler events", "workerdiag")
_ENDS_OF_OTHERS = {
    LAST_LINE: "The log ends while the worker runs, with a line that no rule knows: {line}",
    LOG_OF_OTHERS: "No rule knows anything in one of the logs, which says: {line}",
}
_QUOTED_CHARS = 160


def listed(deaths: Sequence[Death]) -> tuple[Death, ...]:
    """All deaths, or the first and the last of very many."""
    half = MAX_DEATHS // 2
    return tuple(deaths) if len(deaths) <= MAX_DEATHS else (*deaths[:half], *deaths[-half:])


def deaths_beyond_cases(incident: Incident, gaps: Sequence[Gap]) -> UnlistedDeaths:
    """How many losses the scheduler counted beyond the listed deaths, and whether there may be more."""
    states = incident.fields_of("scheduler-state")
    counted = max((whole(each.get("lost_unasked")) or 0 for each in states), default=0)
    reported, is_exact = _reported_deaths(incident)
    return UnlistedDeaths(
        count=max(incident.more_deaths, max(counted, reported) - len(incident.cases)),
        maybe_more=bool(incident.left_out)
        or not is_exact
        or any(each.get("lost_unasked_is_lower_bound") == "True" for each in states)
        or any(
            (each.reason == "timed-out" and each.place in _MAY_BE_CUT)
            or (each.reason == "expired" and each.place == "workerdiag")  # a bundle did not keep it
            for each in gaps
        ),
    )


def losses_beyond_cases(incident: Incident, gaps: Sequence[Gap]) -> UnlistedDeaths:
    """As `deaths_beyond_cases`, but without departures in order: however many there are, they hide no death."""
    clipped = tuple(each for each in incident.clipped_reports if each.of_losses)
    return deaths_beyond_cases(evolve(incident, clipped_reports=clipped), gaps)


def _reported_deaths(incident: Incident) -> tuple[int, bool]:
    """The least number of deaths in logs of which not all reports are kept, and whether it is exact.

    A process ends once, so there are as many deaths as reports of one kind, unless two kept reports describe
    one death. The number is exact if all kinds have as many and their kept reports coincide. If somebody
    requested one of the ends, it is unknown how many others were requested.
    """
    cases, clipped = incident.cases, incident.clipped_reports
    asked = any(each.role == "stop-request" for each in incident.marks)
    if not clipped or asked or not all(end.unexpected for end in incident.ends):
        return len(cases), not clipped
    kinds = [[each for each in clipped if each.landmark == kind] for kind in {e.landmark for e in clipped}]
    kept, counts = zip(*(_kept_and_counted(each, len(cases)) for each in kinds), strict=True)
    is_exact = len(set(counts)) == 1 and all(number == len(cases) for number in kept)
    at_least = [count for count, number in zip(counts, kept, strict=True) if number <= len(cases)]
    return max([len(cases), *at_least]), is_exact and all(each.is_exact for each in clipped)


def _kept_and_counted(reports: Sequence[ClippedReports], deaths: int) -> tuple[int, int]:
    """The reports of one kind that are kept, and all; of logs of the same *deaths* those of the fullest."""
    kept, count = sum(each.kept for each in reports), sum(each.count for each in reports)
    return (kept, count) if kept <= deaths else max((each.kept, each.count) for each in reports)


@frozen(kw_only=True)
class LostWorkers:
    """The unexpected deaths that a diagnosis is about, and how to word their number."""

    deaths: Sequence[Death]
    #: The deaths of which only the number is known.
    beyond: UnlistedDeaths = field(factory=UnlistedDeaths)
    #: Whether each of them was evaluated by itself.
    all_evaluated: bool = True

    @property
    def count_text(self) -> str:
        """``a worker``, ``3 workers``, ``10,000 workers`` or ``at least 800 workers``."""
        count = len(self.deaths) + self.beyond.count
        one = "one worker" if self.beyond.maybe_more else "a worker"
        text = one if count == 1 else f"{count:,} workers"
        return f"at least {text}" if self.beyond.maybe_more else text

    def share_text(self, cause: str) -> str:
        """How many died of *cause*, if several; where not all were evaluated, at least how many of how many."""
        same = sum(death.cause == cause for death in self.deaths)
        total = len(self.deaths) + self.beyond.count
        if self.all_evaluated and self.beyond == UnlistedDeaths():
            return f"{same} worker processes" if same > 1 else ""
        least = "at least " if self.beyond.maybe_more else ""
        return f"at least {same:,} of {least}{total:,} worker processes" if total > 1 else ""


def summary(
    outcome: Outcome,
    ranked: Sequence[RankedCause],
    deaths: Sequence[Death],
    lost: LostWorkers,
    incident: Incident,
    obstacles: AllClearObstacles,
) -> str:
    """What happened, in one sentence. *lost* are the unexpected deaths that the exception is about."""
    match outcome:
        case "explained":
            times = lost.share_text(ranked[0].id)
            return f"{ranked[0].title} ({times})." if times else f"{ranked[0].title}."
        case "no-death":
            return _no_death_sentence(deaths, incident)
        case "no-evidence":
            return "Nothing in this input is recognised: no Dask process and no worker death."
        case "unknown":
            return _unknown_sentence(lost, incident, obstacles)
        case _:
            assert_never(outcome)


def separate_matter(incident: Incident, died: Sequence[Death], book: Rulebook) -> str:
    """The sentence for the summary if nothing connects the caught exception with those who *died*; else empty."""
    if not died or not incident.deaths_are_separate:
        return ""
    causes = [cause for death in died if (cause := book.cause(death.cause))]
    why = f" ({causes[-1].title})" if causes else _exits_text(died)
    # explain(client=client) answers what stands still before it answers who died
    where = "" if is_about_now(incident) else "; explain(client=client) explains that"
    return f" Separately, {LostWorkers(deaths=died).count_text} died{why}{where}."


def _no_death_sentence(deaths: Sequence[Death], incident: Incident) -> str:
    if own := _own_error_sentence(incident):
        return own
    if failed := failed_tasks(incident):
        failure = task_failure(incident)
        which = " with" if failed == 1 else ", the first with"
        what = f"{which} {failure_text(failure).removesuffix('.')}" if failure else ""
        return f"No worker died: {'a task' if failed == 1 else f'{failed} tasks'} failed{what}."
    if other := next((mark for mark in incident.marks if mark.role == "failure"), None):
        # The beginning of its message may be of an orderly line above it, which has the header.
        own_text = evolve(other, text=other.text.rpartition(" … ")[2])
        return f"No worker died; something else failed: {_quoted_message(own_text)}"
    if any(mark.role == "clean-exit" for mark in incident.marks):
        return 'No worker died: the worker was asked to stop and shut down normally ("End worker").'
    if deaths:
        return f"No worker died unexpectedly: {LostWorkers(deaths=deaths).count_text} shut down normally."
    return "No sign of a worker death or of work at a standstill."


def _present_sentence(incident: Incident) -> str:
    """Whether the scheduler is gone, or else what runs now, if that is in question; empty if it is not known."""
    if not incident.cases and (how := lost_scheduler(incident)):
        return f"The scheduler is gone: {how}. Nothing that was seen says why."
    running = (each for each in incident.fields_of("awaited-task") if each.get("runs") == "itself")
    task = next(running, None) if incident.deaths_are_separate and is_about_now(incident) else None
    if task is None:
        return ""
    how_long = f", for {float(ran_s):.0f} s so far" if (ran_s := task.get("running_s")) else ""
    return f"No sign that work stands still: {task.get('key')} runs{how_long}."


def _own_error_sentence(incident: Incident) -> str:
    failure = caught_failure(incident) if is_callers_own(incident) else None
    if failure is None:
        return ""
    where = f" in {failure.raised_at}" if failure.raised_at else ""
    what = failure_text(failure).removesuffix(".")
    return f"The program itself raised {what}{where}: no worker took part in it."


def failure_text(failure: TaskFailure) -> str:
    """``KeyError: 'pressure'``, on one line, without secrets."""
    message = _safe_message(failure.message)
    return f"{failure.type}: {message}" if message else failure.type


def _unknown_sentence(lost: LostWorkers, incident: Incident, obstacles: AllClearObstacles) -> str:
    if known := _own_error_sentence(incident) or _present_sentence(incident):
        return known
    if lost.deaths:
        return f"{lost.count_text} died{_exits_text(lost.deaths)}, and the evidence does not show why."
    if failure := caught_failure(incident):
        failed = f"A task failed with {failure_text(failure).removesuffix('.')}"
        is_all = incident.deaths_are_separate
        return f"{failed}." if is_all else f"{failed}; the evidence does not show whether a worker died."
    if obstacles.open_ended_log and (failure := task_failure(incident)):
        return f"A task failed with {failure_text(failure).removesuffix('.')}. {_open_end_sentence(obstacles)}"
    if raised := next((facts.class_name for facts in incident.exceptions), ""):
        return f"{raised} was raised, and the evidence does not show its cause."
    return next(_obstacle_sentences(obstacles))


def _obstacle_sentences(obstacles: AllClearObstacles) -> Iterator[str]:
    """What bars the all-clear, the gravest first; the last one always holds."""
    if obstacles.troubles:
        last = obstacles.troubles[-1]
        if last.owner == SCHEDULER_STATE:
            yield endless_sentence(last)
        if all(map(is_start, obstacles.troubles)):
            start = _quoted_message(last)
            yield f"A process began to start, and the evidence does not show whether it came up: {start}"
        yield f"Something went wrong, and the evidence does not show its cause: {_quoted_message(last)}"
    if obstacles.unknown_error:
        yield f"There is an error that no rule knows: {_quoted_message(obstacles.unknown_error)}"
    if obstacles.lacks_workers:
        yield "A client connected to the scheduler, and there is no sign of any worker."
    if obstacles.lacks_cluster_answer:
        yield "The cluster could not be queried, so the state of its workers is unknown."
    if obstacles.has_unread_log:
        yield "Part of the input could not be read; nothing in the rest points to a death."
    if obstacles.open_ended_log:
        yield _open_end_sentence(obstacles)
    if obstacles.shows_deaths:
        yield "There are signs of trouble, and none shows its cause."
    yield "Nothing that was read would show the death of a worker."


def _open_end_sentence(obstacles: AllClearObstacles) -> str:
    end = obstacles.open_ended_log
    if end and end.owner in _ENDS_OF_OTHERS:
        return _ENDS_OF_OTHERS[end.owner].format(line=_quoted_message(end))
    return "The log ends while the worker runs. It would look the same if the worker had been killed then."


def _quoted_message(mark: Match) -> str:
    return f'"{_safe_message(mark.text)}"'


def _safe_message(text: str) -> str:
    """The beginning of a message, on one line, with secrets redacted."""
    message = " ".join(redact_text(text).split())
    return message if len(message) <= _QUOTED_CHARS else f"{message[: _QUOTED_CHARS - 1]}…"


def _exits_text(deaths: Sequence[Death]) -> str:
    exits = dict.fromkeys(
        f"signal {death.signal}" if death.signal is not None else f"exit status {death.status}"
        for death in deaths
        if death.signal is not None or death.status is not None
    )
    return f" ({', '.join(exits)})" if exits else ""
