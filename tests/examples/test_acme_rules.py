"""The pack of rules among the examples, as it is when installed."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

import workerdiag
from workerdiag.cli import main
from workerdiag.rulebook import load

PACK = Path(__file__).parents[2] / "examples" / "acme-rules"
LOG = (
    "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 129 exited with status 41\n"
    "acmereader: licence /etc/acme/reader.lic revoked by server, exiting\n"
)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The pack's entry point, as its pyproject.toml has it."""
    metadata = tomllib.loads((PACK / "pyproject.toml").read_text())["project"]
    [(name, value)] = metadata["entry-points"][load.ENTRY_POINT_GROUP].items()
    point = EntryPoint(name, value, load.ENTRY_POINT_GROUP)
    monkeypatch.syspath_prepend(str(PACK))
    monkeypatch.setattr(load, "entry_points", lambda group: [point] if group == point.group else [])
    yield
    sys.modules.pop(value, None)


def test_the_pack_counts_and_beats_the_exit_status_that_it_explains():
    """A pack that names a Python package is in force, and its rule wins over what it brings about."""
    book = workerdiag.load_rulebook()
    diagnosis = workerdiag.explain(logs=workerdiag.LogText(LOG), rulebook=book)
    assert diagnosis.top.id == "storage.licence-lost"
    assert "the reader lost /etc/acme/reader.lic" in diagnosis.top.mitigations[0].do


def test_the_list_names_the_pack_with_its_state():
    """Whoever installed a pack sees that it is there."""
    result = CliRunner().invoke(main, ["knowledge", "list"])
    assert "storage.licence-lost" in result.stdout
    assert result.stdout.splitlines()[-1] == "pack acme: 1 cause, 0 landmarks"
