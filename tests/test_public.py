"""The public names, and how little it costs to import them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import pytest

import workerdiag
from workerdiag import plugins

#: Too slow, or too much, for a process that may never need an explanation.
HEAVY = set("IPython distributed dask asyncio tornado attrs cattrs click jinja2 fsspec hyperscan re2".split())


PACKAGE = Path(workerdiag.__file__).parent

installed = pytest.mark.skipif(
    "site-packages" not in PACKAGE.parts, reason="runs from the checkout, not from an installed wheel"
)


def loaded_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after *code*."""
    report = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_public_names_are_sorted_and_there():
    """Every name of ``__all__`` can be imported, and ``__all__`` reads like an index."""
    assert workerdiag.__all__ == sorted(workerdiag.__all__)
    for name in workerdiag.__all__:
        assert getattr(workerdiag, name).__name__.rpartition(".")[2] == name  # watch is a package, called
    assert set(workerdiag.__all__) <= set(dir(workerdiag))


@pytest.mark.parametrize("name", ["auto", "triage", "watch"])
def test_a_function_with_a_module_of_its_name_shows_its_arguments(name):
    """What a notebook and an editor show is the function's signature, also once the module is imported."""
    found = import_module(f"workerdiag.{name}")
    assert inspect.signature(found) == inspect.signature(found.__wrapped__)


def test_authors_of_sources_have_one_door():
    """`workerdiag.plugins` has what a source needs, and the page for authors imports from nothing else of ours."""
    assert plugins.__all__ == sorted(plugins.__all__)
    assert {"EvidenceSource", "Gap", "Inspected", "Scene"} <= set(plugins.__all__)
    page = Path(__file__).parents[1] / "docs/writing-a-source.md"
    imported = set(re.findall(r"(?:from|import) (workerdiag[\w.]*)", page.read_text(encoding="utf-8")))
    assert imported == {"workerdiag", "workerdiag.plugins", "workerdiag.testing"}


def test_a_wrong_name_is_an_attribute_error():
    """A typo is reported as of any other module, though names are looked up lazily."""
    with pytest.raises(AttributeError, match="explian"):
        workerdiag.explian  # noqa: B018


def test_importing_the_package_loads_nothing_heavy():
    """A worker, a notebook or a test suite may import us and not notice."""
    assert not loaded_after("import workerdiag") & HEAVY


def test_asking_for_explain_does_not_load_dask():
    """Reading a log file on a laptop does not wait for distributed to be imported."""
    assert "distributed" not in loaded_after("from workerdiag import explain, load_rulebook, LogText")


def test_explaining_a_log_loads_no_event_loop():
    """A report on a log starts no process, and waits for no library that only other evidence needs."""
    loaded = loaded_after("import workerdiag as w; w.explain(logs=[w.LogText('Worker process 9 was killed')])")
    assert not loaded & {"asyncio", "logging", "statistics", "subprocess", "distributed"}


@installed
def test_the_version_is_the_distributions():
    """Reports quote the version that pip shows."""
    assert distribution("workerdiag").version == workerdiag.__version__


@installed
def test_the_wheel_carries_the_knowledge():
    """An installed workerdiag knows what the checkout knows, and is typed."""
    assert (PACKAGE / "knowledge.pickle").is_file()
    assert any((PACKAGE / "knowledge" / "causes").glob("*/*.toml"))
    assert (PACKAGE / "py.typed").is_file()


def test_the_compiled_rules_are_the_rules():
    """Loading the compiled JSON gives the very objects that reading the TOML files gives."""
    from workerdiag.rulebook.load import shipped_folder
    from workerdiag.rulebook.toml_folder import read_folder

    assert workerdiag.load_rulebook() == read_folder(shipped_folder())
