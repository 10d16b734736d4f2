"""Whose log it is: which words look like loggers of Dask's processes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from workerdiag.matching.other_lines import _logger_words

PIECES = st.sampled_from([b"distributed", b"dask", b"_", b".worker", b"tornado", b" ", b"\n", b"x", b"dis", b"d"])


@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_words_are_found_as_one_pattern_finds_them(head):
    """Searched for by their beginnings, one by one: the same words at the same places, in order."""
    wanted = re.finditer(rb"(?:distributed|tornado|dask_?)[\w.]*", head)
    assert list(_logger_words(head)) == [(word.start(), word[0]) for word in wanted]
