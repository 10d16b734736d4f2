"""`workerdiag mcp` where its extra is missing; tests/integrations/test_mcp.py talks to it."""

from __future__ import annotations

import sys

from click.testing import CliRunner

from workerdiag.cli import main


def test_a_missing_extra_is_named(monkeypatch):
    """Instead of a traceback."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "workerdiag.integrations.mcp", raising=False)
    result = CliRunner().invoke(main, ["mcp"])
    assert result.exit_code == 2
    assert "pip install 'workerdiag[mcp]'" in result.output
