"""
Writes ``docs/causes/``: a page for each family of causes, from the rules that are installed.

    python docs/write_causes.py

The pages are made, not kept: see .gitignore.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import workerdiag
from workerdiag.model.rules import Cause
from workerdiag.reasoning.advice import filled

FOLDER = Path(__file__).parent / "causes"


def index(causes: Iterable[Cause], release: str) -> Iterator[str]:
    """
    The lines of the page that leads to all others.
    """
    yield f"# Causes known in release {release}"
    for family, members in groupby(causes, key=lambda cause: cause.family):
        yield ""
        yield f"## {family}"
        yield ""
        yield from (f"* [{cause.title}]({family}.md#{anchor(cause)})" for cause in members)


def page(family: str, causes: Iterable[Cause]) -> Iterator[str]:
    """
    The lines of the page of one family.
    """
    yield f"# {family}"
    for cause in causes:
        yield from (
            "",
            f"## {cause.id}",
            "",
            f"**{cause.title}** (revision {cause.revision})",
            "",
            cause.why.strip(),
        )
        advised = [filled(each.do, {}) for each in cause.mitigations]  # without the numbers of a death
        if advised:
            yield from ("", "What to do:", "")
            yield from (f"{number}. {each}" for number, each in enumerate(advised, 1))
        if cause.look_alikes:
            yield from ("", "Looks similar:", "")
            yield from (f"* `{each.cause}`: {each.tell}" for each in cause.look_alikes)
        if cause.references:
            yield from ("", "Read more:", "")
            yield from (f"* <{each}>" for each in cause.references)


def anchor(cause: Cause) -> str:
    """
    What GitHub makes of the heading ``family.cause``.
    """
    return cause.id.replace(".", "")


def main() -> None:
    """
    Write all pages anew.
    """
    book = workerdiag.load_rulebook()
    causes = sorted(book.causes, key=lambda cause: cause.id)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    pages = {"README": index(causes, book.release)}
    pages |= {
        family: page(family, list(members))
        for family, members in groupby(causes, key=lambda each: each.family)
    }
    for name, lines in pages.items():
        (FOLDER / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
