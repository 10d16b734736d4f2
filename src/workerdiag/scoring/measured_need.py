"""Findings with the memory that was measured in a replay, in the place of what was worked out from the death."""

from __future__ import annotations

from typing import TypeVar

from attrs import evolve

from workerdiag.model.diagnosis import Findings, RetryPolicy
from workerdiag.model.memory import Cure, MemoryTerm
from workerdiag.model.replay import MeasuredNeed
from workerdiag.model.vocabulary import Deployment
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.cures import cure_advice, measured_cures
from workerdiag.units import format_limit

_F = TypeVar("_F", bound=Findings)


def with_measured_need(findings: _F, measured: MeasuredNeed, deployment: Deployment | None) -> _F:
    """The findings with that need in the decision, the memory account and the cures."""
    account, task = findings.memory, redact_object(measured.task)[:100]
    limit = account.limit.bytes if account is not None else None
    cures = redact_object(measured_cures(findings.cures, measured, limit, deployment))
    if account is not None:
        account = evolve(account, measured=MemoryTerm(bytes=measured.task_bytes, origin=f"replay of task {task}"))
    advice = tuple(map(cure_advice, cures))
    causes = tuple(
        evolve(each, mitigations=(*advice, *each.mitigations[len(findings.cures) :]))
        for each in findings.causes[:1]
    )
    decision = evolve(
        findings.decision,
        needs_memory_bytes=measured.memory_bytes,
        needs_memory_lower_bound_bytes=None,
        policy=_policy(findings.decision.policy, next(each for each in cures if each.kind == "worker-memory")),
    )
    return evolve(findings, memory=account, cures=cures, causes=(*causes, *findings.causes[1:]), decision=decision)


def _policy(policy: RetryPolicy, enough: Cure) -> RetryPolicy:
    """The policy, with enough memory where a program may act: then the work finishes."""
    value = enough.value
    if policy.action not in ("retry-with-memory", "do-not-retry") or value is None:
        return policy
    return evolve(
        policy,
        action="retry-with-memory",
        reason="a replay measured how much memory the same work needs",
        conditions=(f"Each worker that may run it needs at least {format_limit(value)}.",),
        memory_bytes=value,
        max_tries=1,
    )
