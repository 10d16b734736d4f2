"""How far patterns reach: what is searched as one must match as if it were searched apart."""

from __future__ import annotations

import pytest

from workerdiag.matching.patterns import is_over_lines, is_within_message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\n(?:died|killed)\b", True),
        (r"\n[^|]a|b", False),
        (r"\n[|(](?:a|b)(?:c(?:d|e))", True),
        (r"\n?a", False),
        (r"\n{0,2}a", False),
        (r"a\s+b", False),
    ],
)
def test_which_patterns_need_a_second_line(text, expected):
    """Those whose every match begins with a line end."""
    assert is_over_lines(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"killed\s+by(?m:$)", True),
        (r"(?m:^)killed [^x]", True),
        (r"(?m)^killed$", True),
        (r"(?:^|\s)killed", False),
        (r"killed$", False),
        (r"killed\Z", False),
    ],
)
def test_what_is_one_match_among_messages(text, expected):
    """A message among others begins and ends lines, not texts."""
    assert is_within_message(text) is expected
