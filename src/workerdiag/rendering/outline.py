"""What a report says, and in which order; each rendering only says how that looks.

Every text in an outline is cleaned (`workerdiag.rendering.wording.printable`), none is escaped or wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from workerdiag.model.diagnosis import SURE_ENOUGH, Blame, Findings, RankedCause
from workerdiag.rendering.deaths import crash_line, death_count_text, death_lines
from workerdiag.rendering.items import (
    Item,
    Outline,
    Section,
    Topic,
    advice_item,
    blame_items,
    candidate_line,
    clue_item,
    decision_items,
    failure_items,
    gap_item,
    next_step_item,
    open_next_steps,
    page_item,
    strongest_first,
    unique_clues,
)
from workerdiag.rendering.wording import (
    capitalize,
    certainty_text,
    format_percent,
    one_line,
    pluralize,
    printable_object,
)

#: Candidates less likely than this are not worth a line.
MIN_CHANCE = 0.01
#: Minimum probability of a best guess.
GUESS_CHANCE = 0.05
#: What one report shows of each kind; the JSON form has everything.
MAX_CLUES = 8
MAX_ITEMS = 6
MAX_GAPS = 10
MAX_ADVICE = 9


def outline(findings: Findings) -> Outline:
    """The findings in the order a person reads them: the answer first, then why, then what is left."""
    findings = printable_object(findings)
    lead = _lead(findings)
    lead_text, summary = lead[0][1], capitalize(one_line(findings.summary))
    sections = [each for each in _sections(findings) if each.items]
    return Outline(
        outcome=findings.outcome,
        lead=lead,
        summary=_beyond(lead_text.rstrip("."), summary),
        sections=tuple(sections),
        footer=_footer(findings),
    )


def _beyond(lead: str, summary: str) -> str:
    """What the summary adds to the lead: of ``Segmentation fault (4 worker processes).`` the number."""
    if not summary.startswith(lead):
        return summary
    more = summary.removeprefix(lead)
    if more.startswith(" (") and more.endswith(")."):
        return f"{capitalize(more[2:-2])} died of it."
    return summary if more.rstrip(".") else ""


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
        case "unknown" if findings.deaths_are_separate:
            what = ("Failure", summary)
            sure = "The task raised it by itself: nothing in it tells of a death."
        case "unknown":
            what = ("Unknown", summary)
            sure = (
                f"Not sure. Best guess, {format_percent(top.probability)}: {one_line(top.title)}"
                if top and top.probability >= GUESS_CHANCE
                else "Not sure."
            )
        case _:
            assert_never(findings.outcome)
    of_cause = [each for each in findings.deaths if top and each.cause in (top.id, None)]
    place = crash_line(of_cause) if findings.outcome == "explained" else failed_at(findings)
    where = (("Where", place),) if place else ()
    return (what, ("How sure", sure), *where, ("Do now", one_line(_first_step(findings))))


def _cause_certainty(top: RankedCause, blame: Blame) -> str:
    """How sure the cause is; whose doing it was is said where that is open."""
    is_open = blame.verdict == "unknown" and top.probability >= SURE_ENOUGH
    whose = "; who is behind it is not known" if is_open else ""
    return f"{format_percent(top.probability)}, {certainty_text(top.probability)}{whose}"


def _all_clear_certainty(findings: Findings) -> str:
    if findings.gaps:
        return f"As far as we could look: {pluralize(len(findings.gaps), 'place')} could not be looked at."
    return "Nothing in what was looked at speaks of a death."


def _first_step(findings: Findings) -> str:
    top, failure, nobody = findings.top, findings.failure, is_nobody_to_act(findings)
    if findings.outcome != "unknown" and top and top.mitigations and not nobody:
        return top.mitigations[0].do
    is_task_alone = findings.outcome == "no-death" or findings.deaths_are_separate
    of_task = f"what the task raised: {failure.type}" if failure and is_task_alone else ""
    if place := failed_at(findings) or one_line(of_task):
        workers = " Nothing has to be done about workers." if findings.outcome == "no-death" else ""
        return f"Mend {place}.{workers}"
    if nobody or findings.outcome == "no-death":
        return "Nothing has to be done about workers."
    if findings.outcome == "no-evidence":
        return "Hand in the log of the nanny and of the scheduler, or the client."
    if steps := open_next_steps(findings):
        return f"Look at {steps[0].inspect.rstrip('.')}."
    remedy = next((gap.remedy for gap in findings.gaps if gap.remedy), "")
    return remedy or "Give `workerdiag explain` the logs of the worker, its nanny and the scheduler."


def is_nobody_to_act(findings: Findings) -> bool:
    """Whether everything went as it should, so that changes are not the first step."""
    return findings.outcome == "explained" and findings.blame.verdict == "nobody"


def failed_at(findings: Findings) -> str:
    """Return where a task failed without a death as the reason; empty for other answers."""
    failure, has_deaths = findings.failure, bool(findings.deaths) and not findings.deaths_are_separate
    is_answer = findings.outcome == "no-death" or (findings.outcome != "explained" and not has_deaths)
    return one_line(failure.raised_at) if failure and is_answer else ""


def _sections(findings: Findings) -> Iterator[Section]:
    top = findings.top
    if findings.failure and failed_at(findings):
        yield _bounded_section(None, "What the task raised", failure_items(findings.failure))
    if top and findings.outcome != "unknown":
        yield _bounded_section("why", "Why", [Item(text=one_line(top.why))] if top.why else [])
    if top:
        of_what = " for the likeliest candidate" if findings.outcome == "unknown" else ""
        yield _bounded_section(
            "evidence", f"Evidence{of_what}", map(clue_item, strongest_first(findings)), most=MAX_CLUES
        )
        yield _bounded_section(
            "against", f"Evidence against{of_what and ' it'}", map(clue_item, unique_clues(top.against))
        )
        yield _bounded_section(
            "unchecked", "Not checked", (Item(text=one_line(each)) for each in top.unchecked)
        )
    if top and findings.outcome != "unknown":
        yield _bounded_section(
            "advice", "What to do", map(advice_item, top.mitigations), most=MAX_ADVICE, numbered=True
        )
    yield _candidate_section(findings)
    lines, more = death_lines(findings)
    yield Section(
        topic="deaths",
        title=f"Deaths ({death_count_text(findings)})",
        items=tuple(Item(text=line) for line in lines),
        more=more,
    )
    yield _bounded_section(
        "blame", "Who needs to act", blame_items(findings.blame, died=bool(findings.deaths))
    )
    yield _bounded_section("numbers", "Numbers", decision_items(findings))
    yield _bounded_section(
        "next-steps", "Where to look next", map(next_step_item, open_next_steps(findings)), numbered=True
    )
    yield _bounded_section("gaps", "Could not look at", map(gap_item, findings.gaps), most=MAX_GAPS)
    yield _bounded_section(
        "notes", "Notes", (Item(text=one_line(each)) for each in findings.notes), aside=True
    )
    if top:
        links = (page_item(top.id), *(Item(link=one_line(each)) for each in top.references))
        yield _bounded_section("references", "Read more", links, aside=True)


def _bounded_section(
    topic: Topic | None,
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


def _candidate_section(findings: Findings) -> Section:
    is_unknown = findings.outcome == "unknown"
    others = (each for each in findings.causes[0 if is_unknown else 1 :] if each.probability >= MIN_CHANCE)
    items = [Item(text=candidate_line(each)) for each in others]
    if findings.causes and findings.unknown_probability >= MIN_CHANCE:
        items.append(Item(text=f"{format_percent(findings.unknown_probability)}  Something else"))
    return _bounded_section(
        "candidates", "Candidates" if is_unknown else "Other candidates", items, most=MAX_ITEMS + 1
    )


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
