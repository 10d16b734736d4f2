"""Who needs to act, whether Dask blames the right task, and what a program may do with the same work.

A wrong retry kills more workers, or undoes what a person wanted. A wrong "ask" costs a look. So a program acts only
on a sure cause, and never against a person who stopped the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

from workerdiag.model.diagnosis import SURE_ENOUGH, Blame, Death, Decision, RankedCause, RetryPolicy
from workerdiag.model.evidence import ExceptionFacts, TasksAtLoss
from workerdiag.model.identity import NO_IDENTITY, Identity, host_of
from workerdiag.model.incident import Incident
from workerdiag.model.memory import Cure
from workerdiag.model.process_end import TOGETHER_S
from workerdiag.model.rules import MEMORY_REASON, Cause, Rulebook
from workerdiag.model.vocabulary import RetryAction
from workerdiag.scoring.advice import MemoryNumbers
from workerdiag.scoring.all_clear import all_died_at_start
from workerdiag.scoring.findings import kind_of_task, unfinished_tasks
from workerdiag.units import format_bytes, format_limit
from workerdiag.values import frozen

_KEY_CHARS = 100


@frozen(kw_only=True)
class LossHistory:
    """The losses of workers that Dask counted against one task."""

    task: str
    #: Losses that Dask allows; after one more it gives up.
    allowed: int
    #: The known losses, oldest first.
    losses: tuple[TasksAtLoss, ...]

    @property
    def running(self) -> tuple[TasksAtLoss, ...]:
        """The losses with the task running."""
        return tuple(each for each in self.losses if self.task in each.tasks)

    @property
    def waiting(self) -> tuple[TasksAtLoss, ...]:
        """The losses at which it certainly only waited: others ran, so it was not about to read its arguments."""
        return tuple(
            each for each in self.losses if self.task not in each.tasks and not each.maybe_more and _suspects(each)
        )

    @property
    def fairly_blamed(self) -> bool | None:
        """Whether Dask would also have given up on the task's function if it had counted only executing tasks."""
        kind = kind_of_task(self.task)
        ran = [
            each for each in self.losses if self.task in each.tasks or kind in map(kind_of_task, _suspects(each))
        ]
        if len(ran) > self.allowed:
            return True
        return False if self.waiting else None

    @property
    def is_bystander(self) -> bool:
        """Whether a task of another function certainly ended most of these workers."""
        known = self.fairly_blamed is False or bool(self.running)
        counts = Counter(key for each in self.losses for key in dict.fromkeys(_suspects(each)))
        most = max(counts.values(), default=0)
        kinds = {kind_of_task(key) for key, count in counts.items() if count == most}
        return known and bool(kinds) and kind_of_task(self.task) not in kinds


def loss_history(
    task: str, identity: Identity, allowed: int | None, losses: Sequence[TasksAtLoss]
) -> LossHistory | None:
    """The losses, in order, counted against *task* until Dask gave up on it with its last worker, or None."""
    known = [each for each in losses if each.counted and (task in each.assigned or task in each.tasks)]
    last = identity if identity.worker is not None else None
    ends = [
        index
        for index, each in enumerate(known)
        if task in each.gave_up
        or (last and each.identity.worker == last.worker and not each.identity.conflicts_with(last))
    ]
    if ends:
        known = known[: ends[-1] + 1]  # what came later is of another task of that key
    stated = [each.allowed_failures for each in known if each.allowed_failures is not None]
    allowed = allowed if allowed is not None else stated[-1] if stated else None
    if not known or allowed is None:
        return None
    return LossHistory(task=task, allowed=allowed, losses=tuple(known[-(allowed + 1) :]))


def _suspects(loss: TasksAtLoss) -> tuple[str, ...]:
    """The tasks that may have ended a worker: all that were executing, or those on the thread that crashed."""
    is_known = any(each is not None for each in loss.crashed)
    return tuple(key for key, *_, crashed in loss.each_task() if crashed) if is_known else loss.tasks


def _history_sentences(record: LossHistory) -> list[str]:
    task, counted = record.task, record.allowed + 1
    running, waiting = len(record.running), len(record.waiting)
    unclear = len(record.losses) - running - waiting
    unseen = counted - len(record.losses)
    sentence = f"task {task} was running on {_worker_share(running, counted)} lost"
    sentence += f"; on {waiting} it only waited" if waiting else ""
    sentence += f"; for {unclear} it is unknown" if unclear else ""
    sentence += f"; for {unseen} there is no record" if unseen > 0 else ""
    reasons = [sentence]
    others = Counter(key for each in record.waiting for key in dict.fromkeys(_suspects(each)))
    for key, count in others.most_common(3):
        reasons.append(f"task {_short_key(key)} was running on {_worker_share(count, waiting)} it waited on")
    idle = sum(each.exact and not _suspects(each) for each in record.losses)
    if idle:
        reasons.append(f"no task caused the end of {_worker_share(idle, counted)} by what is known of its threads")
    return reasons


def _thread_sentences(losses: Sequence[TasksAtLoss]) -> list[str]:
    """Sentences about which task ran on which thread when each worker died, by the workers' black boxes."""
    sentences = []
    for each in losses:
        for key, thread, took_s, hit in each.each_task():
            if each.exact and hit is not False:
                name = f" on thread {thread}" if thread else ""
                how_long = "" if took_s is None else f" for {took_s:.1f} s"
                why = ", the thread that crashed" if hit else ""
                who = each.identity.worker or f"process {each.identity.pid}"
                sentences.append(f"when {who} died, task {_short_key(key)} had run{name}{how_long}{why}")
    return sentences


def _shared_host_sentences(losses: Sequence[TasksAtLoss]) -> list[str]:
    """Sentences about hosts that lost several workers at once without a task in common."""
    sentences = []
    for host in dict.fromkeys(each.identity.host for each in losses if each.identity.host and each.counted):
        there = [each for each in losses if each.identity.host == host and each.counted and each.when is not None]
        for first in there:
            group = [each for each in there if 0 <= (each.when or 0.0) - (first.when or 0.0) <= TOGETHER_S]
            places = {each.identity.nanny or each.identity.worker for each in group}
            shared = set.intersection(*(set(each.tasks) for each in group))
            if len(places) > 1 and len(places) == len(group) and not shared:
                sentences.append(
                    f"{len(group)} workers of {host} were lost within {TOGETHER_S:.0f} s of each other"
                )
                break
    return sentences


def _worker_share(count: int, total: int) -> str:
    if count == total == 1:
        return "the one worker"
    return f"{count} of the {total} {'worker' if total == 1 else 'workers'}"


def _short_key(key: str) -> str:
    return key if len(key) <= _KEY_CHARS else f"{key[: _KEY_CHARS - 1]}…"


def blame(ranked: Sequence[RankedCause], book: Rulebook, incident: Incident) -> Blame:
    """The verdict of the likeliest cause, checked against what was executing."""
    killed = next((each for each in incident.exceptions if each.task and each.identity != NO_IDENTITY), None)
    given_up = [] if killed else _tasks_in_logs(incident)
    task = killed.task if killed else given_up[0] if len(given_up) == 1 else None
    cause = _sure_cause(ranked, book)
    if cause is None:
        return Blame(task=task, reasons=("no cause is likely enough to say who needs to act",) if task else ())
    identity, allowed = (killed.identity, killed.allowed_failures) if killed else (NO_IDENTITY, None)
    recorded = loss_history(task, identity, allowed, incident.tasks_at_loss) if task else None
    if recorded is not None:
        fairly, reasons = recorded.fairly_blamed, _history_sentences(recorded)
    else:
        fairly, reasons = _fairness(killed, task, incident)
    if len(given_up) > 1:
        reasons.append(f"Dask gave up {len(given_up)} tasks, and which of them ended a worker is unknown")
    reasons += _shared_host_sentences(incident.tasks_at_loss)
    verdict = cause.blame
    if verdict == "task":
        reasons += _thread_sentences(recorded.losses if recorded else incident.tasks_at_loss)[:4]
        if recorded.is_bystander if recorded is not None else fairly is False:
            verdict = "other-task"
        elif task is None and cause.ends == "crashed" and all_died_at_start(incident):
            verdict = "environment"
            reasons.append("no worker came up, so no task ran: what is loaded at a worker's start ended it")
    if task is not None and cause.blame not in ("task", "unknown") and ranked[0].probability >= 0.9:
        fairly = False
        reasons.append(f"task {task} was lost with the worker and did not cause its end")
    return Blame(verdict=verdict, task=task, reasons=tuple(reasons), fairly_blamed=fairly if task else None)


def decision(
    ranked: Sequence[RankedCause],
    book: Rulebook,
    verdict: Blame,
    numbers: MemoryNumbers,
    cures: Sequence[Cure] = (),
) -> Decision:
    """What a program may do without a person, as far as the evidence allows."""
    enough = next((each.value for each in cures[:1] if each.kind == "worker-memory"), None)
    cause = _sure_cause(ranked, book)
    if cause is None:
        return Decision()
    return Decision(
        retry_safe={"safe": True, "unsafe": False}.get(cause.retry),
        needs_memory_bytes=enough,
        needs_memory_lower_bound_bytes=numbers.wanted_more_than_bytes if wants_memory(cause) else None,
        platform_fault=None if verdict.verdict == "unknown" else verdict.verdict in ("platform", "operator"),
    )


def wants_memory(cause: Cause) -> bool:
    """Whether more memory for each worker helps against a cause."""
    return any("needs_memory" in each.uses for each in cause.mitigations)


def is_of_memory(cause: Cause) -> bool:
    """Whether a worker that has it went over a limit of memory, so that a memory account says more."""
    return wants_memory(cause) or any(MEMORY_REASON in each.superseded_by for each in cause.mitigations)


def _sure_cause(ranked: Sequence[RankedCause], book: Rulebook) -> Cause | None:
    return book.cause(ranked[0].id) if ranked and ranked[0].probability >= SURE_ENOUGH else None


def _fairness(killed: ExceptionFacts | None, task: str | None, incident: Incident) -> tuple[bool | None, list[str]]:
    """Whether the blamed task was executing on the last worker it was lost with, without a flight recorder.

    Dask counts every task assigned to a dead worker, running or not (scheduler.py, ``remove_worker``), so a
    bystander can be blamed. A task that began after the last heartbeat is not in it: the task certainly only
    waited where each thread had an unfinished task then, none of a kind of which others have finished.
    """
    if killed is None or task is None or killed.executing is None:
        return None, []
    if task in killed.executing:
        return True, [f"task {task} was executing on the last worker that died with it"]
    unclear = f"whether task {task} had begun when the worker died is unknown"
    unfinished = unfinished_tasks(killed, incident)
    if killed.threads is None or not len(unfinished) == len(killed.executing) == killed.threads:
        return None, [f"{unclear}: no heartbeat is recent enough"]
    if {each["key"] for each in incident.fields_of("finished-kind")} & set(unfinished):
        return None, [f"{unclear}: what ran before it may just have finished, as others of its kind have"]
    others = ", ".join(unfinished[:3])
    if kind_of_task(task) in map(kind_of_task, unfinished):
        return True, [f"{others}, of the same function as task {task}, had begun on the last worker that died"]
    return False, [
        f"task {task} only waited on the last worker that died: {others} had begun there and was not finished"
    ]


def _tasks_in_logs(incident: Incident) -> list[str]:
    named = (mark.captures.get("task") for mark in incident.marks if mark.role == "blame")
    return list(dict.fromkeys(task.strip("'\"") for task in named if task))


#: Below this probability a program must ask. At or above it no cause in docs/calibration.md was wrong.
SURE_ENOUGH_TO_ACT: Final = 0.8
_WHY: Final[Mapping[RetryAction, str]] = {
    "retry": "the work is not at fault and should succeed",
    "retry-with-memory": "the same work may finish on workers with more memory",
    "retry-elsewhere": "the work is not at fault, but where it ran is gone",
    "do-not-retry": "the same work would most likely fail the same way",
    "ask": "whether the same work would succeed is unknown",
}
_RETRIES: Final[frozenset[RetryAction]] = frozenset({"retry", "retry-with-memory", "retry-elsewhere"})


def retry_policy(
    ranked: Sequence[RankedCause], book: Rulebook, blame: Blame, lost: Sequence[Death], numbers: MemoryNumbers
) -> RetryPolicy:
    """The policy of the likeliest cause, if it is sure and no death of *lost* contradicts it; else ``ask``."""
    top = ranked[0] if ranked else None
    cause = book.cause(top.id if top else None)
    if top is None or cause is None:
        return RetryPolicy(
            reason="no cause of a lost worker is known, so there is no reason for or against a retry"
        )
    if top.probability < SURE_ENOUGH_TO_ACT:
        return RetryPolicy(reason=f"no cause is at least {SURE_ENOUGH_TO_ACT:.0%} likely; a person must decide")
    action = _action(cause, blame)
    doubt = _doubt(cause, book, lost)
    is_worth_a_try = cause.at_own_limit and numbers.worth_a_try_bytes is not None
    if action == "do-not-retry" and not doubt and is_worth_a_try:
        action = "retry-with-memory"
    elif action in _RETRIES and doubt:
        return RetryPolicy(reason=doubt)
    with_memory = action == "retry-with-memory"
    return RetryPolicy(
        action=action,
        reason=f"{cause.title}; {_why(action, cause, blame)}",
        conditions=tuple(_conditions(action, cause, blame, lost, numbers)),
        memory_bytes=numbers.worth_a_try_bytes if with_memory else None,
        max_tries=1 if with_memory else None,
    )


def _action(cause: Cause, blame: Blame) -> RetryAction:
    match cause.retry:
        case "unsafe":
            return "do-not-retry"
        case "unknown":
            return "ask"
        case "safe" if blame.verdict == "operator":
            return "ask"
        case "safe" if cause.ends in ("killed", "stopped") and blame.verdict != "nobody":
            return "retry-elsewhere"
        case "safe":
            return "retry"
        case _:
            assert_never(cause.retry)


def _doubt(cause: Cause, book: Rulebook, lost: Sequence[Death]) -> str:
    """Why the deaths contradict a retry that the likeliest cause allows; empty if they do not."""
    others = [book.cause(each.cause) for each in lost if each.cause and each.probability >= SURE_ENOUGH]
    for other in filter(None, others):
        is_harmless = other.id == cause.id or other.retry == "safe"
        if not is_harmless and not (wants_memory(other) and wants_memory(cause)):
            return f"{cause.title}; but a worker was also lost to this, which may come again: {other.title}"
    unexplained = sum(each.cause is None for each in lost)
    if 2 * unexplained > len(lost):
        return f"{cause.title}; but {unexplained} of {len(lost)} lost workers died of an unknown cause"
    return ""


def _why(action: RetryAction, cause: Cause, blame: Blame) -> str:
    if action == "retry" and cause.ends == "standstill":
        return "nothing died, and nothing is wrong with the work"
    if action == "ask" and blame.verdict == "operator":
        return "whoever requested it knows whether the work is to run again"
    return _WHY[action]


def _conditions(
    action: RetryAction, cause: Cause, blame: Blame, lost: Sequence[Death], numbers: MemoryNumbers
) -> Iterator[str]:
    """When the policy holds, one sentence each: first those of the rule, then those of this incident."""
    if cause.retry_advice and action != "retry-with-memory":
        yield cause.retry_advice
    enough = numbers.worth_a_try_bytes
    too_little = numbers.wanted_more_than_bytes if wants_memory(cause) else None
    if action == "retry-with-memory" and enough is not None and too_little is not None:
        yield f"Each worker that may run it needs at least {format_limit(enough)}."
        wanted = f"more than {format_bytes(too_little)} was wanted; how much more is unknown"
        yield f"Try it once: {wanted}."
        yield "If it fails the same way again, use smaller pieces of work, not still more memory."
    elif action == "do-not-retry" and too_little is not None:
        yield f"It holds while a worker has at most {format_bytes(too_little)}; how much is enough is unknown."
    hosts = _hosts_taken_away(cause, blame, lost)
    if action == "retry-elsewhere" and hosts:
        more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
        yield f"Do not use these machines again: {', '.join(hosts[:3])}{more}."
    if action == "do-not-retry" and blame.task:
        if blame.fairly_blamed:
            yield f"It holds for all work that contains the task {blame.task}."
        elif blame.verdict == "other-task":
            yield f"It holds for the work as a whole: another task than {blame.task} ended the workers."


def _hosts_taken_away(cause: Cause, blame: Blame, lost: Sequence[Death]) -> list[str]:
    """The machines that the platform took away, by name or else by the hosts of the workers' addresses."""
    if cause.ends != "killed" or blame.verdict != "platform":
        return []
    hosts = {each.identity.host or host_of(each.identity.worker) for each in lost}
    return sorted(each for each in hosts if each)
