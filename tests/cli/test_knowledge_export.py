"""The exported rules: one JSON document by a published schema, which other languages can use."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from workerdiag.cli import main

SCRIPT = Path(__file__).parents[1] / "javascript" / "match_lines.mjs"
LINES = (
    "distributed.nanny.memory - WARNING - Worker tcp://10.0.0.4:4002 (pid=7012) exceeded 95% memory budget. Restarting...",
    "distributed.nanny - INFO - Worker process 7012 was killed by signal 11",
    "distributed.core - INFO - Starting established connection to tcp://10.0.0.2:8786",
)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_the_export_is_as_its_schema_says():
    """Tools in other languages can check what they read."""
    schema = json.loads(printed("knowledge", "schema", "--export"))
    jsonschema.Draft202012Validator.check_schema(schema)

    jsonschema.validate(json.loads(printed("knowledge", "export")), schema)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_javascript_matches_lines_with_the_export(tmp_path):
    """Forty lines of JavaScript load the rules and find a kill, a segfault, and nothing in a healthy line."""
    rules = tmp_path / "rules.json"
    rules.write_text(printed("knowledge", "export"), encoding="utf-8")
    done = subprocess.run(
        ["node", str(SCRIPT), str(rules)], input="\n".join(LINES), capture_output=True, text=True, check=True
    )
    kill, segfault, healthy = (
        {each["owner"]: each["captures"] for each in json.loads(line)} for line in done.stdout.splitlines()
    )

    assert kill["nanny.memory-budget"] == {"worker": "tcp://10.0.0.4:4002", "pid": "7012", "percent": "95"}
    assert any(owner.startswith("nanny.memory-terminate ") for owner in kill)
    assert segfault["nanny.killed-by-signal"] == {"pid": "7012", "signal": "11"}
    assert healthy == {}
