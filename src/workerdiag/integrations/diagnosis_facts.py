"""A diagnosis as a few named plain values, for tags, attributes and properties of other programs."""

from __future__ import annotations

from workerdiag.model.diagnosis import Findings
from workerdiag.scoring.retry_policy import SURE_ENOUGH_TO_ACT


def facts(findings: Findings) -> dict[str, str | int | float]:
    """Return the conclusion by short names. Unknown values are left out."""
    top, decision = findings.top, findings.decision
    known = {
        "outcome": findings.outcome,
        "summary": findings.summary,
        "cause": top.id if top else None,
        "family": top.family if top else None,
        "probability": round(top.probability, 3) if top else None,
        "blame": findings.blame.verdict,
        "action": decision.policy.action,
        "memory_bytes": decision.policy.memory_bytes,
        "deaths": findings.death_count,
        "fingerprint": findings.fingerprint or None,
        "knowledge": findings.knowledge or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def is_answer(findings: Findings) -> bool:
    """Whether anything died or stands still, or may have."""
    return findings.outcome in ("explained", "unknown")


def is_sure(findings: Findings) -> bool:
    """Whether its cause is likely enough for automatic action."""
    top = findings.top
    return findings.outcome == "explained" and top is not None and top.probability >= SURE_ENOUGH_TO_ACT
