"""Excerpts of one log that were kept for several deaths."""

from __future__ import annotations

from workerdiag.incidents import merge_log_excerpts
from workerdiag.model.evidence import Event, LogChunk

HEAD = "2026-11-21 10:02:0{},000 - distributed.nanny - INFO - "
FIRST, SECOND, THIRD = (HEAD.format(number) + f"number {number}\n" for number in (1, 2, 3))


def excerpt(*records, origin="nanny log"):
    """A part of the log."""
    return LogChunk(origin=origin, data="".join(records).encode(), stream="nanny")


def test_excerpts_of_one_log_become_one():
    """Each record is there once, in order; another log and other evidence stay as they are, where they are."""
    other, event = excerpt(FIRST, origin="another log"), Event(topic="x")
    pieces = [excerpt(FIRST, THIRD), event, other, excerpt(FIRST, SECOND + "  goes on\n")]
    assert merge_log_excerpts(pieces) == [excerpt(FIRST, SECOND + "  goes on\n", THIRD), event, other]


def test_what_a_log_says_twice_in_one_moment_stays_twice():
    """As often as in the excerpt that has it most."""
    assert merge_log_excerpts([excerpt(FIRST, FIRST), excerpt(FIRST)]) == [excerpt(FIRST, FIRST)]


def test_a_text_without_the_times_of_records_is_no_excerpt():
    """It stays as it is, however often it is given."""
    pieces = [excerpt("Fatal Python error\n"), excerpt("Fatal Python error\n")]
    assert merge_log_excerpts(pieces) == pieces
