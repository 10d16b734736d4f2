"""Causes are found by the words that people use."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import workerdiag
from workerdiag.cli import main
from workerdiag.rulebook.load import search_causes

BOOK = workerdiag.load_rulebook(packs=False)


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("segmentation fault", "signal.segfault"),
        (
            "Worker tcp://10.0.0.1:4002 (pid=7) exceeded 95% memory budget. Restarting...",
            "nanny.memory-terminate",
        ),
        ("spot instance reclaimed", "spot"),
        ("signal.segfault", "signal.segfault"),
        ("silence_logs", "external.sigkill"),
        ("coredumpctl", "signal.segfault"),
    ],
)
def test_words_find_the_cause(query, cause):
    """Everyday words, a line of a log, an id, what advice says that many causes share."""
    assert any(cause in each.id for each in search_causes(BOOK, query, most=3))


@pytest.mark.parametrize("query", ["", "?", "xyzzyplugh", "\x1b[31m"])
def test_nothing_is_found_by_nothing(query):
    """No word, no cause."""
    assert search_causes(BOOK, query) == ()


def test_the_command_lists_ids():
    """Which `workerdiag knowledge show` takes."""
    result = CliRunner().invoke(main, ["knowledge", "search", "segmentation", "fault"])
    assert result.exit_code == 0
    assert "signal.segfault" in result.output
    assert CliRunner().invoke(main, ["knowledge", "search", "xyzzyplugh"]).exit_code == 1
