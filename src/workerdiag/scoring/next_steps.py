"""Where to look next: the checks that tell the likeliest causes apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import evolve

from workerdiag.model.diagnosis import Match, NextStep, RankedCause
from workerdiag.model.incident import Incident
from workerdiag.model.rules import Mitigation, NextStepRule, Rulebook
from workerdiag.model.signals import signal_name
from workerdiag.model.vocabulary import Outcome
from workerdiag.scoring.advice import ClusterSetup, applicable_advice, fill_example, fill_text
from workerdiag.scoring.all_clear import AllClearObstacles, endless_tasks, open_ended_log
from workerdiag.scoring.failures import failed_tasks, is_callers_own
from workerdiag.scoring.question import is_about_now, lost_scheduler

MAX_STEPS = 6

#: Senders of signals that kill a worker unexpectedly (``man 7 signal``), and where they show.
_SENDERS: Mapping[int, tuple[str, str]] = {
    1: ("a terminal or session that was closed", "last -x | head"),
    3: ("Ctrl-\\ in the terminal", ""),
    5: ("a debugger, or a trap in native code", ""),
    10: ("a batch system that warns before its limit, or a script", "grep -n -- --signal job.sh"),
    12: ("a batch system that warns before its limit, or a script", "grep -n -- --signal job.sh"),
    13: ("native code that no longer ignores it, and wrote to a closed pipe or connection", ""),
    14: ("a timer of the code's own", "grep -rnE 'signal[.](alarm|setitimer)' ."),
}

_WHAT_RUNS = NextStep(
    inspect="what runs at this moment, and what it does",
    command="client.processing(); client.call_stack()",
    until="it ends",
)
_SCHEDULERS_END = NextStep(
    inspect="the last lines of the scheduler's log, and the exit status of its process, where it was started: a "
    'line "Closing scheduler. Reason: ..." says why it closed, such as idle-timeout-exceeded'
)
_RECORD_NEXT_DEATH = NextStep(
    inspect="the flight recorder's record of the next death, with exit status, tasks, output and memory: "
    "install it before the work runs again",
    command="workerdiag.install(client)",
)


def next_steps(
    outcome: Outcome,
    ranked: Sequence[RankedCause],
    book: Rulebook,
    incident: Incident,
    setting: ClusterSetup,
    obstacles: AllClearObstacles,
) -> tuple[NextStep, ...]:
    """At most `MAX_STEPS` places to check, the most telling first; if nothing died, those for a failure."""
    if is_callers_own(incident):
        return ()
    if outcome == "unknown" and incident.deaths_are_separate and is_about_now(incident):
        return (_WHAT_RUNS,)
    if outcome == "no-death" or (outcome == "unknown" and incident.deaths_are_separate):
        asked_for = [evolve(each, of_error=True) for each in _steps_at_failure(incident, book)]
        return (*asked_for, *_advised_steps(book.task_advice if failed_tasks(incident) else (), setting))
    steps: dict[str, NextStep] = {}
    words = _process_words(incident)
    is_settled = bool(ranked) and ranked[0].probability >= 0.9
    for each in () if is_settled else ranked[:4]:
        cause = book.cause(each.id)
        for step in cause.next_steps if cause and each.probability >= 0.03 else ():
            known = steps[step.inspect].distinguishes if step.inspect in steps else ()
            steps[step.inspect] = evolve(_filled_step(step, step.inspect, words), distinguishes=(*known, each.id))
    ordered_steps = sorted(steps.values(), key=lambda step: -len(step.distinguishes))
    is_unknown = outcome in ("unknown", "no-evidence")
    asked_at: list[NextStep] = []
    if is_unknown and incident.cases:
        asked_at = _steps_at_untold_end(incident, book)
    elif is_unknown:
        asked_at = _steps_at_trouble(incident, obstacles, book)
    fallback = _fallback_steps(incident) if is_unknown and not (ordered_steps or asked_at) else []
    advised = _advised_steps(book.advice, setting) if is_unknown else []
    if outcome == "unknown" and incident.cases and all(mark.origin != "event recorder" for mark in incident.marks):
        advised.append(_RECORD_NEXT_DEATH)
    first = _senders(incident) if is_unknown else ()
    return (*[*first, *asked_at, *ordered_steps, *fallback][: MAX_STEPS - len(advised)], *advised)


def _process_words(incident: Incident) -> Mapping[str, str]:
    """The pid of the process in question, if it is known and the only one."""
    pids = {str(end.identity.pid) for end in incident.ends if end.identity.pid}
    return {"pid": pids.pop()} if len(pids) == 1 else {}


def _steps_at_trouble(incident: Incident, obstacles: AllClearObstacles, book: Rulebook) -> list[NextStep]:
    if incident.asked is not None and incident.asked.landmark is not None:
        return _steps_at_failure(incident, book)
    quoted = obstacles.troubles[-1] if obstacles.troubles else obstacles.unknown_error
    return _steps_at_landmark(quoted, book) if quoted else []


def _steps_at_failure(incident: Incident, book: Rulebook) -> list[NextStep]:
    """The steps of the first failure in a log whose landmark has some, else those of the caught one."""
    failures = [_steps_at_landmark(mark, book) for mark in incident.marks if mark.role == "failure"]
    if not any(failures) and incident.asked is not None and incident.asked.landmark is not None:
        caught = Match(owner=incident.asked.landmark, sign="", origin="exception")
        failures.append(_steps_at_landmark(caught, book))
    return next(filter(None, failures), [])


def _steps_at_untold_end(incident: Incident, book: Rulebook) -> list[NextStep]:
    """The steps of the first message that tells of a worker's end, but not how it ended."""
    untold = (end for end in incident.ends if not end.exit_known)
    steps = (_steps_at_landmark(mark, book) for end in untold for mark in end.marks)
    return next(filter(None, steps), [])


def _steps_at_landmark(mark: Match, book: Rulebook) -> list[NextStep]:
    landmark = book.landmarks_by_id.get(mark.owner)
    steps = landmark.next_steps if landmark else ()
    return [_filled_step(each, fill_text(each.inspect, mark.captures), mark.captures) for each in steps]


def _filled_step(step: NextStepRule, inspect: str, words: Mapping[str, str]) -> NextStep:
    command = fill_example(step.command, words)
    return NextStep(inspect=inspect, command=command, permission=step.permission, until=step.until)


def _advised_steps(advice: Iterable[Mitigation], setting: ClusterSetup) -> list[NextStep]:
    """The checks that the rules advise where no cause is known, in the terms of the deployment."""
    inspections = [evolve(each, do=each.inspect) for each in advice]
    return [NextStep(inspect=each.do, command=each.example) for each in applicable_advice(inspections, {}, setting)]


def _is_caller_timeout(incident: Incident) -> bool:
    """Whether no death is known, and the caller timed out or tasks may never finish."""
    raised = [each for each in incident.exceptions if each.relation == "raised"]
    caught = any(not each.from_task and each.class_name == "TimeoutError" for each in raised)
    waits = any(mark.owner == "client.waited-in-vain" for mark in incident.marks) or any(endless_tasks(incident))
    return not incident.cases and (caught or waits)


def _senders(incident: Incident) -> Iterator[NextStep]:
    for number in sorted(_SENDERS.keys() & {end.signal for end in incident.ends}):
        sender, command = _SENDERS[number]
        yield NextStep(inspect=f"who sent signal {number} ({signal_name(number)}): {sender}", command=command)


def _fallback_steps(incident: Incident) -> list[NextStep]:
    if lost_scheduler(incident):
        return [_SCHEDULERS_END]
    if _is_caller_timeout(incident):
        return [_WHAT_RUNS]
    of_the_dead = " of the worker that died" if incident.cases else ""
    at_death = " around the time of death" if incident.cases else ""
    scheduler = NextStep(
        inspect='the scheduler\'s list of workers, or "Remove worker" in its log',
        command="client.scheduler_info()['workers']",
        until="the scheduler ends",
    )
    nanny = NextStep(
        inspect=f"the log of the nanny (the `dask worker` process){of_the_dead}",
        command="client.get_worker_logs(workers=[NANNY_ADDRESS], n=200)",
        until="the nanny ends",
    )
    kernel = NextStep(
        inspect=f"the kernel log of the worker's machine{at_death}",
        command="dmesg -T | grep -iE 'killed process|segfault'",
        permission="may need root",
        until="the machine restarts",
    )
    return [
        *([scheduler] if open_ended_log(incident) else ()),
        *([nanny] if "nanny log" not in incident.inspected else ()),
        *([kernel] if "kernel log" not in incident.inspected else ()),
    ]
