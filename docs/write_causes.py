"""Writes ``docs/causes/``: a page for each cause, from the rules that are installed.

    python docs/write_causes.py

The pages are made, not kept: see .gitignore. The path of a cause's page is its id, with a slash,
and reports name it so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from textwrap import indent

import workerdiag
from workerdiag.model.rules import Cause, LogSign, NextStepRule
from workerdiag.scoring.advice import fill_example, fill_text

FOLDER = Path(__file__).parent / "causes"
#: Messages that a page shows of a cause, at most.
MOST_MESSAGES = 6
#: Families whose name is not a heading as it is.
TITLES = {
    "bug": "Defects of Dask",
    "code": "The code of a task",
    "exception": "Errors in the logs",
    "exit": "Stops on request",
    "external": "From outside",
    "gpu": "GPU",
    "hpc": "Batch systems",
    "signal": "Crashes",
}


def index(causes: Iterable[Cause], release: str) -> Iterator[str]:
    """The lines of the page that leads to all others."""
    yield f"# Causes known in release {release}"
    yield from ("", "Each page has a stable address. `workerdiag knowledge show ID` needs no network.")
    for family, members in groupby(causes, key=lambda cause: cause.family):
        title = TITLES.get(family, family.capitalize())
        yield from ("", f"## {title}", "", "```{toctree}", ":maxdepth: 1", "")
        yield from (cause.id.replace(".", "/") for cause in members)
        yield "```"


def page(cause: Cause) -> Iterator[str]:
    """The lines of the page of one cause."""
    yield from (f"# {cause.title}", "", f"`{cause.id}`, revision {cause.revision}", "", cause.why.strip())
    yield from _section("What to do", list(_advice(cause)))
    yield from _section("How it shows", list(_messages(cause)))
    yield from _section("Looks similar", [f"* {_linked(each.cause)}: {each.difference}" for each in cause.rivals])
    yield from _section("What would settle it", [f"* {_next_step(each)}" for each in cause.next_steps])
    yield from _section("Read more", [f"* <{each}>" for each in cause.references])


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _advice(cause: Cause) -> Iterator[str]:
    """The mitigations, numbered, without the numbers of a death."""
    for number, each in enumerate(cause.mitigations, 1):
        mark = f"{number}. "
        under = " " * len(mark)
        yield f"{mark}{fill_text(each.do, {})}"
        where = ", ".join(each.deployments)
        for label, text in (("Only with", where), ("When", each.when), ("Cost", each.cost)):
            if text:
                yield f"{under}* {label}: {fill_text(text, {})}"
        if each.example:
            example = indent(fill_example(each.example.strip(), {}), under)
            yield from ("", f"{under}```text", example, f"{under}```", "")


def _messages(cause: Cause) -> Iterator[str]:
    """One message for each sign in a log, as its writer words it."""
    shown = [sign.seen[0] for sign in cause.signs if isinstance(sign, LogSign) and sign.seen][:MOST_MESSAGES]
    for each in shown:
        yield from ("```text", each.strip("\n"), "```")


def _linked(cause_id: str) -> str:
    return f"[{cause_id}](../{cause_id.replace('.', '/')}.md)"


def _next_step(step: NextStepRule) -> str:
    command = f": `{step.command}`" if step.command and "\n" not in step.command else ""
    return f"{step.inspect}{command}"


def main() -> None:
    """Write all pages anew."""
    book = workerdiag.load_rulebook(packs=False)
    causes = sorted(book.causes, key=lambda cause: cause.id)
    shutil.rmtree(FOLDER, ignore_errors=True)
    pages = {"index": index(causes, book.release)}
    pages |= {cause.id.replace(".", "/"): page(cause) for cause in causes}
    for name, lines in pages.items():
        path = FOLDER / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
