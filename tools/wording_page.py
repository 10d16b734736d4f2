"""The page of the docs that says which release words what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ranges import spans

if TYPE_CHECKING:
    from packaging.version import Version
    from rule_check import RuleCheck


def page(checked: Sequence[RuleCheck], looked_at: Sequence[Version]) -> Iterator[str]:
    """The lines of the page: the signs that differ between releases, and all landmarks."""
    oldest, newest = looked_at[0], looked_at[-1]
    yield from (
        "# Wordings by release of distributed",
        "",
        "Written by `nox -s wording -- --write`, from what the released wheels log, record and raise; not by",
        "hand.",
        "",
        f"{len(looked_at)} releases were read, {oldest} to {newest}, all that have a wheel. What begins with",
        f"{oldest} may be older; an open range holds to {newest}.",
        "",
        "## Signs that differ",
        "",
        "Signs of distributed's own making that some of these releases do not show.",
        "",
        "| cause | sign | seen in | said in |",
        "|---|---|---|---|",
    )
    signs = [each for each in checked if each.sign and 0 < len(each.said_in) < len(looked_at)]
    in_order = sorted(signs, key=lambda each: (each.owner, each.kind, each.sign))
    for owner, rows in groupby(in_order, key=lambda each: each.owner):
        named = f"[{owner}](causes/{owner.replace('.', '/')}.md)"
        for each in rows:
            yield f"| {named} | {each.sign} | {each.kind} | {spans(each.said_in, looked_at)} |"
            named = ""
    yield from ("", "## Landmarks", "", "| landmark | said in |", "|---|---|")
    for each in sorted((each for each in checked if not each.sign), key=lambda each: each.owner):
        if each.said_in:
            yield f"| `{each.owner}` | {spans(each.said_in, looked_at)} |"
