"""Messages in a piece of a log: which one a place is in depends on the text alone."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from workerdiag.matching import messages
from workerdiag.matching.messages import LogRecord, LogWindow
from workerdiag.matching.regex import SearchWork

HEADER = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - restarting"
PLAIN = st.sampled_from(["Killed", "", "  File", "x" * 60, "a b 12:30"])
LINES = st.sampled_from([HEADER, f"w-1 | {HEADER}", "w-1 | Killed", "Killed", "", "  File", "x" * 60, "y" * 5000])


def shown(record: LogRecord) -> tuple[str, list[int]]:
    """What tells one message from another."""
    return record.text, list(record.line_offsets)


@example(["Killed", "w-1 | Killed"], [10, 0])
@example(["w-1 | Killed", f"w-1 | {HEADER}", "x" * 60, "x" * 60, "w-1 | Killed", "w-1 | Killed"], [218, 205])
@given(st.lists(LINES, min_size=1, max_size=40), st.lists(st.integers(0, 2**16), max_size=30))
def test_a_message_is_the_same_in_whatever_order_places_are_asked_for(lines, places):
    """Forwards, backwards, or here and there, over headers, other programs' lines, tiles and overlong lines."""
    data = "\n".join(lines).encode() + b"\n"
    with patch.multiple(messages, BEFORE_BYTES=200, AFTER_BYTES=300, TILE_BYTES=150):
        window = LogWindow(data, 70, SearchWork())
        for place in (place % len(data) for place in places):
            alone = LogWindow(data, 70, SearchWork()).record_at(place)
            assert shown(window.record_at(place)) == shown(alone)


@given(st.lists(PLAIN | PLAIN | PLAIN | LINES, min_size=1, max_size=40), st.integers(0, 2**16), st.integers(0, 500))
def test_plain_text_without_headers_is_the_message_of_its_tile(lines, place, base):
    """What the bytes alone say to be the message of all lines of a tile is what a closer look finds for each."""
    data = "\n".join(lines).encode() + b"\n"
    start = data.rfind(b"\n", 0, place % len(data)) + 1
    with patch.multiple(messages, BEFORE_BYTES=200, AFTER_BYTES=300, TILE_BYTES=150, LONGEST_LINE=1000):
        window = LogWindow(data, base, SearchWork())
        end, text = window.plain_tile(start)
        assert start < end
        for at in range(start, end if text is not None else start):
            record = window.record_at(at)
            assert (record.text.encode(), record.header) == (text, None)
