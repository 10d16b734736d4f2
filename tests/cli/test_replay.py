"""What ``workerdiag replay`` says, and with which exit status."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from workerdiag import Kit
from workerdiag.cli import main
from workerdiag.model.replay import KitContent
from workerdiag.replay import run
from workerdiag.replay.outcome import Replay


@pytest.fixture
def kit(tmp_path):
    """A file with a kit that has no recipe."""
    return str(
        Kit(KitContent(killed="work", problem="the tasks cannot be pickled"), b"").save(tmp_path / "kit.zip")
    )


def test_a_kit_needs_a_plain_word(kit):
    """The error says which."""
    result = CliRunner().invoke(main, ["replay", kit])
    assert result.exit_code == 2
    assert "--trust" in result.output


def test_a_kit_that_cannot_be_replayed_says_why(kit):
    """Nothing was told then."""
    result = CliRunner().invoke(main, ["replay", kit, "--trust"])
    assert result.exit_code == 1
    assert "cannot-replay: the tasks cannot be pickled" in result.output


def test_the_options_reach_the_replay(kit, monkeypatch):
    """The limit in bytes, the file for memray, and the time in seconds."""
    asked = {}

    def replay_kit(content, *_, memray, timeout_s):
        asked.update(limit=content.limit_bytes, memray=memray, timeout=timeout_s)
        return Replay(verdict="does-not-kill", task="work")

    monkeypatch.setattr(run, "replay_kit", replay_kit)
    options = ["--trust", "--limit", "500MB", "--memray", "out.bin", "--timeout", "2 minutes"]
    result = CliRunner().invoke(main, ["replay", kit, *options])
    assert (result.exit_code, asked) == (0, {"limit": 500_000_000, "memray": "out.bin", "timeout": 120.0})


@pytest.mark.parametrize("option", [["--limit", "much"], ["--timeout", "long"]])
def test_what_is_no_size_or_duration_is_bad_usage(kit, option):
    """In one line."""
    result = CliRunner().invoke(main, ["replay", kit, "--trust", *option])
    assert result.exit_code == 2
    assert option[1] in result.output
