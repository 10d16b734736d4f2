"""
Writes ``docs/causes/``: a page for each cause, from the rules that are installed.

    python docs/write_causes.py

The pages are made, not kept: see .gitignore. The path of a cause's page is its id, with a slash,
and reports name it so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import workerdiag
from workerdiag.model.rules import Cause, NextStepRule
from workerdiag.model.signs import LogSign
from workerdiag.scoring.advice import fill_text

FOLDER = Path(__file__).parent / "causes"
#: Messages that a page shows of a cause, at most.
MOST_MESSAGES = 6


def index(causes: Iterable[Cause], release: str) -> Iterator[str]:
    """
    The lines of the page that leads to all others.
    """
    yield f"# Causes known in release {release}"
    for family, members in groupby(causes, key=lambda cause: cause.family):
        yield from ("", f"## {family}", "")
        yield from (f"* [{cause.title}]({cause.id.replace('.', '/')}.md)" for cause in members)


def page(cause: Cause) -> Iterator[str]:
    """
    The lines of the page of one cause.
    """
    yield from (f"# {cause.title}", "", f"`{cause.id}`, revision {cause.revision}", "", cause.why.strip())
    advised = [fill_text(each.do, {}) for each in cause.mitigations]  # without the numbers of a death
    yield from _section("What to do", [f"{number}. {each}" for number, each in enumerate(advised, 1)])
    yield from _section("How it shows", list(_messages(cause)))
    yield from _section(
        "Looks similar", [f"* {_linked(each.cause)}: {each.difference}" for each in cause.rivals]
    )
    yield from _section("What would settle it", [f"* {_next_step(each)}" for each in cause.next_steps])
    yield from _section("Read more", [f"* <{each}>" for each in cause.references])


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _messages(cause: Cause) -> Iterator[str]:
    """
    One message for each sign in a log, as its writer words it.
    """
    shown = [sign.seen[0] for sign in cause.signs if isinstance(sign, LogSign) and sign.seen][:MOST_MESSAGES]
    for each in shown:
        yield from ("```text", each.strip("\n"), "```")


def _linked(cause_id: str) -> str:
    return f"[{cause_id}](../{cause_id.replace('.', '/')}.md)"


def _next_step(step: NextStepRule) -> str:
    command = f": `{step.command}`" if step.command and "\n" not in step.command else ""
    return f"{step.inspect}{command}"


def main() -> None:
    """
    Write all pages anew.
    """
    book = workerdiag.load_rulebook(packs=False)
    causes = sorted(book.causes, key=lambda cause: cause.id)
    shutil.rmtree(FOLDER, ignore_errors=True)
    pages = {"README": index(causes, book.release)}
    pages |= {cause.id.replace(".", "/"): page(cause) for cause in causes}
    for name, lines in pages.items():
        path = FOLDER / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
