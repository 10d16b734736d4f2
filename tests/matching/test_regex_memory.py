"""What the engine may take in memory."""

from __future__ import annotations

import pytest

from workerdiag.matching import regex
from workerdiag.matching.regex import pattern

re2 = pytest.importorskip("re2")


def test_what_a_pattern_learns_is_bounded():
    """A thousand patterns of 8 MiB each would be gigabytes, in a process that sees logs of many shapes."""
    assert pattern("Worker process (?P<pid>\\d+) was killed")._ascii.options.max_mem <= 2**20


@pytest.mark.slow
def test_a_pattern_too_large_for_little_memory_is_still_one():
    """A rule of somebody's own may be as large as RE2 itself takes it."""
    large = ".{1,1000}" * 20 + "x"
    with pytest.raises(re2.error):
        re2.compile(large, regex._options(regex._PATTERN_BYTES))
    assert pattern(large).search("a" * 50 + "x") is not None


def test_what_was_learnt_is_forgotten_after_much_text(monkeypatch):
    """A process that explains for weeks would hold what each pattern learnt of each log."""
    monkeypatch.setattr(regex, "_CHARS_OF_A_GENERATION", 1000)
    text, before = "x" * 600, regex.Generation.now
    for _ in range(2):
        assert pattern("was killed by signal").search(text) is None

    assert regex.Generation.now > before
    assert pattern("was killed by signal").search("it was killed by signal 9") is not None


def test_a_pattern_that_nobody_needs_again_is_not_kept():
    """A process that loads many rulebooks would keep the patterns of each."""
    pattern("of a rulebook that nobody uses any more")
    regex.Generation.begin()
    assert pattern.cache_info().currsize == 0
