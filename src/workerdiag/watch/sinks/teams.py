"""Microsoft Teams: an Adaptive Card to the webhook of a workflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from attrs import evolve, field, frozen

from workerdiag.watch.case import Notice
from workerdiag.watch.sinks.base import Delivery, endpoint_of, name_field, sink_name, timeout_field, url_given
from workerdiag.watch.sinks.notice_parts import Card, card_of, shorten

#: A message has 28 kB (https://learn.microsoft.com/microsoftteams/limits-specifications-teams), and a
#: workflow counts more than was sent: 24,453 bytes as 28,897
#: (https://github.com/MicrosoftDocs/msteams-docs/issues/11274), which fits a text within JSON, where quotes
#: are two bytes. What is too long is accepted and then lost, so some is left free.
MAX_COUNTED_BYTES = 26_000
_URL_REMEDY = "give the address of a workflow 'When a Teams webhook request is received', https://..."


@frozen
class TeamsSink:
    """A card for each notice: what a workflow posted cannot be edited from outside."""

    url: str = field(repr=False, validator=url_given("teams", _URL_REMEDY))
    name: str = name_field("teams", lambda sink: sink_name("teams", sink.url))
    timeout_s: float = timeout_field("teams")

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Post it; nothing is noted for the next time."""
        endpoint = endpoint_of(self, f"check the workflow: {_URL_REMEDY}")
        endpoint.post(teams_message(delivery.notice), {"Content-Type": "application/json; charset=utf-8"})
        return {}


def teams_message(notice: Notice) -> bytes:
    """The message as JSON, of at most this many bytes as Teams takes.

    Its text is that of text runs, in which no Markdown is looked for.
    """
    sizes = (_encoded(card) for card in _ever_shorter(card_of(notice)))
    return next(body for body in sizes if counted_bytes(body) <= MAX_COUNTED_BYTES)


def counted_bytes(body: bytes) -> int:
    """How long a workflow counts a message: as a text within JSON."""
    return len(json.dumps(body.decode()))


def _ever_shorter(card: Card) -> Iterator[Card]:
    """The card, and with less and less in it; the last is one line."""
    yield card
    yield evolve(card, links=card.links[:2], advice=card.advice[:3])
    yield evolve(card, links=(), advice=card.advice[:1], text=shorten(card.text, 1_000))
    yield Card(reason=card.reason, title=card.title)


def _encoded(card: Card) -> bytes:
    content = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": list(_body(card)),
        "actions": [
            {"type": "Action.OpenUrl", "title": _inert(label), "url": address} for label, address in card.links
        ],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": kind, "contentUrl": None, "content": content}
    message = {"type": "message", "attachments": [attachment]}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _body(card: Card) -> Iterator[Mapping[str, object]]:
    yield _paragraph(_run(card.title, weight="Bolder", size="Medium"))
    yield _paragraph(_run(card.reason, italic=True))
    if card.text:
        yield from (_paragraph(_run(each)) for each in card.text.splitlines() if each.strip())
    for label, value in card.facts:
        yield _paragraph(_run(f"{label}: ", weight="Bolder"), _run(value or "-"))
    for sentence in card.advice:
        yield _paragraph(_run(f"\N{BULLET} {sentence}"))
    for label, command in card.commands:
        yield _paragraph(_run(f"{label}: ", weight="Bolder"), _run(command, fontType="Monospace"))


def _paragraph(*runs: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: object) -> Mapping[str, object]:
    return {"type": "TextRun", "text": _inert(text), **style}


def _inert(text: str) -> str:
    """The text without the beginning of ``{{DATE(...)}}``, which a card would replace."""
    return text.replace("{{", "{\N{ZERO WIDTH SPACE}{")


def from_option(value: str, _: Mapping[str, str]) -> TeamsSink:
    """Return the sink for the URL of a workflow."""
    return TeamsSink(value)
