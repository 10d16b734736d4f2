"""The output of workerdiag in a test with real deaths, to show if the test fails."""

from __future__ import annotations

import pytest

_TEXTS = pytest.StashKey[list[str]]()


def reported_texts(test: pytest.Item) -> list[str]:
    """Return the list of texts of a test, to append to."""
    return test.stash.setdefault(_TEXTS, [])


def show_if_failed(test: pytest.Item, report: pytest.TestReport) -> bool:
    """Add the output to the report of a failure. Return whether the report is a failure."""
    failed = report.when == "call" and report.failed
    if failed:
        report.sections += [("workerdiag said", text) for text in reported_texts(test)]
    return failed
