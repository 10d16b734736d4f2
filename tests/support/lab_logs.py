"""
What workerdiag said in a test with real deaths, to be shown where the test fails.
"""

from __future__ import annotations

import pytest

_TEXTS = pytest.StashKey[list[str]]()


def reported_texts(test: pytest.Item) -> list[str]:
    """
    The texts of a test, to which more are added.
    """
    return test.stash.setdefault(_TEXTS, [])


def show_if_failed(test: pytest.Item, report: pytest.TestReport) -> bool:
    """
    Add what was said to the report of a failure; whether it is one.
    """
    failed = report.when == "call" and report.failed
    if failed:
        report.sections += [("workerdiag said", text) for text in reported_texts(test)]
    return failed
