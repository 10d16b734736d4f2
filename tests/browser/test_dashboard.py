"""The page of deaths in Dask's dashboard: real workers die, and a real browser shows why."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from urllib.request import urlopen

import dask
import pytest
from axe_playwright_python.sync_playwright import Axe
from distributed import Client, LocalCluster

pytest.importorskip("bokeh")

#: Seconds, and milliseconds, until a death is judged and shown on a busy machine.
PATIENCE_S = 300
PATIENCE_MS = 1000 * PATIENCE_S
NAME = "<script>document.title = 'hacked'</script>"

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """The address of the dashboard of a cluster in which two workers have died, each of another cause."""

    def crash():  # here, so that it travels to the worker: its module does not
        time.sleep(2)  # the recorder takes a sample each second
        ctypes.string_at(0)

    preload = ["workerdiag.recorder.preload"]
    settings = {f"distributed.{each}.preload": preload for each in ("scheduler", "nanny", "worker")}
    settings |= {
        "distributed.scheduler.allowed-failures": 0,
        "temporary-directory": str(tmp_path_factory.mktemp("dask")),
    }
    settings["workerdiag.recorder.directory"] = str(tmp_path_factory.mktemp("boxes"))
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", name=NAME, memory_limit="1GiB"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        crashed = client.submit(crash, key="crash-<b>bold</b>")
        assert crashed.exception(timeout=PATIENCE_S) is not None
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        yield cluster.dashboard_link.removesuffix("/status")


def open_page(seen, dashboard, path="deaths"):
    """The page once both deaths are on it."""
    seen.page.goto(f"{dashboard}/{path}")
    seen.page.locator("#deaths-rows tr").nth(1).wait_for(timeout=PATIENCE_MS)
    return seen.page


def test_deaths_appear_by_themselves(seen, dashboard):
    """Both deaths come onto an open page, each with its cause; nothing is asked of other hosts, nothing complains."""
    page = open_page(seen, dashboard)
    rows = page.locator("#deaths-rows").inner_text()
    assert "Segmentation fault" in rows
    assert "SIGKILL" in rows
    assert page.locator("#deaths-headline").inner_text() == "2 workers died unexpectedly, in 2 cases."
    assert page.locator(".navbar a[href='deaths']").inner_text() == "Deaths"
    assert all(url.startswith(dashboard) for url in seen.requests)
    assert seen.console == []


def test_the_memory_of_victims_is_drawn(seen, dashboard):
    """A curve for each victim; the button of a row leaves the curves of its victims."""
    page = open_page(seen, dashboard)
    assert page.locator("#deaths-drawing polyline").count() == 2
    assert "limit 1 GiB" in page.locator("#deaths-drawing").text_content()
    page.get_by_role("button").first.click()
    assert page.locator("#deaths-drawing polyline").count() == 1
    page.get_by_role("button").first.click()
    assert page.locator("#deaths-drawing polyline").count() == 2


def test_a_row_opens_its_report(seen, dashboard):
    """The report of the crash opens in a tab of its own, and complains of nothing."""
    page = open_page(seen, dashboard)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Segmentation fault").click()
    report = opened.value
    complaints = []
    report.on("console", lambda message: complaints.append(message.text))
    report.reload()
    assert "Segmentation fault" in report.locator("body").inner_text()
    assert complaints == []


def test_hostile_names_stay_text(seen, dashboard):
    """A worker whose name is a script is shown with that name."""
    page = open_page(seen, dashboard)
    hostile = {"worker": NAME, "name": "<img src=x onerror=\"document.title = 'hacked'\">", "when": 1.0}

    def answer(route):
        reply = json.loads(route.fetch().text())
        reply["cases"][0] |= {"title": NAME, "blame": NAME, "workers": [hostile]}
        route.fulfill(json=reply)

    page.route("**/deaths.json", answer)
    page.reload()
    page.locator("#deaths-rows tr").first.wait_for()
    assert page.locator("#deaths-rows a").first.inner_text() == NAME
    assert "<img src=x" in page.locator("#deaths-rows").inner_text()
    assert "hacked" not in page.title()
    assert page.locator("#deaths-rows img, #deaths-rows script").count() == 0


def test_jupyterlab_lists_the_page(seen, dashboard):
    """Its Dask extension finds the page in the list it reads, and shows it without Dask's navigation."""
    with urlopen(f"{dashboard}/individual-plots.json") as reply:
        assert json.load(reply)["Individual Deaths"] == "/individual-deaths"
    page = open_page(seen, dashboard, "individual-deaths")
    assert page.locator(".navbar").count() == 0
    assert seen.console == []


@pytest.fixture
def jupyterlab(tmp_path):
    """The address of a JupyterLab with Dask's extension."""
    pytest.importorskip("dask_labextension")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    open_to_all = ("--allow-root", "--IdentityProvider.token=", "--ServerApp.password=")
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", *open_to_all]
    folders = {f"JUPYTER_{each}_DIR": str(tmp_path / each) for each in ("CONFIG", "DATA", "RUNTIME")}
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, env={**os.environ, **folders}, cwd=tmp_path, stderr=log, stdout=log) as lab,
    ):
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/api"):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab"
        lab.kill()


def test_jupyterlab_opens_the_page_from_its_list(seen, dashboard, jupyterlab):
    """Its Dask extension offers the page by name, and shows the deaths in a tab."""
    page = seen.page
    page.set_default_timeout(PATIENCE_MS)
    page.goto(jupyterlab)
    page.locator(".jp-SideBar .lm-TabBar-tab[data-id=dask-dashboard-launcher]").wait_for()
    address = page.locator("#dask-dashboard-launcher .dask-URLInput input")
    page.locator("#jp-left-stack").wait_for()
    if not address.is_visible():
        page.locator(".jp-SideBar .lm-TabBar-tab[data-id=dask-dashboard-launcher]").click()
    address.fill(dashboard)
    address.press("Enter")
    page.locator("#dask-dashboard-launcher button", has_text="Deaths").click()
    rows = page.frame_locator("iframe[src*='individual-deaths']").locator("#deaths-rows")
    rows.get_by_text("Segmentation fault").wait_for()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_a_screen_reader_can_use_it(seen, dashboard, width):
    """Axe finds nothing on the page alone, on a phone or a desk, and nothing is cut off sideways."""
    seen.page.set_viewport_size({"width": width, "height": 800})
    page = open_page(seen, dashboard, "individual-deaths")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_scheduler_that_is_gone_is_said(seen, dashboard):
    """What is on the page stays, and the page says that it is old."""
    page = open_page(seen, dashboard)
    page.route("**/deaths.json", lambda route: route.abort())
    page.get_by_text("does not answer any more").wait_for(timeout=PATIENCE_MS)
    assert page.locator("#deaths-rows tr").count() == 2
