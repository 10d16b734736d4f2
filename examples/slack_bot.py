"""A Slack bot of one's own: every notice of the watcher becomes a message in a channel.

SLACK_TOKEN=xoxb-... python examples/slack_bot.py tcp://scheduler:8786 "#dask"
"""

import html
import os
import sys

from slack_sdk import WebClient

import workerdiag
from workerdiag.watch.sinks.slack import slack_blocks

address, channel = sys.argv[1:]
slack = WebClient(os.environ["SLACK_TOKEN"])
with workerdiag.watch(address, state="state.db") as watcher:
    for notice in watcher:
        title = html.escape(notice.title, quote=False)  # a name in it may look like a mention
        slack.chat_postMessage(channel=channel, text=title, blocks=slack_blocks(notice))
