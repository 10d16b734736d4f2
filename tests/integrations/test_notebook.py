"""The answer in IPython, with a shell of its own. tests/browser has a real kernel and a real death."""

from __future__ import annotations

from types import SimpleNamespace

import dask.config
import pytest
from distributed import Client
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from support.findings import explained, no_death
from workerdiag.api.annotate import add_note
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.integrations import notebook

JSON_TYPE = "application/vnd.workerdiag.diagnosis+json"
ANSWER = Diagnosis(outcome="explained", summary="-", causes=explained().causes, deaths=explained().deaths)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A shell with workerdiag in it, as after ``%load_ext workerdiag``."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    assert shell.extension_manager.load_extension("workerdiag") is None
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def killed():
    """What Dask raises when workers died, with the answer that `workerdiag.auto` found."""
    exc = KilledWorker("load-1", SimpleNamespace(address="tcp://127.0.0.1:1"), 3)
    add_note(exc, ANSWER)
    return exc


def run(shell, code, **names):
    """Run a cell; what it displayed, and what it printed."""
    shell.push(names)
    with capture_output() as captured:
        shell.run_cell(code)
    return captured.outputs, captured.stdout + captured.stderr


def test_a_notebook_keeps_the_answer_for_people_and_for_programs():
    """Text, Markdown, HTML, and JSON that reads back equal, of a type that no notebook shows instead of the HTML."""
    bundle = ANSWER._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "text/markdown", "text/html", JSON_TYPE]
    assert bundle["text/plain"] == str(ANSWER)
    assert bundle["text/markdown"] == ANSWER.to_markdown()
    assert bundle[JSON_TYPE] == ANSWER.to_dict()


def test_the_answer_stands_under_the_cell_that_failed(shell, killed):
    """Without a call, in each form."""
    (waiting, shown), printed = run(shell, "raise killed", killed=killed)
    assert waiting.data == {"text/plain": "workerdiag: asking the cluster why ..."}
    assert shown.data == ANSWER._repr_mimebundle_()
    assert shown.update
    assert shown.transient == waiting.transient  # in that place
    assert "KilledWorker" in printed


@pytest.mark.parametrize("code", ["1 + 1", "1 / 0", "killed", "(", "%no_such_magic"])
def test_any_other_cell_stays_as_it_is(shell, killed, code):
    """Cells that pass, and errors that Dask has nothing to do with."""
    outputs, _ = run(shell, code, killed=killed)
    assert outputs == []


def test_an_answer_that_nothing_died_is_one_line(shell, killed, monkeypatch):
    """Unless workers did die: then it is shown whatever it says."""
    calm = Diagnosis(outcome="no-death", summary=no_death().summary)
    monkeypatch.setattr(notebook, "diagnose", lambda *_, **__: calm)
    cancelled = FutureCancelledError("load-1", "by hand")
    (_, shown), _ = run(shell, "raise error", error=cancelled)
    assert shown.data == {"text/plain": f"workerdiag: {calm.summary}"}
    (_, shown), _ = run(shell, "raise error", error=killed)
    assert shown.data["text/plain"] == str(calm)


def test_a_defect_of_ours_is_one_line_under_the_error(shell, killed, monkeypatch):
    """The user's own error stays the last that is raised."""
    monkeypatch.setattr(notebook, "diagnose", lambda *_, **__: 1 / 0)
    (*_, shown), _ = run(shell, "raise killed", killed=killed)
    assert shown.data["text/plain"].startswith("workerdiag: no answer: ZeroDivisionError")


def test_explain_gives_the_answer_to_the_last_exception(shell, killed):
    """The value of the line is the diagnosis: that which was found, where there is no client any more."""
    run(shell, "raise killed", killed=killed)
    run(shell, "diagnosis = %explain")
    assert shell.user_ns["diagnosis"] == ANSWER


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("%explain --now", "there is no client"),
        ("%explain nobody", "nobody must be a variable that holds a distributed.Client"),
    ],
)
def test_explain_says_what_it_needs(shell, line, problem):
    """A client, or an exception; a name that is none is not guessed at."""
    _, printed = run(shell, line)
    assert problem in printed


def test_unloading_leaves_nothing_behind(shell, killed):
    """As before ``%load_ext``; and it can be loaded again."""
    shell.extension_manager.unload_extension("workerdiag")
    outputs, _ = run(shell, "raise killed", killed=killed)
    assert outputs == []
    assert "explain" not in shell.magics_manager.magics["line"]
    shell.extension_manager.reload_extension("workerdiag")
    outputs, _ = run(shell, "raise killed", killed=killed)
    assert outputs[-1].data == ANSWER._repr_mimebundle_()


def test_work_is_checked_before_it_runs_if_that_is_set(shell):
    """The work of every client, until the extension is unloaded."""
    shell.extension_manager.unload_extension("workerdiag")
    usual = Client._graph_to_futures
    with dask.config.set({"workerdiag.auto.check": "warn"}):
        shell.extension_manager.load_extension("workerdiag")
    assert Client._graph_to_futures is not usual
    shell.extension_manager.unload_extension("workerdiag")
    assert Client._graph_to_futures is usual
