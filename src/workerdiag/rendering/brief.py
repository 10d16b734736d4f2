"""
The first screen of a report: the answer, what was seen, who died, what could not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from workerdiag.model.diagnosis import Clue, Findings
from workerdiag.rendering.deaths import death_count_text, death_lines
from workerdiag.rendering.items import (
    blame_items,
    candidate_line,
    clue_item,
    command_lines,
    failure_items,
    gap_item,
    next_step_item,
    open_next_steps,
    strongest_first,
    unique_clues,
)
from workerdiag.rendering.outline import GUESS_CHANCE, failed_at, is_nobody_to_act, outline
from workerdiag.rendering.parts import Item, Outline, Section, page_item
from workerdiag.rendering.wording import clip, pluralize, printable_object

#: Longer examples are left to the whole report, as a half is of no use.
_MAX_CODE_LINES = 3
#: Characters of what is quoted of a clue, and of a death.
_MAX_QUOTED_CHARS, _MAX_DEATH_CHARS = 140, 230
#: How to get the whole report.
WHOLE_BY = "print(diagnosis.to_text(full=True))"


def brief_outline(findings: Findings, *, most: int = 2, whole_by: str = WHOLE_BY) -> Outline:
    """
    What one screen has room for: *most* entries of each kind; *whole_by* tells how to get the whole report.
    """
    findings = printable_object(evolve(findings, fingerprint=""))  # which is for programs
    whole = outline(findings)
    code = _first_step_code(findings)
    return evolve(
        whole,
        code=code if len(code) <= _MAX_CODE_LINES else (),
        summary=whole.summary if findings.outcome != "explained" else "",
        sections=tuple(each for each in _sections(findings, most) if each.items),
        hint=_hint(findings, whole_by),
    )


def _first_step_code(findings: Findings) -> tuple[str, ...]:
    """
    What is typed for the first thing to do or to look at.
    """
    if is_nobody_to_act(findings):
        return ()
    if findings.top and findings.outcome != "unknown":
        return command_lines("".join(each.example for each in findings.top.mitigations[:1]))
    if failed_at(findings):  # that line is to be mended; it is no command
        return ()
    return command_lines("".join(each.command for each in open_next_steps(findings)[:1]))


def _sections(findings: Findings, most: int) -> Iterator[Section]:
    if findings.failure and findings.outcome != "explained" and not findings.deaths:
        yield Section(title="What the task raised", items=tuple(failure_items(findings.failure)))
    if findings.top and findings.outcome != "unknown":
        clues = [_short_clue(each) for each in _strongest(findings)[:most]]
        yield Section(title="Evidence", items=tuple(clues))
    lines, more = death_lines(findings, most)
    yield Section(
        title=f"Deaths ({death_count_text(findings)})",
        items=tuple(Item(text=clip(line, _MAX_DEATH_CHARS)) for line in lines),
        more=more,
    )
    causes = findings.causes if findings.outcome == "unknown" else findings.causes[1:]
    others = [each for each in causes if each.probability >= GUESS_CHANCE]
    title = "Candidates" if findings.outcome == "unknown" else "Other candidates"
    yield Section(title=title, items=tuple(Item(text=candidate_line(each)) for each in others[:most]))
    is_known = findings.blame.verdict != "unknown" or findings.blame.task
    acting = blame_items(findings.blame, died=bool(findings.deaths)) if is_known else []
    yield Section(title="Who needs to act", items=tuple(acting[:most]))
    if findings.outcome == "unknown":
        first = 0 if failed_at(findings) else 1  # the first of them stands above
        steps = (evolve(next_step_item(each), notes=()) for each in open_next_steps(findings)[first:most])
        yield Section(title="Where to look next", items=tuple(steps), numbered=True)
    gaps = (evolve(gap_item(each), notes=()) for each in findings.gaps[:most])
    yield Section(title=f"Could not look at ({len(findings.gaps)})", items=tuple(gaps))


def _strongest(findings: Findings) -> list[Clue]:
    """
    The clues that say most; a hint only if there is no better.
    """
    ranked = strongest_first(findings)
    return [each for each in ranked if each.grade != "hint" or each is ranked[0]]


def _short_clue(clue: Clue) -> Item:
    """
    The clue with one line of its words: the last, where a traceback says what it was.
    """
    item = clue_item(clue)
    return evolve(item, quote=tuple(clip(line, _MAX_QUOTED_CHARS) for line in item.quote[-1:]))


def _hint(findings: Findings, whole_by: str) -> tuple[str, ...]:
    """
    What the whole report has, how to get it, and where to read about the cause.
    """
    top = findings.top
    counts = (
        (len(top.mitigations) if top and findings.outcome != "unknown" else 0, "suggestion"),
        (len(unique_clues(top.evidence)) if top else 0, "sign"),
        (findings.death_count, "death"),
        (len(findings.gaps), "gap"),
    )
    parts = ", ".join(pluralize(count, noun) for count, noun in counts if count)
    whole = f"All of it ({parts}): {whole_by}"
    if top is None or findings.outcome != "explained":
        return (whole,)
    page = page_item(top.id)
    return (whole, f"About the cause: {page.link or page.text}")
