"""The documentation site, as `nox -s docs` leaves it in build/site."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

SITE = Path(__file__).parents[2] / "build" / "site"
#: One of each kind: landing page, picture, folded answers, definitions, generated, API, wide tables, code.
PAGES = (
    "index",
    "tutorial",
    "faq",
    "configuration",
    "causes/nanny/memory-terminate",
    "docstrings",
    "sources",
)

pytestmark = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="nox -s docs builds the site")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_no_other_host_and_has_no_error(name, seen):
    """All that a page loads lies beside it, and the browser has nothing to complain of."""
    seen.page.goto((SITE / f"{name}.html").as_uri())
    seen.page.wait_for_timeout(500)  # a script may still ask; that a network is idle is not always reported
    assert seen.requests
    assert [each for each in seen.requests if not each.startswith(("file:", "data:"))] == []
    assert seen.console == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_fits_its_window(name, width, page):
    """Nobody has to scroll sideways, on a phone or on a desk."""
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((SITE / f"{name}.html").as_uri())
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") <= 0


@pytest.mark.parametrize("name", ["index", "faq", "causes/nanny/memory-terminate", "sources"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_can_be_read_by_everyone(name, scheme, page):
    """Nothing serious is wrong with our part of a page, light or dark, as axe sees it: contrast, names, keyboard."""
    page.emulate_media(color_scheme=scheme)
    page.goto((SITE / f"{name}.html").as_uri())
    found = Axe().run(page, context=".bd-article", options={"iframes": False})
    problems = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
    assert problems == [], found.generate_report()
