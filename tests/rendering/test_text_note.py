"""What a person sees below the last line of a traceback."""

from __future__ import annotations

import pytest

from support.findings import explained, hostile, no_death, unknown
from workerdiag.rendering.text import render_note

EACH = {"explained": explained, "no_death": no_death, "unknown": unknown, "hostile": hostile}


def test_a_note_says_what_happened_then_what_to_do_then_whether_to_retry():
    """Who reads from the top knows the cause and how sure it is before any advice."""
    assert render_note(explained()).splitlines() == [
        "workerdiag: Cause: The nanny killed the worker: above its memory limit (97%, very likely)",
        "Do now: Give each worker more memory: at least 5 GiB.",
        "Do not retry it as it is. More: print(workerdiag.explain(exc, client))",
    ]


@pytest.mark.parametrize("name", EACH)
def test_a_note_is_at_most_three_lines_of_ascii(name):
    """Whatever a diagnosis holds, no terminal, log or tracker chokes on its note."""
    lines = render_note(EACH[name]()).split("\n")
    assert len(lines) <= 3
    assert all(line.isascii() and line.isprintable() and len(line) <= 200 for line in lines)


def test_an_unknown_cause_is_said_to_be_unknown():
    """Where no cause is sure, the first line says so."""
    assert render_note(unknown()).startswith("workerdiag: Unknown: ")
