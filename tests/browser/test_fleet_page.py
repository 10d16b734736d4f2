"""The page of a fleet report in a browser."""

from __future__ import annotations

import pytest

from support.fleet_rows import fleet_row
from workerdiag.triage.fleet.collect import merge_tables
from workerdiag.triage.fleet.fleet import summarize


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_nothing_is_wider_than_the_screen(seen, tmp_path, width):
    """A share stands with its interval below the cause where there is no room beside it."""
    rows = [fleet_row(number, host=f"node-{number}") for number in range(9)]
    titles = {rows[0].cause: "The nanny killed the worker: it was above its memory limit"}
    file = tmp_path / "fleet.html"
    file.write_text(summarize(merge_tables([rows]), titles, is_partial=False).to_html(), encoding="utf-8")
    seen.page.set_viewport_size({"width": width, "height": 800})
    seen.page.goto(file.as_uri())
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert (seen.requests, seen.console) == ([file.as_uri()], [])
