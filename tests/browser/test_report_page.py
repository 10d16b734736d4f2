"""The page of a diagnosis, as a reader has it: any width, light and dark, by keyboard and by ear."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from support.findings import (
    NOON_ISH,
    drawn,
    explained,
    history,
    hostile,
    no_death,
    several_victims,
    unknown,
)
from workerdiag.model.timeline import TaskSpan, Timeline
from workerdiag.rendering.html import render_html

BUILDS = [drawn, several_victims, explained, unknown, no_death, hostile]
WIDTHS = [360, 800, 1600]
#: A browser on a machine that is busy with other tests is slow; a person expects 200 ms.
PATIENCE_MS = 10_000


@pytest.fixture
def show(seen, tmp_path):
    """Opens a report in the browser; returns the page."""

    def show(findings, *, page=True):
        file = tmp_path / "report.html"
        body = render_html(findings, page=page)
        file.write_text(body if page else f"<!doctype html><title>Host</title>{body}", encoding="utf-8")
        seen.page.goto(file.as_uri())
        assert seen.requests == [file.as_uri()]
        assert seen.console == []
        return seen.page

    return show


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("build", BUILDS)
def test_a_screen_reader_and_weak_eyes_can_read_it(show, seen, build, scheme):
    """Axe finds no violation, neither on light nor on dark."""
    seen.page.emulate_media(color_scheme=scheme)
    page = show(build())
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    result = Axe().run(page)
    assert result.response["violations"] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("build", BUILDS)
def test_nothing_is_wider_than_the_screen(show, seen, build, width):
    """From a phone to a large screen nobody scrolls sideways."""
    seen.page.set_viewport_size({"width": width, "height": 800})
    page = show(build())
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def seen_once():
    """As `drawn`, with a single sample, which is drawn as bars."""
    return drawn(timeline=Timeline(histories=(history(samples=history().samples[-1:]),)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("build", [drawn, seen_once, several_victims])
def test_no_text_of_a_drawing_leaves_it_or_touches_another(show, seen, build, width):
    """Labels stay readable: each within the screen, none on top of another, on every width."""
    seen.page.set_viewport_size({"width": width, "height": 800})
    page = show(build())
    boxes = page.evaluate(
        """[...document.querySelectorAll(".wd-chart .wd-drawing > text")].map(text => {
            const box = text.getBoundingClientRect();
            return [text.textContent, box.left, box.top, box.right, box.bottom];
        })"""
    )
    assert boxes
    for number, (text, left, top, right, bottom) in enumerate(boxes):
        assert left >= 0, text
        assert right <= width, text
        for other, *box in boxes[number + 1 :]:
            apart = box[0] >= right or box[2] <= left or box[1] >= bottom - 2 or box[3] <= top + 2
            assert apart, (text, other)


def test_the_answer_is_on_the_first_screen_of_a_phone(show, seen):
    """What happened, how sure that is and what to do now need no scrolling."""
    seen.page.set_viewport_size({"width": 360, "height": 740})
    page = show(explained())
    box = page.locator(".wd-now p").first.bounding_box()
    assert box["y"] + box["height"] <= 740


def test_a_picture_of_the_whole_page_shows_all_of_it(show):
    """What is below the screen is laid out soon after the first picture."""
    page = show(drawn())
    page.locator("html:not(.wd-later)").wait_for(timeout=PATIENCE_MS)
    assert page.evaluate(
        "[...document.querySelectorAll('section p, section li')].every(each =>"
        " each.checkVisibility({contentVisibilityAuto: true}) || each.closest('details:not([open])'))"
    )


def test_a_command_is_copied_by_keyboard(show, seen):
    """The button is reached with the tab key and works on enter."""
    page = show(explained())
    page.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Copied").wait_for(timeout=PATIENCE_MS)
    assert page.evaluate("window.copied") == "dask worker --memory-limit 5GiB"


def test_without_script_everything_is_there_but_the_buttons(chromium, tmp_path):
    """A mail program or a strict proxy takes the script away, and no dead button is left."""
    file = tmp_path / "report.html"
    file.write_text(render_html(drawn(), page=True), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert "dask worker --memory-limit 5GiB" in page.locator("body").inner_text()
    assert not page.locator(".wd-copy").first.is_visible()
    context.close()


def test_a_fragment_in_a_page_of_others_is_readable(show, seen):
    """In a notebook's output, light or dark, axe finds nothing in the fragment."""
    result = Axe().run(show(drawn(), page=False), context=".workerdiag")
    assert result.response["violations"] == []


def test_it_is_shown_at_once(show, seen):
    """The first paint comes soon; `benchmarks/page_paint.py` measures how soon, as a busy machine is no fault of it."""
    page = show(drawn())
    paint_ms = page.evaluate(
        """new Promise(resolve => new PerformanceObserver(list => {
            const paint = list.getEntriesByName("first-contentful-paint")[0];
            if (paint) { resolve(paint.startTime); }
        }).observe({type: "paint", buffered: true}))"""
    )
    assert paint_ms < PATIENCE_MS


def test_no_column_of_a_table_is_cut_off_on_paper(show, seen):
    """Nobody scrolls there: keys of tasks break, as they are long."""
    task = TaskSpan(key=f"load-{'0123456789abcdef' * 4}", thread="Dask-Default-Threads-4711-0", started_at=NOON_ISH)
    seen.page.set_viewport_size({"width": 700, "height": 1000})  # of A4, within its margins
    seen.page.emulate_media(media="print")
    page = show(drawn(timeline=Timeline(histories=(history(tasks=(task,)),))))
    hidden = "boxes => boxes.map(each => each.scrollWidth - each.clientWidth)"
    assert max(page.locator(".wd-scroll").evaluate_all(hidden)) <= 1


def test_it_prints_whole(show, seen):
    """On paper there are no buttons, and what is folded on a screen is there, without the marker of a fold."""
    seen.page.emulate_media(media="print")
    page = show(drawn())
    assert page.get_by_text("Make the chunks smaller.").bounding_box()["height"] > 0
    folded = page.get_by_text("What else to do")
    assert folded.evaluate("summary => getComputedStyle(summary).listStyleType") == "none"
    assert not page.locator(".wd-copy").first.is_visible()
    assert page.locator(".wd-chart").first.is_visible()
