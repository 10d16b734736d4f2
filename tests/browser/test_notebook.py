"""The answer in a notebook: a real kernel runs it, a real worker dies, and a real browser shows the page."""

from __future__ import annotations

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import v4
from traitlets.config import Config

import workerdiag
from workerdiag import Diagnosis, LogText

JSON_TYPE = "application/vnd.workerdiag.diagnosis+json"
#: So far apart that the page draws when they happened.
DEATHS = """\
2025-06-01 12:00:00,000 - distributed.nanny - INFO - Worker process 4711 was killed by signal 11
2025-06-01 12:00:04,000 - distributed.nanny - INFO - Worker process 4712 was killed by signal 11
"""
#: Seconds that a cell may take on a busy machine.
PATIENCE_S = 300

SETUP = """
import asyncio, ctypes
import dask
from distributed import Client

dask.config.set({"distributed.scheduler.allowed-failures": 0})
SIZES = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}

def crash():
    ctypes.string_at(0)
"""
CELLS = [
    "%load_ext workerdiag",
    SETUP,
    "client = Client(**SIZES)",
    "client.submit(crash, key='crash').result()",
    "diagnosis = %explain\ndiagnosis",
    "1 / 0",
]
ASYNCHRONOUS_CELLS = [
    "%load_ext workerdiag",
    SETUP,
    "client = await Client(**SIZES, asynchronous=True)",
    "await client.submit(crash, key='crash')",
    "%explain",
    "await asyncio.gather(*get_ipython().magics_manager.registry['WorkerdiagMagics']._pending)",
]


def executed(cells):
    """The notebook with all that its cells put out."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(each) for each in cells])
    NotebookClient(notebook, timeout=PATIENCE_S, allow_errors=True, kernel_name="python3").execute()
    return notebook


def diagnoses(cell):
    """The diagnoses that a cell shows, read back from the notebook."""
    bundles = [each.get("data", {}) for each in cell.outputs]
    return [Diagnosis.from_json(json.dumps(each[JSON_TYPE])) for each in bundles if JSON_TYPE in each]


@pytest.fixture(scope="module")
def notebook():
    """One that was executed as people do who know of two commands."""
    return executed(CELLS)


def as_page(notebook, path, theme):
    """Save the notebook as a page that loads nothing from elsewhere."""
    config = Config()
    config.HTMLExporter |= {"theme": theme, "require_js_url": "", "mathjax_url": ""}
    path.write_text(HTMLExporter(config=config).from_notebook_node(notebook)[0], encoding="utf-8")
    return path.as_uri()


def test_the_answer_stands_under_the_failed_cell(notebook):
    """After its error, by itself, and nowhere else; ``%explain`` gives the same cause."""
    loaded, setup, cluster, failed, explained, unrelated = notebook.cells
    kinds = [each.output_type for each in failed.outputs if each.output_type != "stream"]
    assert kinds == ["error", "display_data"]
    (by_itself,), (asked,) = diagnoses(failed), diagnoses(explained)
    assert by_itself.top.id == asked.top.id == "signal.segfault"
    assert not [each for cell in (loaded, setup, cluster, unrelated) for each in diagnoses(cell)]


def test_an_asynchronous_client_holds_up_nobody():
    """The answer replaces the line that says it is on its way, under the cell that failed and under ``%explain``."""
    *_, failed, asked, _ = executed(ASYNCHRONOUS_CELLS).cells
    for cell in (failed, asked):
        (answer,) = diagnoses(cell)
        assert answer.top.id == "signal.segfault"
        assert "asking the cluster" not in str(cell.outputs)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_answer_can_be_read_and_unfolded(notebook, seen, tmp_path, theme):
    """The cause and what to do stand there, the rest is folded; no barrier that axe knows of, in light and dark."""
    seen.page.goto(as_page(notebook, tmp_path / "notebook.html", theme))
    answer = seen.page.locator(".workerdiag").first
    assert "Segmentation fault" in answer.inner_text()
    folded = answer.locator("details")
    assert folded.count() >= 3
    assert not folded.locator(":scope > :not(summary)").first.is_visible()
    folded.locator("summary").first.click()
    assert folded.locator(":scope > :not(summary)").first.is_visible()
    found = Axe().run(seen.page, context=".workerdiag").response["violations"]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_notebooks_own_style_does_not_spoil_it(seen, tmp_path, theme):
    """No label of the lead is squeezed into a column of letters, and numbers in the drawing differ from their ground."""
    shown = workerdiag.explain(logs=[LogText(DEATHS, stream="nanny")])._repr_mimebundle_()
    notebook = v4.new_notebook(
        cells=[v4.new_code_cell("diagnosis", outputs=[v4.new_output("display_data", shown)])]
    )
    seen.page.goto(as_page(notebook, tmp_path / "notebook.html", theme))
    answer = seen.page.locator(".workerdiag").first
    label = answer.locator("dt").first
    assert label.bounding_box()["height"] < 2 * label.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    mark = answer.locator(".wd-mark").first
    ground, number = mark.evaluate(
        "e => [...e.querySelectorAll('circle, text')].map(each => getComputedStyle(each).fill)"
    )
    assert abs(lightness(ground) - lightness(number)) > 128, (ground, number)


def lightness(colour):
    """From 0 to 255, of a colour such as ``rgb(17, 17, 17)``."""
    return sum(map(int, re.findall(r"[0-9]+", colour)[:3])) / 3
