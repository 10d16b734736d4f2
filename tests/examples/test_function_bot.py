"""The bot with a function among the examples, run as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

from support.simulated_feed import SimulatedFeed, death
from workerdiag.watch import watcher

BOT = Path(__file__).parents[2] / "examples" / "function_bot.py"


def test_the_bot_tells_what_the_watcher_says(monkeypatch, tmp_path, capsys):
    """A worker died, and its cluster was closed: both are told, and the bot ends."""
    feed = SimulatedFeed([death(1, 100.0)], ends_at=300.0)
    monkeypatch.setattr(watcher, "SchedulerFeed", lambda *_, **__: feed)
    monkeypatch.setattr("sys.argv", ["function_bot.py", "tcp://scheduler:8786"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(BOT), run_name="__main__")
    told = capsys.readouterr().out
    assert "1 worker of prod died" in told
    assert "Cluster ended" in told
    assert (tmp_path / "state.db").exists()
