"""The items of a report in any format: sections of entries, such as a clue, advice or a gap.

Texts are already clean (`workerdiag.rendering.wording.printable_object`), and not escaped or wrapped here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from attrs import frozen

from workerdiag.model.diagnosis import Advice, Blame, Clue, Findings, NextStep, RankedCause, TaskFailure
from workerdiag.model.evidence import Gap
from workerdiag.model.rules import GRADES
from workerdiag.model.vocabulary import Outcome
from workerdiag.rendering.deaths import memory_line
from workerdiag.rendering.wording import (
    TASK_TEXT,
    VERDICT_TEXTS,
    capitalize,
    clip,
    event_text,
    format_percent,
    one_line,
    retry_text,
    shorten_bytes,
)
from workerdiag.settings import documentation_url
from workerdiag.units import format_bytes, format_limit, format_time

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
MAX_QUOTED_LINES = 6
MAX_QUOTED_CHARACTERS = 300
#: Stands in the text of a match for the lines between two that are quoted.
_LEFT_OUT = " … "
#: Messages with this many equal first characters are the same message.
_SAME_CHARS = 120


@frozen(kw_only=True)
class Item:
    """One entry of a section: prose, and below it what belongs to it."""

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
    """The page of a cause: its address, or the command that shows it without a network."""
    url = documentation_url(cause_id)
    return Item(link=url) if url else Item(text=f"workerdiag knowledge show {cause_id}")


@frozen(kw_only=True)
class Section:
    """Entries under one heading."""

    title: str
    items: tuple[Item, ...]
    #: None outside of reports of a diagnosis.
    topic: Topic | None = None
    #: How many more there are, e.g. ``and 7 more``.
    more: str = ""
    numbered: bool = False
    #: Whether a reader in no hurry wants it, so that HTML may fold it.
    aside: bool = False

    @property
    def paragraph(self) -> str:
        """The text of a section that is one paragraph; empty for a list."""
        alone = len(self.items) == 1 and self.items[0] == Item(text=self.items[0].text)
        return self.items[0].text if alone and not self.more else ""


@frozen(kw_only=True)
class Outline:
    """A whole report."""

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


def unique_clues(clues: Iterable[Clue]) -> list[Clue]:
    """Return the clues. Of those that end in the same line, seen at two places, only the strongest one stays.

    A clue that another one of the same place quotes completely is left out.
    """
    strongest: dict[str, Clue] = {}
    for clue in clues:
        last_line = one_line(clue.text).rpartition(_LEFT_OUT)[2]
        message = last_line.removeprefix("distributed.scheduler.")[:_SAME_CHARS]
        known = strongest.setdefault(message, clue)
        if GRADES[clue.grade] > GRADES[known.grade]:
            strongest[message] = clue
    texts = [(clue, one_line(clue.text)) for clue in strongest.values()]
    return [
        clue
        for clue, text in texts
        if not any(text in more and text != more and clue.where == longer.where for longer, more in texts)
    ]


def strongest_first(findings: Findings) -> list[Clue]:
    """The clues of the likeliest cause, those that say most first; of equal ones those that name a dead process."""
    names = {
        str(name) for each in findings.deaths for name in (each.identity.worker, each.identity.pid) if name
    }
    clues = unique_clues(findings.top.evidence) if findings.top else []

    def rank(clue: Clue) -> tuple[float, bool]:
        return -GRADES[clue.grade], names.isdisjoint(re.findall(r"[^\s()\[\],='\"]+", clue.text))

    return sorted(clues, key=rank)


def clue_item(clue: Clue) -> Item:
    """Where and when a clue was seen and how much it says; its words as a quotation."""
    times = f"seen {clue.times:,} times" if clue.times > 1 else ""
    parts = (_place_text(clue.where), format_time(clue.when), f"{clue.grade} sign", times)
    return Item(text=", ".join(part for part in parts if part), quote=excerpt(event_text(clue.text)))


def _place_text(where: str) -> str:
    """``worker.log:120`` as it is; behind a name of several words ``line 120``."""
    name, _, line = one_line(where).rpartition(":")
    is_line = " " in name and line.isdecimal() and not name.startswith("event ")
    return f"{name}, line {line}" if is_line else one_line(where)


def excerpt(text: str) -> tuple[str, ...]:
    """A log message in a few lines: its beginning and its end, which in a traceback is the error."""
    lines = [line.rstrip() for line in re.split(rf"\n|{_LEFT_OUT}", shorten_bytes(text)) if line.strip()]
    if len(lines) > MAX_QUOTED_LINES:
        left_out = len(lines) - MAX_QUOTED_LINES + 1
        lines = [*lines[:2], f"... {left_out} more lines ...", *lines[3 - MAX_QUOTED_LINES :]]
    return tuple(clip(line, MAX_QUOTED_CHARACTERS) for line in lines)


def failure_items(failure: TaskFailure) -> list[Item]:
    """A task's error with the lines of code around it; empty where the summary has it all."""
    if not failure.source:
        return []
    message = clip(one_line(failure.message), MAX_QUOTED_CHARACTERS)
    return [Item(text=f"{failure.type}: {message}" if message else failure.type, quote=failure.source)]


def advice_item(advice: Advice) -> Item:
    """What to do, when that applies, what it costs, what is typed."""
    return Item(
        text=one_line(advice.do),
        notes=_labelled_notes(("If", advice.when), ("Cost", advice.cost)),
        code=command_lines(advice.example),
    )


def open_next_steps(findings: Findings) -> list[NextStep]:
    """Return the next steps, except those that only close a gap, which are listed there."""
    remedies = {gap.remedy for gap in findings.gaps}
    return [step for step in findings.next_steps if step.command not in remedies or not step.command]


def next_step_item(step: NextStep) -> Item:
    """What to look at, what that takes, and what it would tell."""
    return Item(
        text=capitalize(one_line(step.inspect)),
        notes=_labelled_notes(
            ("Needs", step.permission),
            ("Possible until", step.until),
            ("Tells apart", ", ".join(step.distinguishes)),
        ),
        code=command_lines(step.command),
    )


def gap_item(gap: Gap) -> Item:
    """What could not be looked at, why, and what would help."""
    parts = (one_line(gap.source), gap.reason.replace("-", " "), one_line(gap.detail))
    return Item(
        text=": ".join(part for part in parts if part), notes=_labelled_notes(("To close it", gap.remedy))
    )


def _labelled_notes(*labelled: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, one_line(text)) for label, text in labelled if text)


def command_lines(text: str) -> tuple[str, ...]:
    """What is typed, line by line; nothing of a blank text."""
    return tuple(line.rstrip() for line in text.rstrip().lstrip("\n").split("\n")) if text.strip() else ()


def candidate_line(cause: RankedCause) -> str:
    """A cause with its probability."""
    return f"{format_percent(cause.probability)}  {one_line(cause.title)} ({cause.id})"


def blame_items(blame: Blame, *, died: bool) -> list[Item]:
    """Return who needs to act, whether Dask blames the right task, and why; empty if nothing is known."""
    if blame == Blame():
        return []
    items = [Item(text=VERDICT_TEXTS[blame.verdict] if died or blame.verdict != "task" else TASK_TEXT)]
    if blame.task:
        waited = "on some of the workers that died it was only waiting, not running"
        fair = {
            True: ", correctly: it was running when workers died.",
            False: f", wrongly{f': {waited}' if blame.verdict in ('task', 'other-task') else ''}.",
            None: "; whether it was running when workers died is not known.",
        }[blame.fairly_blamed]
        items.append(Item(text=f"Dask blames the task {one_line(blame.task)}{fair}"))
    return items + [Item(text=f"{capitalize(one_line(each)).rstrip('.')}.") for each in blame.reasons]


def decision_items(findings: Findings) -> list[Item]:
    """Memory at the death, memory that is needed, whether to run the same work again."""
    decision = findings.decision
    answers = (
        ("Rerun unchanged", decision.retry_safe, ("likely to succeed", "likely to fail again")),
        ("Caused by the platform or an operator", decision.platform_fault, ("yes", "no")),
    )
    lines = [memory_line(findings.deaths)]
    if decision.needs_memory_bytes is not None:
        lines.append(f"Memory a worker needs: {format_limit(decision.needs_memory_bytes)}")
    if decision.needs_memory_lower_bound_bytes is not None:
        wanted = format_bytes(decision.needs_memory_lower_bound_bytes)
        lines.append(f"Memory a worker needs: more than {wanted}, how much more is not known")
    lines += [f"{label}: {words[not answer]}" for label, answer, words in answers if answer is not None]
    if findings.outcome == "explained" and decision.policy.reason:
        why = f" ({one_line(decision.policy.reason)})" if decision.policy.action == "ask" else ""
        lines.append(f"For programs: {retry_text(decision.policy)}{why}")
    return [Item(text=line) for line in lines if line]
