"""A local Slack: keeps messages, edits them, and answers as the Web API does."""

from __future__ import annotations

import itertools
import json

from attrs import define, field

from support.http_server import HttpAnswer, HttpRequest

TOKEN = "xoxb-0123456789-abcdefghij"


@define
class FakeSlack:
    """A local Slack; its ``answer`` serves an `HttpServer`."""

    #: Messages by timestamp, as posted or last edited.
    messages: dict[str, dict] = field(factory=dict)
    #: The method and arguments of each call.
    calls: list[tuple[str, dict]] = field(factory=list)
    #: Errors to answer first, by Slack's names.
    errors: list[str] = field(factory=list)
    _count: itertools.count = field(factory=itertools.count)

    def answer(self, request: HttpRequest) -> HttpAnswer:
        method, arguments = request.path.rpartition("/")[2], json.loads(request.body)
        self.calls.append((method, arguments))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return HttpAnswer({"ok": False, "error": "invalid_auth"})
        if self.errors:
            return HttpAnswer({"ok": False, "error": self.errors.pop(0)})
        if method == "chat.update":
            if arguments["ts"] not in self.messages:
                return HttpAnswer({"ok": False, "error": "message_not_found"})
            stamp = arguments["ts"]
        else:
            stamp = f"1700000000.{next(self._count):06}"
        self.messages[stamp] = arguments
        return HttpAnswer({"ok": True, "channel": "C012AB3CD", "ts": stamp})


def texts_in(value: object) -> list[str]:
    """Return every text of the blocks, in order."""
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    if isinstance(value, dict):
        own = [value["text"]] if value.get("type") in {"text", "link"} else []
        return own + [text for each in value.values() for text in texts_in(each)]
    return []
