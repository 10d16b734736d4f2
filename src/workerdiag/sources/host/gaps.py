"""
Why a machine, or its kernel log, could not be looked at, and what would help.
"""

from __future__ import annotations

from workerdiag.deadline import MORE_TIME
from workerdiag.errors import describe_error
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.host.remote_call import Answer, UnreadableAnswerError
from workerdiag.sources.host.respondents import Respondent

#: What to type on the machine itself, where nobody can do it from here.
_BY_HAND = "dmesg -T | grep -iE 'killed process|segfault'; uptime"


def machine_gap(title: str, problem: BaseException) -> Gap:
    """
    Why a machine could not be asked.
    """
    reason: GapReason
    reason, remedy = "unreachable", f"on {title}: {_BY_HAND}"
    if isinstance(problem, TimeoutError):
        reason, remedy = "timed-out", MORE_TIME
    elif isinstance(problem, PermissionError):
        reason, remedy = "forbidden", "take run out of distributed.nanny.blocked-handlers"
    elif isinstance(problem, UnreadableAnswerError | ValueError):
        reason = "malformed"
    description = describe_error(problem, most_chars=300)
    return Gap(source=f"host {title}", reason=reason, detail=description, remedy=remedy)


def uncertain_machine_gap(title: str) -> Gap:
    """
    That only what names the very process could be used, as each machine has that address.
    """
    return Gap(
        source=f"host {title}",
        reason="unreachable",
        detail=f"without the cluster it is not known whether {title} is this machine",
        remedy="workerdiag.explain(exc, client) with a client of the cluster",
    )


def kernel_gap(answer: Answer, respondent: Respondent) -> Gap | None:
    """
    Why the kernel log of a machine was not, or not wholly, read; None if it was.
    """
    section = answer.get("kernel", {})
    if section.get("reaches_back"):
        return None
    source = f"kernel log of {respondent.title}"
    by_hand = f"on {respondent.title}: journalctl -k --since '1 hour ago'"
    if "lines" in section:
        detail = f"{section.get('read_from')} does not reach back to the death"
        return Gap(source=source, place="kernel log", reason="expired", detail=detail, remedy=by_hand)
    problems = section.get("problems") or {"probe": section.get("problem", "no answer")}
    detail = "; ".join(f"{name}: {problem}" for name, problem in dict(problems).items())[:500]
    if section.get("forbidden"):
        remedy = f"on {respondent.title}: sudo dmesg -T | grep -iE 'killed process|segfault'"
        return Gap(source=source, place="kernel log", reason="forbidden", detail=detail, remedy=remedy)
    return Gap(source=source, place="kernel log", reason="never-recorded", detail=detail, remedy=by_hand)
