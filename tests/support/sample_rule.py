"""A correct rule file of a company's own pack."""

from __future__ import annotations

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
