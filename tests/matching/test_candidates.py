"""A line that is a message by its bytes alone is the message that a closer look would find."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workerdiag.matching import candidates
from workerdiag.matching.candidates import find_candidates
from workerdiag.matching.log_lines import parse_line
from workerdiag.matching.messages import LogWindow
from workerdiag.matching.patterns import END_REPORTS_PER_END
from workerdiag.matching.prefilter import LiteralHits
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.scan import Matcher
from workerdiag.model.evidence import LogChunk
from workerdiag.rulebook.load import load_rulebook

GOOD = "2026-05-04 11:22:33,444"
ODD = (
    "2026-02-30 11:22:33,444",
    "2024-02-29 23:59:59,000",
    "2026-13-01 00:00:00,000",
    "2026-04-31 11:22:33,444",
    "2026-05-04 24:00:00,000",
    "0000-01-01 00:00:00,000",
    "11:22:33,444",
    "",
)
TIMES = st.just(GOOD) | st.sampled_from([GOOD, *ODD])
LOGGERS = st.sampled_from(["distributed.nanny", "my.app", "a b", "a&lt;b", "a&#32;b", "caf\xe9", "distributed-x"])
LEVELS = st.sampled_from(["INFO", "WARNING", "TRACE", "info"])
PIECES = [*'Killed by9 -&;{}"\\\t\r\x00', "\x1b[0m", "\u2019", "\xe9", "&lt;", " - "]
MESSAGES = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
MORE = st.sampled_from(
    [
        "Key:       a",
        "State: executing",
        'Exception: "KeyError(1)"',
        "Traceback: 'x'",
        '  File "a.py", line 1',
        "Key: INFO distributed.x - ",
    ]
)
LINES = st.builds(lambda *parts: " - ".join(parts), TIMES, LOGGERS, LEVELS, MESSAGES) | MESSAGES | MORE
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n" + "x" * 9000 + "\n"])


def _hits_at(offsets: Iterable[int]) -> LiteralHits:
    """One literal ends at each of *offsets*."""
    return LiteralHits(list(offsets), literal_count=1, searched_bytes=0)


def _window(data: bytes) -> LogWindow:
    return LogWindow(data, 0, SearchWork())


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(LINES, ENDS), max_size=12))
def test_a_line_known_by_its_bytes_is_the_whole_message(lines):
    """Of whatever dates, loggers, line ends and neighbours: the text, its header and its bounds are the same."""
    data = "".join(line + end for line, end in lines).encode()
    hits = _hits_at(at for at, char in enumerate(data) if char != ord("x"))
    block = _window(data)
    for spot in find_candidates(block, 0, hits, lambda *_: ("Killed",)):
        if spot.message is not None:
            record = block.record_at(spot.at)
            assert record.text.encode() == spot.message
            assert (spot.start is None) is (record.header is None)
            assert not spot.is_line or block.record_of_line(spot.start) is record
            assert spot.is_line or spot.start is None or len(record.lines) > 1


def test_most_lines_of_distributed_are_known_by_their_bytes():
    """So that a worker that dies ten thousand times is quick to look through."""
    line = b"2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7012 was killed by signal 9\n"
    data = line * 3 + b"2026-05-04 11:22:33"
    [one, two, last] = find_candidates(
        _window(data), 0, _hits_at(len(line) * each + 80 for each in range(3)), lambda *_: ("x",)
    )
    [end] = find_candidates(_window(line), 0, _hits_at([80]), lambda *_: ("x",))

    assert one.message == two.message == end.message == parse_line(line.rstrip()).message.encode()
    assert last.message is None  # who knows what follows


@pytest.mark.slow
def test_only_messages_that_stay_are_put_together():
    """Of thousands alike the first and the last are kept, and the others are searched as they stand."""
    line = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process {} was killed by signal 9\n"
    data = "".join(line.format(number) for number in range(10_000, 20_000)).encode()
    done = SearchWork()
    found = list(Matcher(load_rulebook()).matches([LogChunk(origin="a.log", data=data)], work=done))

    assert len([each for each in found if each.owner == "nanny.killed-by-signal"]) == 2 * END_REPORTS_PER_END
    assert done.line_bytes < 3 * END_REPORTS_PER_END * len(line)


def test_text_without_headers_is_searched_as_it_stands():
    """Of a hundred thousand tiny lines with a literal in each, few are taken apart once there is plenty of the sign."""
    data = b"".join(b"Killed %d\n" % number for number in range(100_000))
    done = SearchWork()
    list(Matcher(load_rulebook()).matches([LogChunk(origin="a.log", data=data)], work=done))

    assert done.line_bytes < len(data) / 4
    assert done.runs < 10_000


@pytest.mark.slow
def test_line_ends_cost_little_memory():
    """A text of nothing but line ends is of messages with thousands of lines each, which overlap."""
    data = (b"\n" * 4000 + b"Killed\n") * 12
    matcher = Matcher(load_rulebook())
    list(matcher.matches([LogChunk(origin="a.log", data=b"Killed\n")]))
    tracemalloc.start()
    try:
        list(matcher.matches([LogChunk(origin="a.log", data=data)]))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_bytes < 180 * len(data)


def test_a_line_without_an_end_is_read_once(monkeypatch):
    """A line of 240 kB with 3,000 hits was read anew for each: 18 seconds, whatever the time that was given."""
    line = f"{GOOD} - distributed.nanny - INFO - ".encode() + b"Killed by it; " * 17_000
    hits = _hits_at(range(40, len(line), 80))
    read_bytes = []

    class Counting:
        """As the compiled pattern."""

        def match(self, _data: bytes, start: int, end: int) -> None:
            """Nothing, and how much it may have read."""
            read_bytes.append(end - start)

    monkeypatch.setattr(candidates, "_MESSAGE", Counting())
    found = list(find_candidates(_window(line), 0, hits, lambda *_: ("Killed",)))
    assert [(each.at, each.message) for each in found] == [(at, None) for at in hits.packed]
    assert sum(read_bytes) < 10_000
