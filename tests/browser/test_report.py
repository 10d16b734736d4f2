"""The report as a page, in a real browser."""

from __future__ import annotations

import workerdiag
from workerdiag import LogText

LOG = "2025-06-01 12:00:00,000 - distributed.nanny - INFO - Worker process 4711 was killed by signal 11\n"


def test_the_page_asks_for_nothing_and_complains_of_nothing(seen, tmp_path):
    """The report is one file: no request but its own, no error on the console."""
    report = tmp_path / "report.html"
    report.write_text(workerdiag.explain(logs=[LogText(LOG, stream="nanny")]).to_html(), encoding="utf-8")
    seen.page.goto(report.as_uri())
    assert "segmentation fault" in seen.page.inner_text("body").lower()
    assert seen.requests == [report.as_uri()]
    assert seen.console == []
