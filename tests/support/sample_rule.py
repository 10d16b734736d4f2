"""A correct rule file of a company's own pack, and rules like it as objects."""

from __future__ import annotations

from workerdiag.model.rules import Cause, LogSign

RULE = """
id = "house.rule"
revision = 1
title = "A rule of this house"
why = "Because."
ends = "killed"
blame = "operator"
retry = "safe"

[[sign]]
kind = "log"
name = "said"
pattern = 'the house fell on (?P<worker>\\w+://\\S+)'
grade = "decisive"
seen = ["distributed.worker - INFO - the house fell on tcp://10.0.0.4:4002"]
"""


def house_rule(name: str, pattern: str, grade: str = "strong", **changes: object) -> Cause:
    """A cause that one sentence shows."""
    arguments = {
        "id": name,
        "revision": 1,
        "title": "A rule of this house",
        "why": "Because.",
        "ends": "killed",
        "blame": "operator",
        "retry": "safe",
        "signs": (LogSign(name="said", pattern=pattern, grade=grade, seen=(pattern,)),),
    }
    return Cause(**(arguments | changes))
