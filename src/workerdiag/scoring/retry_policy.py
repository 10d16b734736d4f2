"""What a program may do with the same work: retry it, and how, or leave it to a person.

A wrong retry kills more workers, or undoes what a person wanted. A wrong "ask" costs a look. So a program
acts only on a sure cause, and never against a person who stopped the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never
from urllib.parse import urlsplit

from workerdiag.model.diagnosis import SURE_ENOUGH, Blame, Death, RankedCause, RetryPolicy
from workerdiag.model.rules import Cause, Rulebook
from workerdiag.model.vocabulary import RetryAction
from workerdiag.scoring.blame import wants_memory
from workerdiag.scoring.memory_numbers import MemoryNumbers
from workerdiag.units import format_bytes, format_limit

#: Below this probability a program must ask. At or above it no cause in docs/calibration.md was wrong.
SURE_ENOUGH_TO_ACT: Final = 0.8
_MAX_HOSTS = 3
_WHY: Final[Mapping[RetryAction, str]] = {
    "retry": "the work is not at fault and may be expected to succeed",
    "retry-with-memory": "the same work may come to its end where workers have more memory",
    "retry-elsewhere": "the work is not at fault, but where it ran is gone",
    "do-not-retry": "the same work would most likely end the same way",
    "ask": "whether the same work would succeed is not known",
}
_RETRIES: Final[frozenset[RetryAction]] = frozenset({"retry", "retry-with-memory", "retry-elsewhere"})


def retry_policy(
    ranked: Sequence[RankedCause], book: Rulebook, blame: Blame, lost: Sequence[Death], numbers: MemoryNumbers
) -> RetryPolicy:
    """The policy of the likeliest cause, if that is sure and no death contradicts it; else ``ask``.

    Args:
        ranked: The causes, the likeliest first.
        book: The rules they come from.
        blame: Who needs to act.
        lost: The unexpected deaths that the causes are about.
        numbers: What is known of memory in the same incident.
    """
    top = ranked[0] if ranked else None
    cause = book.cause(top.id) if top else None
    if top is None or cause is None:
        return RetryPolicy(
            reason="no cause of a lost worker is known, so nothing speaks for or against a retry"
        )
    if top.probability < SURE_ENOUGH_TO_ACT:
        return RetryPolicy(
            reason=f"no cause is at least {SURE_ENOUGH_TO_ACT:.0%} likely; a person has to look"
        )
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
    """What may be done on workers of the same size."""
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
    unsafe = next((each for each in others if each and not _is_as_harmless(each, cause)), None)
    if unsafe is not None:
        return f"{cause.title}; but a worker was also lost to this, which may come again: {unsafe.title}"
    unexplained = sum(each.cause is None for each in lost)
    if 2 * unexplained > len(lost):
        return f"{cause.title}; but {unexplained} of {len(lost)} lost workers died of an unknown cause"
    return ""


def _is_as_harmless(other: Cause, cause: Cause) -> bool:
    """Whether the remedy for *cause* also helps against *other*, or *other* needs none."""
    return other.id == cause.id or other.retry == "safe" or (wants_memory(other) and wants_memory(cause))


def _why(action: RetryAction, cause: Cause, blame: Blame) -> str:
    if action == "retry" and cause.ends == "standstill":
        return "nothing died, and nothing is wrong with the work"
    if action == "ask" and blame.verdict == "operator":
        return "somebody asked for it, and knows whether the work is to run again"
    return _WHY[action]


def _conditions(
    action: RetryAction, cause: Cause, blame: Blame, lost: Sequence[Death], numbers: MemoryNumbers
) -> Iterator[str]:
    """When the policy holds, one sentence each: first those of the rule, then those of this incident."""
    if cause.retry_advice and action != "retry-with-memory":
        yield cause.retry_advice
    enough, too_little = (
        numbers.worth_a_try_bytes,
        numbers.wanted_more_than_bytes if wants_memory(cause) else None,
    )
    if action == "retry-with-memory" and enough is not None and too_little is not None:
        yield f"Each worker that may run it gets at least {format_limit(enough)}."
        wanted = f"more than {format_bytes(too_little)} was wanted, how much more is not known"
        yield f"It is tried once: {wanted}."
        yield "If it ends in the same way again, smaller pieces are the way, not still more memory."
    elif action == "do-not-retry" and too_little is not None:
        yield f"It holds while a worker gets at most {format_bytes(too_little)}; what is enough is not known."
    hosts = _hosts_taken_away(cause, blame, lost)
    if action == "retry-elsewhere" and hosts:
        more = f" and {len(hosts) - _MAX_HOSTS} more" if len(hosts) > _MAX_HOSTS else ""
        yield f"These machines are not used again: {', '.join(hosts[:_MAX_HOSTS])}{more}."
    if action == "do-not-retry" and blame.task:
        if blame.fairly_blamed:
            yield f"It holds for all work that contains the task {blame.task}."
        elif blame.verdict == "other-task":
            yield f"It holds for the work as a whole: another task than {blame.task} ended the workers."


def _hosts_taken_away(cause: Cause, blame: Blame, lost: Sequence[Death]) -> list[str]:
    """The machines that the platform took away, by name or else by the hosts of the workers' addresses."""
    if cause.ends != "killed" or blame.verdict != "platform":
        return []
    hosts = {each.identity.host or _host_of(each.identity.worker or "") for each in lost}
    return sorted(each for each in hosts if each)


def _host_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:  # a log says anything: tcp://[1
        return None
