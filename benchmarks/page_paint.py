"""When Chromium shows the page of a report: of each incident of tests/cases, from opening it to the first text.

    python benchmarks/page_paint.py [--times 3]

Each page is opened in a new tab of 390 by 844 pixels, as on a phone. A page with one line shows what the
browser itself takes. A busy machine makes every page late, so each counts with its best time: look at that
line first, and at the processor time of the page's main thread, which a heavy page takes on any machine.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles

from playwright.sync_api import Browser, sync_playwright
from rows import Row, publish

import workerdiag
from workerdiag.authoring.rule_tests import explain_logs, read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.rendering.html import render_html

CASES = Path(__file__).parents[1] / "tests" / "cases"
#: For each page: what a person does not notice.
GOAL_MS = 200.0
ONE_LINE = "<!doctype html><title>One line</title><p>One line"
#: A browser that asks nobody.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
SHOWN = """new Promise(done => new PerformanceObserver(list => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({type: "paint", buffered: true}))"""


def rows(times: int) -> Iterator[Row]:
    """The browser's own time, and that of the reports."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        texts = pages()
        files = {name: _written(Path(folder, f"{name}.html"), text) for name, text in texts.items()}
        line = _written(Path(folder, "line.html"), ONE_LINE)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS, timeout=120_000
        )
        shown_ms(browser, line)  # the first tab waits for the browser
        line_ms, line_work_ms = _medians(shown_ms(browser, line) for _ in range(10))
        both_ms = {name: _best(shown_ms(browser, file) for _ in range(times)) for name, file in files.items()}
        browser.close()
    taken_ms = {name: shown for name, (shown, _) in both_ms.items()}
    work_ms = {name: work for name, (_, work) in both_ms.items()}
    heaviest = max(work_ms, key=work_ms.__getitem__)
    late = {name: each for name, each in taken_ms.items() if each > GOAL_MS}
    slowest = max(taken_ms, key=taken_ms.__getitem__)
    yield Row(what="one line is shown after, median", measured=line_ms, unit="ms")
    yield Row(what=f"{len(taken_ms)} reports: median", measured=median(taken_ms.values()), unit="ms")
    yield Row(what="nine of ten within", measured=quantiles(taken_ms.values(), n=10)[-1], unit="ms")
    yield Row(what=f"slowest, {slowest}", measured=taken_ms[slowest], unit="ms", goal=GOAL_MS)
    yield Row(what=f"later than {GOAL_MS:.0f} ms", measured=len(late), unit="", goal=0)
    yield Row(what="main thread's work for one line, median", measured=line_work_ms, unit="ms")
    yield Row(what="main thread's work for a report, median", measured=median(work_ms.values()), unit="ms")
    yield Row(what=f"most work, {heaviest}", measured=work_ms[heaviest], unit="ms", goal=GOAL_MS)
    yield Row(what="largest", measured=max(map(len, texts.values())) / 1e3, unit="kB", goal=300)


def pages() -> Mapping[str, str]:
    """The page of each incident, by its name."""
    book = workerdiag.load_rulebook(packs=False)
    matcher = Matcher(book)
    return {
        each.name: render_html(explain_logs(each.logs, book, matcher), page=True) for each in read_incidents(CASES)
    }


def shown_ms(browser: Browser, file: Path) -> tuple[float, float]:
    """First contentful paint in a new tab after the page was asked for, and the main thread's processor time."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri())
    shown: float = page.evaluate(SHOWN)
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    page.close()
    return shown, found["TaskDuration"] * 1e3


def _best(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The least of each: other programs only add to it."""
    shown, work = zip(*pairs, strict=True)
    return min(shown), min(work)


def _medians(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    shown, work = zip(*pairs, strict=True)
    return median(shown), median(work)


def _written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


if __name__ == "__main__":
    publish(rows(int(sys.argv[sys.argv.index("--times") + 1]) if "--times" in sys.argv else 3))
