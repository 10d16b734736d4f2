"""
What a report is made of, whatever it is written in: a lead, a summary, sections of entries.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from workerdiag.model.vocabulary import Outcome
from workerdiag.settings import documentation_url

#: What a section of a diagnosis is about; a page places and draws sections by it.
Topic = Literal[
    "why",
    "evidence",
    "against",
    "unchecked",
    "advice",
    "candidates",
    "deaths",
    "blame",
    "numbers",
    "next-steps",
    "gaps",
    "notes",
    "references",
]


@frozen(kw_only=True)
class Item:
    """
    One entry of a section: prose, and below it what belongs to it.
    """

    text: str = ""
    #: Label and prose, e.g. what a mitigation costs.
    notes: tuple[tuple[str, str], ...] = ()
    #: Lines that others wrote, as they wrote them.
    quote: tuple[str, ...] = ()
    #: Lines to be typed.
    code: tuple[str, ...] = ()
    #: Address of a page.
    link: str = ""


def page_item(cause_id: str) -> Item:
    """
    The page of a cause: its address, or the command that shows it without a network.
    """
    url = documentation_url(cause_id)
    return Item(link=url) if url else Item(text=f"workerdiag knowledge show {cause_id}")


@frozen(kw_only=True)
class Section:
    """
    Entries under one heading.
    """

    title: str
    items: tuple[Item, ...]
    #: None in what is no report of a diagnosis.
    topic: Topic | None = None
    #: How many more there are, e.g. ``and 7 more``.
    more: str = ""
    numbered: bool = False
    #: Whether a reader in no hurry wants it, so that HTML may fold it.
    aside: bool = False

    @property
    def paragraph(self) -> str:
        """
        The text of a section that is one paragraph; empty for a list.
        """
        alone = len(self.items) == 1 and self.items[0] == Item(text=self.items[0].text)
        return self.items[0].text if alone and not self.more else ""


@frozen(kw_only=True)
class Outline:
    """
    A whole report.
    """

    #: `Findings.outcome`.
    outcome: Outcome
    #: Labelled lines: what happened, how sure, where, what to do.
    lead: tuple[tuple[str, str], ...]
    summary: str
    sections: tuple[Section, ...]
    footer: tuple[str, ...]
    #: Lines to be typed for the last line of the lead.
    code: tuple[str, ...] = ()
    #: How to get what this report leaves out, and where to read more; a line each.
    hint: tuple[str, ...] = ()
