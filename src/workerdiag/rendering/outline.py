"""
What a report says, and in which order; each rendering only says how that looks.

Every text in an outline is cleaned (`workerdiag.rendering.wording.printable`), none is escaped or wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from workerdiag.model.diagnosis import SURE_ENOUGH, Advice, Blame, Clue, Findings, NextStep, RankedCause
from workerdiag.model.evidence import Gap
from workerdiag.model.signs import GRADES
from workerdiag.rendering.deaths import crash_line, death_lines, memory_line
from workerdiag.rendering.parts import Item, Outline, Section, Topic, page_item
from workerdiag.rendering.wording import (
    TASK_TEXT,
    VERDICT_TEXTS,
    capitalize,
    certainty_text,
    clip,
    format_percent,
    one_line,
    pluralize,
    printable_object,
    retry_text,
)
from workerdiag.units import format_bytes, format_limit, format_time

#: Candidates less likely than this are not worth a line.
MIN_CHANCE = 0.01
#: What one report shows of each kind; the JSON form has everything.
MAX_CLUES = 8
MAX_ITEMS = 6
MAX_GAPS = 10
MAX_ADVICE = 9
MAX_QUOTED_LINES = 6
MAX_QUOTED_CHARACTERS = 300


def outline(findings: Findings) -> Outline:
    """
    The findings in the order a person reads them: the answer first, then why, then what is left.
    """
    findings = printable_object(findings)
    lead = _lead(findings)
    lead_text, summary = lead[0][1], capitalize(one_line(findings.summary))
    sections = [each for each in _sections(findings) if each.items]
    return Outline(
        outcome=findings.outcome,
        lead=lead,
        summary="" if summary.rstrip(".") == lead_text.rstrip(".") else summary,
        sections=tuple(sections),
        footer=_footer(findings),
    )


def _lead(findings: Findings) -> tuple[tuple[str, str], ...]:
    top = findings.top
    summary = capitalize(one_line(findings.summary))
    match findings.outcome:
        case "explained":
            what = ("Cause", one_line(top.title) if top else summary)
            sure = _cause_certainty(top, findings.blame) if top else "not said"
        case "no-death":
            what = ("No death", summary)
            sure = _all_clear_certainty(findings)
        case "no-evidence":
            what = ("Unknown", summary)
            sure = "Not at all: neither that a worker died nor that none did."
        case "unknown":
            what = ("Unknown", summary)
            sure = (
                f"Not sure. Best guess, {format_percent(top.probability)}: {one_line(top.title)}"
                if top
                else "Not sure."
            )
        case _:
            assert_never(findings.outcome)
    place = crash_line(findings.deaths)
    where = (("Where", place),) if place and findings.outcome == "explained" else ()
    return (what, ("How sure", sure), *where, ("Do now", one_line(_first_step(findings))))


def _cause_certainty(top: RankedCause, blame: Blame) -> str:
    """
    How sure what happened is; whose doing it was is another question, and said where it is open.
    """
    if blame.verdict == "unknown" and top.probability >= SURE_ENOUGH:
        return f"{format_percent(top.probability)} of what happened; who is behind it is not known"
    return f"{format_percent(top.probability)}, {certainty_text(top.probability)}"


def _all_clear_certainty(findings: Findings) -> str:
    if findings.gaps:
        return f"As far as we could look: {pluralize(len(findings.gaps), 'place')} could not be looked at."
    return "Nothing in what was looked at speaks of a death."


def _first_step(findings: Findings) -> str:
    top = findings.top
    if findings.outcome != "unknown" and top and top.mitigations:
        return top.mitigations[0].do
    nobody = findings.outcome == "explained" and findings.blame.verdict == "nobody"
    if nobody or findings.outcome == "no-death":
        return "Nothing has to be done about workers."
    if findings.outcome == "no-evidence":
        return "Hand in the log of the nanny and of the scheduler, or the client."
    if steps := _open_next_steps(findings):
        return f"Look at {steps[0].inspect}"
    remedy = next((gap.remedy for gap in findings.gaps if gap.remedy), "")
    return remedy or "Give `workerdiag explain` the logs of the worker, its nanny and the scheduler."


def _sections(findings: Findings) -> Iterator[Section]:
    top = findings.top
    if top and findings.outcome != "unknown":
        yield _bounded_section("why", "Why", [Item(text=one_line(top.why))] if top.why else [])
    if top:
        of_what = " for the likeliest candidate" if findings.outcome == "unknown" else ""
        yield _bounded_section(
            "evidence", f"Evidence{of_what}", map(_clue_item, _unique_clues(top.evidence)), most=MAX_CLUES
        )
        yield _bounded_section(
            "against", f"Evidence against{of_what and ' it'}", map(_clue_item, _unique_clues(top.against))
        )
        yield _bounded_section(
            "unchecked", "Not checked", (Item(text=one_line(each)) for each in top.unchecked)
        )
    if top and findings.outcome != "unknown":
        yield _bounded_section(
            "advice", "What to do", map(_advice_item, top.mitigations), most=MAX_ADVICE, numbered=True
        )
    yield _candidate_section(findings)
    lines, more = death_lines(findings)
    yield Section(
        topic="deaths",
        title=f"Deaths ({len(findings.deaths)})",
        items=tuple(Item(text=line) for line in lines),
        more=more,
    )
    yield _bounded_section(
        "blame", "Who has to change something", _blame_items(findings.blame, died=bool(findings.deaths))
    )
    yield _bounded_section("numbers", "Numbers", _decision_items(findings))
    yield _bounded_section(
        "next-steps", "Where to look next", map(_next_step_item, _open_next_steps(findings)), numbered=True
    )
    yield _bounded_section("gaps", "Could not look at", map(_gap_item, findings.gaps), most=MAX_GAPS)
    yield _bounded_section(
        "notes", "Notes", (Item(text=one_line(each)) for each in findings.notes), aside=True
    )
    if top:
        links = (page_item(top.id), *(Item(link=one_line(each)) for each in top.references))
        yield _bounded_section("references", "Read more", links, aside=True)


def _bounded_section(
    topic: Topic,
    title: str,
    items: Iterable[Item],
    *,
    most: int = MAX_ITEMS,
    numbered: bool = False,
    aside: bool = False,
) -> Section:
    every = tuple(items)
    return Section(
        topic=topic,
        title=title,
        items=every[:most],
        more=f"and {len(every) - most} more" if len(every) > most else "",
        numbered=numbered,
        aside=aside,
    )


def _unique_clues(clues: Iterable[Clue]) -> list[Clue]:
    """
    The clues, those that are the same text at the same place as one, of the strongest grade.
    """
    strongest: dict[tuple[str, str], Clue] = {}
    for clue in clues:
        known = strongest.setdefault((clue.where, clue.text), clue)
        if GRADES[clue.grade] > GRADES[known.grade]:
            strongest[clue.where, clue.text] = clue
    return list(strongest.values())


def _clue_item(clue: Clue) -> Item:
    parts = (one_line(clue.where), format_time(clue.when), f"{clue.grade} sign")
    times = f"seen {clue.times} times" if clue.times > 1 else ""
    return Item(text=", ".join(part for part in (*parts, times) if part), quote=excerpt(clue.text))


def excerpt(text: str) -> tuple[str, ...]:
    """
    A log message in a few lines: its beginning, and its end, where a traceback says what it was.
    """
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    if len(lines) > MAX_QUOTED_LINES:
        left_out = len(lines) - MAX_QUOTED_LINES + 1
        tail = MAX_QUOTED_LINES - 3
        lines = [*lines[:2], f"... {left_out} more lines ...", *lines[-tail:]]
    return tuple(clip(line, MAX_QUOTED_CHARACTERS) for line in lines)


def _advice_item(advice: Advice) -> Item:
    return Item(
        text=one_line(advice.do),
        notes=_labelled_notes(("If", advice.when), ("Cost", advice.cost)),
        code=_command_lines(advice.example),
    )


def _open_next_steps(findings: Findings) -> list[NextStep]:
    """
    The next steps beside those that only close a gap, which stand there.
    """
    remedies = {gap.remedy for gap in findings.gaps}
    return [step for step in findings.next_steps if step.command not in remedies or not step.command]


def _next_step_item(step: NextStep) -> Item:
    return Item(
        text=one_line(step.inspect),
        notes=_labelled_notes(
            ("Needs", step.permission),
            ("Possible until", step.until),
            ("Tells apart", ", ".join(step.distinguishes)),
        ),
        code=_command_lines(step.command),
    )


def _gap_item(gap: Gap) -> Item:
    parts = (one_line(gap.source), gap.reason.replace("-", " "), one_line(gap.detail))
    return Item(
        text=": ".join(part for part in parts if part), notes=_labelled_notes(("To close it", gap.remedy))
    )


def _labelled_notes(*labelled: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, one_line(text)) for label, text in labelled if text)


def _command_lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in text.rstrip().lstrip("\n").split("\n")) if text.strip() else ()


def _candidate_line(cause: RankedCause) -> str:
    return f"{format_percent(cause.probability)}  {one_line(cause.title)} ({cause.id})"


def _candidate_section(findings: Findings) -> Section:
    """
    What else it may have been; all candidates where none is shown.
    """
    is_unknown = findings.outcome == "unknown"
    others = (each for each in findings.causes[0 if is_unknown else 1 :] if each.probability >= MIN_CHANCE)
    items = [Item(text=_candidate_line(each)) for each in others]
    if findings.causes and findings.unknown_probability >= MIN_CHANCE:
        items.append(Item(text=f"{format_percent(findings.unknown_probability)}  Something else"))
    return _bounded_section(
        "candidates", "Candidates" if is_unknown else "Other candidates", items, most=MAX_ITEMS + 1
    )


def _blame_items(blame: Blame, *, died: bool) -> list[Item]:
    if blame == Blame():
        return []
    items = [Item(text=VERDICT_TEXTS[blame.verdict] if died or blame.verdict != "task" else TASK_TEXT)]
    if blame.task:
        fair = {
            True: "rightly: it would have failed also if only executing tasks were counted.",
            False: "wrongly: counting only executing tasks, it would not have failed.",
            None: "whether rightly is not known.",
        }[blame.fairly_blamed]
        items.append(Item(text=f"Dask names the task {one_line(blame.task)}, {fair}"))
    return items + [Item(text=one_line(reason)) for reason in blame.reasons]


def _decision_items(findings: Findings) -> list[Item]:
    decision = findings.decision
    again = ("may be expected to succeed", "may end the same way again")
    answers = (
        ("Same work again, unchanged", decision.retry_safe, again),
        ("Ended by the platform or its operator", decision.platform_fault, ("yes", "no")),
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


def _footer(findings: Findings) -> tuple[str, ...]:
    parts = [
        f"workerdiag {findings.version}" if findings.version else "",
        f"knowledge {findings.knowledge}" if findings.knowledge else "",
    ]
    if findings.top:
        parts.append(f"{findings.top.id} revision {findings.top.revision}")
    if findings.fingerprint:
        parts.append(f"fingerprint {findings.fingerprint}")
    return tuple(one_line(each) for each in parts if each)
