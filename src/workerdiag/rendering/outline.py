"""
What a report says, and in which order; each rendering only says how that looks.

Every text in an outline is cleaned (`workerdiag.rendering.wording.clean`), none is escaped or wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workerdiag.model.diagnosis import Advice, Blame, Clue, Findings, NextStep, RankedCause
from workerdiag.model.evidence import Gap
from workerdiag.model.rules import GRADES
from workerdiag.rendering.deaths import crash_line, death_lines, memory_line
from workerdiag.rendering.parts import Item, Outline, Section
from workerdiag.rendering.wording import (
    THE_TASK,
    VERDICTS,
    capitalized,
    cleaned,
    clipped,
    counted,
    moment,
    one_line,
    percent,
    size,
    sureness,
)

#: Below this chance of a cause nobody is blamed for it, whoever the rule says (`scoring.blame`).
SURE_ENOUGH = 0.5
#: Candidates less likely than this are not worth a line.
LEAST_CHANCE = 0.01
#: What one report shows of each kind; the JSON form has everything.
MOST_CLUES = 8
MOST_ITEMS = 6
MOST_GAPS = 10
MOST_ADVICE = 9
MOST_QUOTED_LINES = 6
MOST_QUOTED_CHARACTERS = 300


def outline(findings: Findings) -> Outline:
    """
    The findings in the order a person reads them: the answer first, then why, then what is left.
    """
    findings = cleaned(findings)
    lead = _lead(findings)
    said, summary = lead[0][1], capitalized(one_line(findings.summary))
    sections = [each for each in _sections(findings) if each.items]
    return Outline(
        outcome=findings.outcome,
        lead=lead,
        summary="" if summary.rstrip(".") == said.rstrip(".") else summary,
        sections=tuple(sections),
        footer=_footer(findings),
    )


def _lead(findings: Findings) -> tuple[tuple[str, str], ...]:
    top = findings.top
    summary = capitalized(one_line(findings.summary))
    match findings.outcome:
        case "explained":
            what = ("Cause", one_line(top.title) if top else summary)
            sure = _sure_of_the_cause(top, findings.blame) if top else "not said"
        case "no-death":
            what = ("No death", summary)
            sure = _sure_of_no_death(findings)
        case "no-evidence":
            what = ("Unknown", summary)
            sure = "Not at all: neither that a worker died nor that none did."
        case _:
            what = ("Unknown", summary)
            sure = (
                f"Not sure. Best guess, {percent(top.probability)}: {one_line(top.title)}"
                if top
                else "Not sure."
            )
    place = crash_line(findings.deaths)
    where = (("Where", place),) if place and findings.outcome == "explained" else ()
    return (what, ("How sure", sure), *where, ("Do now", one_line(_first_thing_to_do(findings))))


def _sure_of_the_cause(top: RankedCause, blame: Blame) -> str:
    """
    How sure what happened is; whose doing it was is another question, and said where it is open.
    """
    if blame.verdict == "unknown" and top.probability >= SURE_ENOUGH:
        return f"{percent(top.probability)} of what happened; who is behind it is not known"
    return f"{percent(top.probability)}, {sureness(top.probability)}"


def _sure_of_no_death(findings: Findings) -> str:
    if findings.gaps:
        return f"As far as we could look: {counted(len(findings.gaps), 'place')} could not be looked at."
    return "Nothing in what was looked at speaks of a death."


def _first_thing_to_do(findings: Findings) -> str:
    top = findings.top
    if findings.outcome != "unknown" and top and top.mitigations:
        return top.mitigations[0].do
    nobody = findings.outcome == "explained" and findings.blame.verdict == "nobody"
    if nobody or findings.outcome == "no-death":
        return "Nothing has to be done about workers."
    if findings.outcome == "no-evidence":
        return "Hand in the log of the nanny and of the scheduler, or the client."
    if steps := _looks(findings):
        return f"Look at {steps[0].look}"
    remedy = next((gap.remedy for gap in findings.gaps if gap.remedy), "")
    return remedy or "Give `workerdiag explain` the logs of the worker, its nanny and the scheduler."


def _sections(findings: Findings) -> Iterator[Section]:
    top = findings.top
    if top and findings.outcome != "unknown":
        yield _section("Why", [Item(text=one_line(top.why))] if top.why else [])
    if top:
        of_what = " for the likeliest candidate" if findings.outcome == "unknown" else ""
        yield _section(f"Evidence{of_what}", map(_clue, _each_once(top.evidence)), most=MOST_CLUES)
        yield _section(f"Evidence against{of_what and ' it'}", map(_clue, _each_once(top.against)))
        yield _section("Not checked", (Item(text=one_line(each)) for each in top.unchecked))
    if top and findings.outcome != "unknown":
        yield _section("What to do", map(_advice, top.mitigations), most=MOST_ADVICE, numbered=True)
    yield _candidates(findings)
    lines, more = death_lines(findings)
    yield Section(
        title=f"Deaths ({len(findings.deaths)})", items=tuple(Item(text=line) for line in lines), more=more
    )
    yield _section("Who has to change something", _blame(findings.blame, died=bool(findings.deaths)))
    yield _section("Numbers", _numbers(findings))
    yield _section("Where to look next", map(_next_step, _looks(findings)), numbered=True)
    yield _section("Could not look at", map(_gap, findings.gaps), most=MOST_GAPS)
    yield _section("Notes", (Item(text=one_line(each)) for each in findings.notes), aside=True)
    if top:
        page = f"docs/causes/{top.id.replace('.', '/')}.md, or: workerdiag knowledge show {top.id}"
        links = (Item(text=page), *(Item(link=one_line(each)) for each in top.references))
        yield _section("Read more", links, aside=True)


def _section(
    title: str, items: Iterable[Item], *, most: int = MOST_ITEMS, numbered: bool = False, aside: bool = False
) -> Section:
    every = tuple(items)
    return Section(
        title=title,
        items=every[:most],
        more=f"and {len(every) - most} more" if len(every) > most else "",
        numbered=numbered,
        aside=aside,
    )


def _each_once(clues: Iterable[Clue]) -> list[Clue]:
    """
    The clues, those that are the same text at the same place as one, of the strongest grade.
    """
    strongest: dict[tuple[str, str], Clue] = {}
    for clue in clues:
        known = strongest.setdefault((clue.where, clue.text), clue)
        if GRADES[clue.grade] > GRADES[known.grade]:
            strongest[clue.where, clue.text] = clue
    return list(strongest.values())


def _clue(clue: Clue) -> Item:
    parts = (one_line(clue.where), moment(clue.when), f"{clue.grade} sign")
    times = f"seen {clue.times} times" if clue.times > 1 else ""
    return Item(text=", ".join(part for part in (*parts, times) if part), quote=excerpt(clue.text))


def excerpt(text: str) -> tuple[str, ...]:
    """
    A log message in a few lines: its beginning, and its end, where a traceback says what it was.
    """
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    if len(lines) > MOST_QUOTED_LINES:
        left_out = len(lines) - MOST_QUOTED_LINES + 1
        tail = MOST_QUOTED_LINES - 3
        lines = [*lines[:2], f"... {left_out} more lines ...", *lines[-tail:]]
    return tuple(clipped(line, MOST_QUOTED_CHARACTERS) for line in lines)


def _advice(advice: Advice) -> Item:
    return Item(
        text=one_line(advice.do),
        notes=_notes(("If", advice.when), ("Cost", advice.cost)),
        code=_typed(advice.example),
    )


def _looks(findings: Findings) -> list[NextStep]:
    """
    The next steps beside those that only close a gap, which stand there.
    """
    remedies = {gap.remedy for gap in findings.gaps}
    return [step for step in findings.next_steps if step.command not in remedies or not step.command]


def _next_step(step: NextStep) -> Item:
    return Item(
        text=one_line(step.look),
        notes=_notes(
            ("Needs", step.permission),
            ("Possible until", step.until),
            ("Tells apart", ", ".join(step.settles)),
        ),
        code=_typed(step.command),
    )


def _gap(gap: Gap) -> Item:
    parts = (one_line(gap.source), gap.reason.replace("-", " "), one_line(gap.detail))
    return Item(text=": ".join(part for part in parts if part), notes=_notes(("To close it", gap.remedy)))


def _notes(*labelled: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, one_line(text)) for label, text in labelled if text)


def _typed(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in text.rstrip().lstrip("\n").split("\n")) if text.strip() else ()


def _candidate(cause: RankedCause) -> str:
    return f"{percent(cause.probability)}  {one_line(cause.title)} ({cause.id})"


def _candidates(findings: Findings) -> Section:
    """
    What else it may have been; all candidates where none is shown.
    """
    shown = findings.outcome == "unknown"
    others = (each for each in findings.causes[0 if shown else 1 :] if each.probability >= LEAST_CHANCE)
    items = [Item(text=_candidate(each)) for each in others]
    if findings.causes and findings.unknown_probability >= LEAST_CHANCE:
        items.append(Item(text=f"{percent(findings.unknown_probability)}  Something else"))
    return _section("Candidates" if shown else "Other candidates", items, most=MOST_ITEMS + 1)


def _blame(blame: Blame, *, died: bool) -> list[Item]:
    if blame == Blame():
        return []
    items = [Item(text=VERDICTS[blame.verdict] if died or blame.verdict != "task" else THE_TASK)]
    if blame.task:
        fair = {
            True: "rightly: it would have failed also if only executing tasks were counted.",
            False: "wrongly: counting only executing tasks, it would not have failed.",
            None: "whether rightly is not known.",
        }[blame.fairly_blamed]
        items.append(Item(text=f"Dask names the task {one_line(blame.task)}, {fair}"))
    return items + [Item(text=one_line(reason)) for reason in blame.reasons]


def _numbers(findings: Findings) -> list[Item]:
    decision = findings.decision
    again = ("may be expected to succeed", "may end the same way again")
    answers = (
        ("Same work again, unchanged", decision.retry_safe, again),
        ("Ended by the platform or its operator", decision.platform_fault, ("yes", "no")),
    )
    lines = [memory_line(findings.deaths)]
    if decision.needs_memory_bytes is not None:
        lines.append(f"Memory a worker needs: {size(decision.needs_memory_bytes)}")
    if decision.needs_memory_lower_bound_bytes is not None:
        wanted = size(decision.needs_memory_lower_bound_bytes)
        lines.append(f"Memory a worker needs: more than {wanted}, how much more is not known")
    lines += [f"{label}: {words[not answer]}" for label, answer, words in answers if answer is not None]
    return [Item(text=line) for line in lines if line]


def _footer(findings: Findings) -> tuple[str, ...]:
    said = [
        f"workerdiag {findings.version}" if findings.version else "",
        f"knowledge {findings.knowledge}" if findings.knowledge else "",
    ]
    if findings.top:
        said.append(f"{findings.top.id} revision {findings.top.revision}")
    if findings.fingerprint:
        said.append(f"fingerprint {findings.fingerprint}")
    return tuple(one_line(each) for each in said if each)
