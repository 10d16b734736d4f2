"""
The page of the docs that says which release words what: causes by release of distributed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from packaging.version import Version
from ranges import spans

from workerdiag.model.rules import Rulebook


class Row(Protocol):
    """
    What the page needs to know of a checked rule.
    """

    @property
    def owner(self) -> str:
        """
        Cause or landmark.
        """

    @property
    def sign(self) -> str:
        """
        Name of the sign; empty for a landmark.
        """

    @property
    def kind(self) -> str:
        """
        What it is seen in.
        """

    @property
    def said_in(self) -> frozenset[Version]:
        """
        Releases that say it.
        """


def page(
    book: Rulebook, rows: Sequence[Row], looked_at: Sequence[Version], oldest_live: str
) -> Iterator[str]:
    """
    The lines of the page.
    """
    worded = [each for each in rows if each.said_in]
    signs = sorted(
        (each for each in worded if each.sign), key=lambda each: (each.owner, each.kind, each.sign)
    )
    by_cause = {owner: list(members) for owner, members in groupby(signs, key=lambda each: each.owner)}
    yield from _opening(looked_at, Version(oldest_live))
    yield from _overview(by_cause, columns(looked_at, Version(oldest_live)))
    yield from ("", "Known by the texts of others only, and so the same under every release of distributed:")
    others = [_linked(each.id) for each in book.causes if each.id not in by_cause]
    yield from textwrap.wrap(f"{', '.join(others)}.", 100, break_long_words=False, break_on_hyphens=False)
    yield from _differences(by_cause, looked_at)
    yield from ("", "## Landmarks", "", "| landmark | said in |", "|---|---|")
    for each in sorted((each for each in worded if not each.sign), key=lambda each: each.owner):
        yield f"| `{each.owner}` | {spans(each.said_in, looked_at)} |"


def columns(looked_at: Sequence[Version], oldest_live: Version) -> list[Version]:
    """
    The releases that the overview shows: the first, the last of each year, the oldest supported live.
    """
    last_of_year = {each.major: each for each in looked_at}
    live = [each for each in looked_at if each >= oldest_live]
    return sorted({looked_at[0], *live[:1], *last_of_year.values()})


def _opening(looked_at: Sequence[Version], oldest_live: Version) -> Iterator[str]:
    newer = max(oldest_live, looked_at[0])
    older = [str(each) for each in looked_at if each < newer]
    yield from (
        "# Causes by release of distributed",
        "",
        "Written by `nox -s wording -- --write`, from what the released wheels log, record and raise; not by",
        "hand.",
        "",
        *textwrap.wrap(f"Read were {''.join(f'{each}, ' for each in older)}and all since {newer}.", 100),
        "A message that is new between two of these is told from the later one: `introduced` in its rule is",
        f"exact. What begins with {looked_at[0]} may be older; an open range holds to {looked_at[-1]}.",
    )


def _overview(by_cause: dict[str, list[Row]], shown: Sequence[Version]) -> Iterator[str]:
    yield from (
        "",
        "## At a glance",
        "",
        "How many of a cause's signs a release can show, of those that distributed itself makes: log text,",
        "events, exceptions, and landmarks (with what they capture, such as a reason). An empty cell: under",
        "that release the cause is known by the texts of others only, or not at all.",
        "",
        f"| cause | signs | {' | '.join(map(str, shown))} |",
        f"|---|{'---|' * (len(shown) + 1)}",
    )
    for owner, signs in by_cause.items():
        counts = [sum(release in each.said_in for each in signs) for release in shown]
        cells = " | ".join(str(count or "") for count in counts)
        yield f"| {_linked(owner)} | {len(signs)} | {cells} |"


def _differences(by_cause: dict[str, list[Row]], looked_at: Sequence[Version]) -> Iterator[str]:
    yield from (
        "",
        "## What differs",
        "",
        "The signs that are not shown by all releases that were read.",
        "",
        "| cause | sign | seen in | said in |",
        "|---|---|---|---|",
    )
    for owner, signs in by_cause.items():
        named = f"`{owner}`"
        for each in signs:
            if len(each.said_in) < len(looked_at):
                yield f"| {named} | {each.sign} | {each.kind} | {spans(each.said_in, looked_at)} |"
                named = ""


def _linked(cause: str) -> str:
    return f"[{cause}](causes/{cause.replace('.', '/')}.md)"
