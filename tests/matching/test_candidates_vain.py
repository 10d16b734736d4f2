"""Candidates in vain: passing over them together loses nothing."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from workerdiag.matching import candidates
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.rulebook.load import load_rulebook

BOOK = load_rulebook()
MATCHER = Matcher(BOOK)
TIME = "2026-05-04 11:22:33,444"
SEEN = sorted({line for _, _, rule in BOOK.log_rules() for line in (*rule.seen, *rule.lookalikes)})
#: What others put around a line, and what copying makes of it.
DRESSED = (
    "{}",
    f"{TIME} - distributed.scheduler - INFO - {{}}",
    "w-1 | {}",
    "INFO:distributed.nanny:{}",
    "\x1b[31m{}\x1b[0m\r",
    '{{"log": "{}\\n", "stream": "stderr"}}',
    "&quot;{}&quot;",
    f"{TIME} - distributed.worker - ERROR - Compute Failed\nException: {{}}",
)
MESSAGES = st.tuples(st.sampled_from(DRESSED), st.sampled_from(SEEN), st.integers(1, 4))
REMOVED = f"{TIME} - distributed.scheduler - INFO - Remove worker addr: tcp://10.0.0.4:{{}} name: {{}}\n"


def found(data: bytes, least_together: int) -> list[Match]:
    """The matches where so many similar candidates are searched together."""
    with patch.object(candidates, "_LEAST_TOGETHER", least_together):
        return list(MATCHER.matches([LogChunk(origin="a.log", data=data)]))


@settings(max_examples=40, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=12))
def test_nothing_that_matches_is_passed_over(messages):
    """Whatever stands around the lines that the rules were written for: all that matches is found."""
    data = "".join((shape.format(line) + "\n") * times for shape, line, times in messages).encode()
    assert found(data, 1) == found(data, 10**9)


def test_a_literal_in_vain_costs_next_to_nothing():
    """Of ten thousand lines with the literal of a pattern that matches none of them, none is taken apart for it."""
    data = "".join(REMOVED.format(number, number) for number in range(10_000)).encode()
    work = SearchWork()
    list(MATCHER.matches([LogChunk(origin="a.log", data=data)], work=work))

    assert work.runs < 100


def test_once_there_is_plenty_of_a_sign_its_lines_are_passed_over():
    """What nannies say when they restart a worker has a literal of a pattern that may reach over lines."""
    data = f"{TIME} - distributed.nanny - WARNING - Restarting worker\n".encode() * 10_000
    work = SearchWork()
    list(MATCHER.matches([LogChunk(origin="a.log", data=data)], work=work))

    assert work.runs < 3_000


def test_what_goes_over_lines_is_not_looked_for_in_a_message_of_one():
    """What a healthy worker says of its event loop has a literal of patterns that need a second line."""
    line = f"{TIME} - distributed.core - INFO - Event loop was unresponsive in Worker for 3.1s\n"
    work = SearchWork()
    list(MATCHER.matches([LogChunk(origin="a.log", data=line.encode() * 10_000)], work=work))

    assert work.runs < 4_000
