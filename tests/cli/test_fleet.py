"""``workerdiag fleet``, as a person types it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from support.fleet_rows import fleet_row
from workerdiag.cli import main
from workerdiag.triage.tables import DeathRow, write_table
from workerdiag.watch.store import Store


@pytest.fixture
def folder(tmp_path):
    write_table(tmp_path / "deaths.csv", DeathRow, [fleet_row(number) for number in range(3)])
    return tmp_path


def run(*arguments):
    """The command's result."""
    return CliRunner().invoke(main, ["fleet", *map(str, arguments)])


def test_each_format_is_a_report(folder):
    """Text of 80 columns where there is no terminal, JSON, and a page."""
    text = run(folder)
    assert text.exit_code == 0
    assert text.output.startswith(
        "Losses    3 workers were lost on 3 hosts in 1 cluster run\nWhen      On 2026-07-20\n"
    )
    assert max(map(len, text.output.splitlines())) <= 80
    assert json.loads(run(folder, "--format", "json").output)["death_count"] == 3
    assert run(folder, "--format", "html").output.startswith("<!doctype html>")


def test_the_exit_status_says_whether_anything_could_be_read(folder, tmp_path):
    """1 where there are files and none can be read, 2 where there is none."""
    (folder / "deaths.csv").write_text("torn")
    assert run(folder).exit_code == 1
    (folder / "deaths.csv").unlink()
    nothing = run(tmp_path)
    assert nothing.exit_code == 2
    assert "no table of triage" in nothing.output


def test_a_state_of_another_version_is_no_all_clear(tmp_path):
    """Nothing is said of losses where nothing can be read, and the state is left as it is."""
    path = tmp_path / "watch.db"
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    result = run(path)
    assert result.exit_code == 1
    assert result.output.startswith("Losses    Nothing could be read, so it is unknown whether workers were lost\n")
    assert "version 99" in " ".join(result.output.split())


def test_a_file_of_another_kind_is_no_all_clear(tmp_path):
    """A log is named as what it is not, and nothing is said of losses."""
    (tmp_path / "worker.log").write_text("distributed.worker - INFO - Start worker at: tcp://10.0.0.1:4000\n")
    result = run(tmp_path / "worker.log")
    assert result.exit_code == 1
    assert result.output.startswith("Losses    Nothing could be read, so it is unknown whether workers were lost\n")
    assert "neither a table of triage" in result.output
    assert "No worker was lost" not in result.output


def test_the_schema_of_a_report_is_printed():
    """Beside that of a diagnosis."""
    printed = CliRunner().invoke(main, ["schema", "fleet"]).output
    assert json.loads(printed)["title"] == "workerdiag fleet report"
