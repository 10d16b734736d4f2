"""The Slack bot among the examples, run as it stands."""

from __future__ import annotations

import runpy
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import slack_sdk

import workerdiag
from support.fake_slack import TOKEN, FakeSlack
from support.http_server import HttpServer
from support.notices import HOSTILE, sample_notice
from workerdiag.watch.sinks.slack import slack_blocks

BOT = Path(__file__).parents[2] / "examples" / "slack_bot.py"


def test_the_bot_posts_what_the_watcher_says(monkeypatch):
    """Slack's own client takes the blocks of each notice, and a name that looks like a mention is text."""
    notices = [sample_notice(), sample_notice("resolved", title=HOSTILE)]
    watched = []

    def watch(address, *, state):
        watched.append((address, state))
        return nullcontext(notices)

    slack = FakeSlack()
    with HttpServer(slack.answer) as server:
        local = partial(slack_sdk.WebClient, base_url=f"{server.url}/api/")
        monkeypatch.setattr(slack_sdk, "WebClient", local)
        monkeypatch.setattr(workerdiag, "watch", watch, raising=False)
        monkeypatch.setenv("SLACK_TOKEN", TOKEN)
        monkeypatch.setattr("sys.argv", ["slack_bot.py", "tcp://scheduler:8786", "#dask"])
        runpy.run_path(str(BOT), run_name="__main__")
    assert watched == [("tcp://scheduler:8786", "state.db")]
    assert [method for method, _ in slack.calls] == ["chat.postMessage"] * 2
    first, second = slack.messages.values()
    assert (first["channel"], first["blocks"]) == ("#dask", slack_blocks(notices[0]))
    assert "<!channel>" not in second["text"]
