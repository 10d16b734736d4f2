"""The walks through the package: a module counts when one of its functions runs."""

from __future__ import annotations

import importlib
import sys
import threading

import pytest
import walks

FILES = {
    "__init__.py": "",
    "entry.py": "def start():\n    from hall import helper\n    return helper.give()\n",
    "helper.py": "from hall import loaded, made\nmade.now()\ndef give(): return [each for each in (1, 2)]\n",
    "loaded.py": "class Idle:\n    there = [each for each in (1, 2)]\ndef unused(): ...\n",
    "made.py": "def now(): ...\n",
}


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """The module ``entry`` of a package ``hall`` that nobody has imported yet."""
    folder = tmp_path / "hall"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("hall.entry")
    for name in [name for name in sys.modules if name.partition(".")[0] == "hall"]:
        del sys.modules[name]


def test_a_module_counts_when_one_of_its_functions_runs(tmp_path, entry):
    """In the order of the first calls; being imported is not enough, nor is the body of a class."""
    with walks.Trace(tmp_path / "hall") as trace, trace.recording():
        entry.start()
    assert [*trace.modules] == ["entry.py", "made.py", "helper.py"]


def test_threads_are_traced_too(tmp_path, entry):
    """What runs in a thread that started under the trace counts."""
    with walks.Trace(tmp_path / "hall") as trace, trace.recording():
        thread = threading.Thread(target=entry.start)
        thread.start()
        thread.join()
    assert "helper.py" in trace.modules


def test_only_what_runs_while_recording_counts(tmp_path, entry):
    """Calls before and after are no part of the walk."""
    with walks.Trace(tmp_path / "hall") as trace:
        entry.start()
        with trace.recording():
            pass
        entry.start()
    assert not trace.modules


def test_the_check_fails_only_above_a_limit(monkeypatch, capsys):
    """A walk at its limit passes; one module more fails the check, and printing alone never fails."""
    monkeypatch.setattr(walks, "in_process_of_its_own", lambda walk: walk())
    monkeypatch.setattr(walks, "WALKS", {"log": lambda: ["a.py", "b.py"]})
    monkeypatch.setattr(walks, "LIMITS", {"log": 2})

    assert walks.main(["--check"]) == 0
    monkeypatch.setattr(walks, "LIMITS", {"log": 1})
    assert (walks.main(["--check"]), walks.main([])) == (1, 0)
    assert "log: 2 modules, at most 1" in capsys.readouterr().out


def test_every_walk_has_a_limit():
    """A walk without a limit could grow unseen."""
    assert walks.WALKS.keys() == walks.LIMITS.keys()


@pytest.mark.slow
def test_a_log_walks_to_its_diagnosis():
    """The walk starts cold: the rules are loaded in it, and the function that is called is part of it."""
    modules = walks.in_process_of_its_own(walks.walk_of_log)
    assert len(modules) == len({*modules}) > 20
    assert any(module.startswith("rulebook") for module in modules)
