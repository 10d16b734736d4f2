"""
A card as the HTML of a mail.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import UTC, datetime

from workerdiag.watch.sinks.card import Card


def html_of(card: Card) -> str:
    """
    Plain HTML without styles, pictures or anything that is loaded; all text is escaped.
    """
    return "<!doctype html>\n<html><body>\n" + "\n".join(_elements(card)) + "\n</body></html>\n"


def _elements(card: Card) -> Iterator[str]:
    yield f"<p><b>{_text(card.title)}</b><br>{_text(card.reason)}</p>"
    if card.text:
        yield f"<p>{_text(card.text)}</p>"
    if card.facts:
        yield f"<p>{'<br>'.join(f'<b>{_text(label)}:</b> {_text(value)}' for label, value in card.facts)}</p>"
    if card.advice:
        yield f"<ul>{''.join(f'<li>{_text(each)}</li>' for each in card.advice)}</ul>"
    for label, address in card.links:
        yield f'<p><a href="{html.escape(address)}">{_text(label)}</a></p>'
    for label, command in card.commands:
        yield f"<p>{_text(label)}: <code>{_text(command)}</code></p>"


def _text(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


def moment_of(when: float) -> datetime:
    """
    A time for the header ``Date``; the epoch for what is no time.
    """
    try:
        return datetime.fromtimestamp(when, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
