"""A page of a real browser: Debian's Chromium, driven by Playwright, with what it asks for and complains of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

#: Milliseconds to wait for a page, as a busy machine may need.
PATIENCE_MS = 100_000
#: A browser that asks nobody but the page's own server.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Seen:
    """A page, with the addresses it asked for and the errors and warnings on its console."""

    page: Page
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests; without one they are skipped."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def seen(chromium: Browser) -> Iterator[Seen]:
    """A new page of 1280 by 800 pixels."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    seen = Seen(context.new_page())
    seen.page.set_default_timeout(PATIENCE_MS)
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on(
        "console",
        lambda message: message.type in {"error", "warning"} and seen.console.append(message.text),
    )
    seen.page.on("pageerror", lambda error: seen.console.append(str(error)))
    yield seen
    context.close()


@pytest.fixture
def page(seen: Seen) -> Page:
    """The page of `seen`."""
    return seen.page
