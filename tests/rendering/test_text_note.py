"""What a person sees below the last line of a traceback."""

from __future__ import annotations

import pytest

from support.findings import explained, hostile, no_death, unknown
from workerdiag.rendering.text import render_note

EACH = {"explained": explained, "no_death": no_death, "unknown": unknown, "hostile": hostile}


def test_the_last_line_names_the_cause_and_how_sure_that_is():
    """The line next to the prompt is the answer."""
    assert render_note(explained()).splitlines() == [
        "workerdiag: Give each worker more memory: at least 5 GiB.",
        "Do not retry it as it is. More: print(workerdiag.explain(exc, client))",
        "Cause: The nanny killed the worker: above its memory limit (97%, very likely)",
    ]


@pytest.mark.parametrize("name", EACH)
def test_a_note_is_at_most_three_lines_of_ascii(name):
    """Whatever a diagnosis holds, no terminal, log or tracker chokes on its note."""
    lines = render_note(EACH[name]()).split("\n")
    assert len(lines) <= 3
    assert all(line.isascii() and line.isprintable() and len(line) <= 200 for line in lines)


def test_an_unknown_cause_is_said_to_be_unknown():
    """Where no cause is sure, the last line says so."""
    assert render_note(unknown()).splitlines()[-1].startswith("Unknown: ")
