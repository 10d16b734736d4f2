"""``workerdiag triage``, as a person types it; where all parts have been read no cluster is needed."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import workerdiag
from support.dead_boxes import left_by_a_dead_process
from support.triage_work import nanny_log, triage_here
from workerdiag.cli import main


@pytest.fixture
def log(tmp_path):
    """A log whose parts were read, with what is kept of it beside it."""
    log = tmp_path / "nanny.log"
    log.write_text(nanny_log(2, seed=1) + nanny_log(1, seed=2, signal=35))
    triage_here([log], tmp_path / "out")
    return log


def run(*arguments):
    """The command's result."""
    return CliRunner().invoke(main, ["triage", *map(str, arguments)])


def test_the_summary_counts_deaths_and_drafts_rules_for_the_rest(log, tmp_path):
    """By cause and host; what stays unexplained stands with the command that drafts a rule."""
    result = run(log, "--output", tmp_path / "out", "--format", "jsonl")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Losses    3 workers were lost on ")
    assert "\nInputs    1 done\n" in result.output
    assert "67% of 3 deaths" in result.output
    assert "(signal.segfault)\n    Deaths: 2 since " in result.output
    assert f"workerdiag knowledge draft {log}\n" in result.output
    assert (tmp_path / "out" / "deaths.jsonl").exists()


def test_a_rule_can_be_drafted_from_a_black_box_and_a_bundle(tmp_path):
    """The command that the summary shows works for them, too: their last output is text."""
    path, _ = left_by_a_dead_process(tmp_path)
    workerdiag.explain(logs=path).save(tmp_path / "kept.zip")
    for each in (path, tmp_path / "kept.zip"):
        result = CliRunner().invoke(main, ["knowledge", "draft", str(each)])
        assert (result.exit_code, "the last words" in result.output) == (0, True), result.output


def test_an_input_that_cannot_be_read_is_named(log, tmp_path):
    """The others are reported; the exit status says that some are missing."""
    result = run(log, tmp_path / "gone.log", "--output", tmp_path / "out", "--format", "jsonl")
    assert result.exit_code == 1
    assert "gone.log: no such file" in result.output
    assert "At least 3 workers were lost" in result.output


def test_where_nothing_can_be_read_it_is_an_error(tmp_path):
    """The exit status is that of an unusable input."""
    result = run(tmp_path / "gone.log")
    assert result.exit_code == 2
    assert "no log could be read" in result.output
    assert "no such file: check the path or pattern" in result.output


def test_where_no_input_is_a_log_that_is_no_all_clear(tmp_path):
    """Nothing was looked at that would show a death, so none is counted as none."""
    (tmp_path / "empty.log").touch()
    (tmp_path / "notes.txt").write_text("buy milk\n")
    triage_here([tmp_path / "empty.log", tmp_path / "notes.txt"], tmp_path / "out")
    result = run(tmp_path / "empty.log", tmp_path / "notes.txt", "--output", tmp_path / "out", "--format", "jsonl")
    assert result.exit_code == 2
    assert "no log could be read:" in result.output
    assert "empty.log: there is nothing in it" in result.output
    assert "notes.txt: nothing in its text is recognized" in result.output
    assert "No worker was lost" not in result.output


def test_a_pattern_of_runs_that_fits_nothing_is_told(log, tmp_path):
    """A mistake in it would otherwise show in the number of runs alone."""
    result = run(log, "--output", tmp_path / "out", "--format", "jsonl", "--runs", "s3://logs/*/")
    assert result.exit_code == 1
    assert "no input matches s3://logs/*/" in result.output


def test_what_was_written_and_what_reads_it_is_told(log, tmp_path):
    """The next command can be copied."""
    out = tmp_path / "out"
    result = run(log, "--output", out, "--format", "jsonl")
    assert f"wrote {out}/deaths.jsonl and {out}/inputs.jsonl" in result.output
    assert f"workerdiag fleet {out}\n" in result.output


def test_hostile_names_do_nothing_to_the_terminal(tmp_path):
    """Control sequences in the name of a file are shown, not sent."""
    log = tmp_path / "nanny\x1b[31m.log"
    log.write_text(nanny_log(1, seed=2, signal=35))
    triage_here([log], tmp_path / "out")
    result = run(log, tmp_path / "\x1b[2J", "--output", tmp_path / "out", "--format", "jsonl")
    assert "\x1b" not in result.output
