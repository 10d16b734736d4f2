"""A notice in Slack's blocks.

Its text is that of ``rich_text`` blocks, in which nothing is looked for: no mark-up, mentions or addresses.
"""

from __future__ import annotations

import html

from workerdiag.watch.case import Notice
from workerdiag.watch.sinks.notice_parts import Card, card_of

#: A block, or an element of one, as JSON.
Block = dict[str, object]

#: https://docs.slack.dev/reference/block-kit/blocks: 50 blocks a message, 3,000 characters a text. A card's
#: texts are shorter, and a message has at most five blocks.
MAX_BLOCKS = 50
MAX_TEXT_CHARS = 3_000


def slack_blocks(notice: Notice) -> list[Block]:
    """The whole notice, for ``chat.postMessage(blocks=...)``."""
    card = card_of(notice)
    parts = [[_section([_piece(card.title, bold=True), _piece(f"\n{card.reason}", italic=True)])]]
    if card.text:
        parts.append([_section([_piece(card.text)])])
    parts.append([_section(_fact_lines(card))])
    if card.advice:
        items = [_section([_piece(sentence)]) for sentence in card.advice]
        parts.append([{"type": "rich_text_list", "style": "bullet", "elements": items}])
    ways = [*_link_section(card), *_commands(card)]
    return [_block(each) for each in ([*parts, ways] if ways else parts)]


def slack_reply_blocks(notice: Notice) -> list[Block]:
    """What changed, for the thread of the case's message."""
    return [_block([_section([_piece(card_of(notice).title)])])]


def slack_text(notice: Notice) -> str:
    """One line for notifications and for clients without blocks.

    It is escaped as https://docs.slack.dev/messaging/formatting-message-text asks.
    """
    return html.escape(card_of(notice).title, quote=False)


def _fact_lines(card: Card) -> list[Block]:
    elements = []
    for at, (label, value) in enumerate(card.facts):
        elements += [
            _piece(f"{(at and chr(10)) or ''}{label}: ", bold=True),
            _piece(value or "-"),
        ]
    return elements


def _link_section(card: Card) -> list[Block]:
    elements: list[Block] = []
    for label, address in card.links:
        elements += [{"type": "link", "url": address, "text": label}, _piece("\n")]
    return [_section(elements[:-1])] if elements else []


def _commands(card: Card) -> list[Block]:
    elements: list[Block] = []
    for label, command in card.commands:
        elements.append(_section([_piece(f"{label}:")]))
        elements.append({"type": "rich_text_preformatted", "elements": [_piece(command)]})
    return elements


def _block(elements: list[Block]) -> Block:
    return {"type": "rich_text", "elements": elements}


def _section(elements: list[Block]) -> Block:
    return {"type": "rich_text_section", "elements": elements}


def _piece(text: str, **style: bool) -> Block:
    return {"type": "text", "text": text, **({"style": style} if style else {})}
