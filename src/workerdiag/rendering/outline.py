"""What a report says, and in which order; each rendering only says how that looks.

Every text in an outline is cleaned (`workerdiag.rendering.wording.printable`), none is escaped or wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, assert_never

from workerdiag.model.diagnosis import (
    SURE_ENOUGH,
    Advice,
    Blame,
    Clue,
    Death,
    Findings,
    NextStep,
    RankedCause,
    TaskFailure,
)
from workerdiag.model.evidence import Gap
from workerdiag.model.memory import Cure, MemoryAccount
from workerdiag.model.odds import GRADES
from workerdiag.model.vocabulary import Outcome
from workerdiag.rendering.wording import (
    TASK_TEXT,
    VERDICT_TEXTS,
    capitalize,
    certainty_text,
    churn_lines,
    clip,
    crash_line,
    death_count_text,
    death_lines,
    event_text,
    format_percent,
    held_lines,
    last_output_line,
    memory_line,
    one_line,
    pluralize,
    present_lines,
    printable_object,
    retry_text,
    shorten_bytes,
    stopped_line,
)
from workerdiag.settings import documentation_url
from workerdiag.units import format_bytes, format_limit, format_time
from workerdiag.values import frozen

MIN_CHANCE = 0.01
GUESS_CHANCE = 0.05
#: What one report shows of each kind; the JSON form has everything.
MAX_ITEMS = 6


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
            sure = _cause_certainty(top, findings.blame) if top else "unknown"
        case "no-death" if findings.failure and not findings.failure.in_task:
            what = ("Failure", summary)
            sure = _own_error_certainty(findings)
        case "no-death":
            what = ("No death", summary)
            sure = _all_clear_certainty(findings)
        case "no-evidence":
            what = ("Unknown", summary)
            sure = "No evidence either way: a worker may or may not have died."
        case "unknown" if findings.deaths_are_separate:
            what = ("Failure" if findings.failure else "Unknown", summary)
            sure = _own_error_certainty(findings)
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
    line = stopped_line(of_cause) if findings.outcome == "explained" else ""
    said = last_output_line([each for each in findings.deaths if not each.stop_requested])
    known = (("Where", place), ("At line", line), ("Last line", said))
    where = tuple((label, text) for label, text in known if text)
    cure = next(iter(findings.cures), None)  # its sum stands in the reason
    step = f"{one_line(cure.do)}." if cure else one_line(_first_step(findings))
    churn = [("Churn", " ".join(f"{each}." for each in lines[:2]))] if (lines := churn_lines(findings)) else []
    done = [("Done", f"{one_line(each)}.") for each in findings.acts[:1]]
    return (what, ("How sure", sure), *churn, *_reason(findings), *where, *done, ("Do now", step))


def _reason(findings: Findings) -> Iterator[tuple[str, str]]:
    """Why the memory went over the limit, in words and with its sum."""
    reasons = findings.memory.reasons if findings.memory and findings.memory.reason else ()
    for each in reasons[:1]:
        sure = f"{each.title} ({format_percent(each.probability)})"
        yield "Because", f"{sure}. {capitalize(one_line(each.why))}."


def _cause_certainty(top: RankedCause, blame: Blame) -> str:
    """How sure the cause is; whose doing it was is said where that is open."""
    is_open = blame.verdict == "unknown" and top.probability >= SURE_ENOUGH
    whose = "; who caused it is unknown" if is_open else ""
    return f"{format_percent(top.probability)}, {certainty_text(top.probability)}{whose}"


def _own_error_certainty(findings: Findings) -> str:
    if findings.failure and not findings.failure.in_task:
        return "Certain: no frame of its traceback is a worker's, and none waits for a worker."
    if findings.failure is None:
        return "Not sure, except that none of the deaths below caused it."
    return "It is the task's own error: nothing in it points to a death."


def _all_clear_certainty(findings: Findings) -> str:
    if findings.gaps:
        return f"Limited: {pluralize(len(findings.gaps), 'place')} could not be read."
    return "Nothing that was read points to a death."


def _first_step(findings: Findings) -> str:
    top, failure, nobody = findings.top, findings.failure, is_nobody_to_act(findings)
    if findings.outcome != "unknown" and top and top.mitigations and not nobody:
        return top.mitigations[0].do
    is_task_alone = findings.outcome == "no-death" or findings.deaths_are_separate
    whose = "task" if failure and failure.in_task else "program"
    of_task = f"the error of the {whose}: {failure.type}" if failure and is_task_alone else ""
    place, steps = failed_at(findings), open_next_steps(findings)
    look = f"Look at {steps[0].inspect.rstrip('.')}." if steps else ""
    if place or of_task:
        workers = " The workers need no action." if findings.outcome == "no-death" else ""
        is_told = bool(steps) and (steps[0].of_error or not place)
        return look if is_told else f"Fix {place or one_line(of_task)}.{workers}"
    if nobody or findings.outcome == "no-death":
        return "The workers need no action."
    if findings.outcome == "no-evidence":
        return "Pass the logs of the nanny and the scheduler, or the client."
    if look:
        return look
    remedy = next((gap.remedy for gap in findings.gaps if gap.remedy), "")
    return remedy or "Pass the logs of the worker, its nanny and the scheduler to `workerdiag explain`."


def what_was_raised(failure: TaskFailure) -> str:
    """``the task's error``, or the program's."""
    return "the task's error" if failure.in_task else "the program's error"


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
        title = capitalize(what_was_raised(findings.failure))
        yield bounded_section(title, failure_items(findings.failure), topic="failure")
    if top and findings.outcome != "unknown":
        yield bounded_section("Why", [Item(text=one_line(top.why))] if top.why else [])
    if top:
        of_what = " for the likeliest candidate" if findings.outcome == "unknown" else ""
        yield bounded_section(f"Evidence{of_what}", map(clue_item, strongest_first(findings)), most=8)
        yield bounded_section(f"Evidence against{of_what and ' it'}", map(clue_item, unique_clues(top.against)))
        yield bounded_section("Not checked", (Item(text=one_line(each)) for each in top.unchecked))
    yield bounded_section("Done about it", (Item(text=one_line(each)) for each in findings.acts))
    if top and findings.outcome != "unknown":
        advice = map(advice_item, top.mitigations)
        yield bounded_section("What to do", advice, topic="advice", most=9, numbered=True)
    if findings.cures and not top:
        yield bounded_section("What to do", map(cure_item, findings.cures), topic="advice", numbered=True)
    yield bounded_section("Memory account", account_items(findings.memory), most=2 * MAX_ITEMS)
    yield _candidate_section(findings)
    now = (*churn_lines(findings), *present_lines(findings.present))
    yield bounded_section("Now", (Item(text=each) for each in now))
    lines, more = death_lines(findings)
    deaths = tuple(Item(text=line) for line in lines)
    yield Section(title=f"Deaths ({death_count_text(findings)})", items=deaths, more=more)
    yield bounded_section("Who needs to act", blame_items(findings.blame, died=bool(findings.deaths)))
    yield bounded_section("Numbers", decision_items(findings))
    yield bounded_section("Where to look next", map(next_step_item, open_next_steps(findings)), numbered=True)
    yield bounded_section("Could not look at", map(gap_item, findings.gaps), most=10)
    yield bounded_section("Notes", (Item(text=one_line(each)) for each in findings.notes), aside=True)
    if top:
        links = (page_item(top.id), *(Item(link=one_line(each)) for each in top.references))
        yield bounded_section("Read more", links, aside=True)


def bounded_section(
    title: str,
    items: Iterable[Item],
    *,
    topic: Topic | None = None,
    most: int = MAX_ITEMS,
    numbered: bool = False,
    aside: bool = False,
) -> Section:
    """Return a section of the first items, which says how many more there are."""
    every = tuple(items)
    return Section(
        topic=topic,
        title=title,
        items=every[:most],
        more=f"and {len(every) - most:,} more" if len(every) > most else "",
        numbered=numbered,
        aside=aside,
    )


def _candidate_section(findings: Findings) -> Section:
    is_unknown = findings.outcome == "unknown"
    others = (each for each in findings.causes[0 if is_unknown else 1 :] if each.probability >= MIN_CHANCE)
    items = [Item(text=candidate_line(each)) for each in others]
    if findings.causes and findings.unknown_probability >= MIN_CHANCE:
        items.append(Item(text=f"{format_percent(findings.unknown_probability)}  Something else"))
    title = "Candidates" if is_unknown else "Other candidates"
    return bounded_section(title, items, topic="candidates", most=MAX_ITEMS + 1)


def _footer(findings: Findings) -> tuple[str, ...]:
    parts = (
        ("workerdiag", findings.version),
        ("knowledge", findings.knowledge),
        (f"{findings.top.id} revision", findings.top.revision) if findings.top else ("", ""),
        ("fingerprint", findings.fingerprint),
    )
    return tuple(one_line(f"{name} {value}") for name, value in parts if value)


#: What a section is about, if a page places or draws it by that.
Topic = Literal["failure", "advice", "candidates"]
MAX_QUOTED_LINES = 6
MAX_QUOTED_CHARACTERS = 300
#: Stands in the text of a match for the lines between two that are quoted.
_LEFT_OUT = " … "


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
        message = last_line.removeprefix("distributed.scheduler.")[:120]
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
    names = {str(name) for each in findings.deaths for name in (each.identity.worker, each.identity.pid) if name}
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
        notes=labelled_notes(("If", advice.when), ("Cost", advice.cost)),
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
        notes=labelled_notes(
            ("Needs", step.permission),
            ("Possible until", step.until),
            ("Tells apart", ", ".join(step.distinguishes)),
        ),
        code=command_lines(step.command),
    )


def gap_item(gap: Gap) -> Item:
    """What could not be looked at, why, and what would help."""
    parts = (one_line(gap.source), gap.reason.replace("-", " "), one_line(gap.detail))
    return Item(text=": ".join(part for part in parts if part), notes=labelled_notes(("To close it", gap.remedy)))


def labelled_notes(*labelled: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Label and text of each that has one."""
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
            True: ", correctly: its function was running when workers died.",
            False: f", wrongly{f': {waited}' if blame.verdict in ('task', 'other-task') else ''}.",
            None: "; whether it was running when workers died is unknown.",
        }[blame.fairly_blamed]
        items.append(Item(text=f"Dask blames the task {one_line(blame.task)}{fair}"))
    return items + [Item(text=f"{capitalize(one_line(each)).rstrip('.')}.") for each in blame.reasons]


def cure_item(cure: Cure) -> Item:
    """A change with its sum."""
    text = f"{one_line(cure.do)}. {capitalize(one_line(cure.why))}."
    return Item(text=text, notes=labelled_notes(("Cost", cure.cost)), code=(one_line(cure.change),))


def account_items(account: MemoryAccount | None) -> list[Item]:
    """The terms of a memory account, each with its origin or what would show it; then the reasons."""
    if account is None or not (account.reasons or account.task_bytes or account.measured.bytes):
        return []
    terms = (
        ("Limit", account.limit),
        ("Held at the end", account.held),
        ("Stored results", account.stored),
        ("Spilled to disk", account.spilled),
        ("Before any task", account.floor),
        ("Left between tasks", account.left),
        ("Asked for by running tasks", account.asked),
        ("One task takes", account.inputs),
        ("One task gives", account.output),
        ("Copies while it runs", account.copies),
        ("One task in a replay", account.measured),
        ("Data in the graph", account.in_graph),
        ("The whole result", account.result),
    )
    lines = [f"{name}: {format_bytes(term.bytes)} ({one_line(term.origin)})" for name, term in terms if term.bytes]
    if account.tasks_at_once:
        lines.append(f"Tasks at once: {account.tasks_at_once}")
    missing = [name.lower() for name, term in terms if term.bytes is None and term.missing]
    if missing and account.would_tell:
        lines.append(f"Not known: {', '.join(missing)}; what would tell: {one_line(account.would_tell)}")
    others = [f"{each.reason} {format_percent(each.probability)}" for each in account.reasons]
    if others:
        lines.append(f"Reasons: {', '.join(others)}")
    return [Item(text=line) for line in lines]


def _deaths_of_first_cause(findings: Findings) -> Sequence[Death]:
    """The deaths without those that are known to have another cause than the first; all if none has it."""
    first = findings.causes[0].id if findings.causes else None
    if first not in {each.cause for each in findings.deaths}:
        return findings.deaths
    return [each for each in findings.deaths if each.cause in (first, None)]


def decision_items(findings: Findings) -> list[Item]:
    """Memory at the death, memory that is needed, whether to run the same work again."""
    decision = findings.decision
    answers = (
        ("Rerun unchanged", decision.retry_safe, ("likely to succeed", "likely to fail again")),
        ("Caused by the platform or an operator", decision.platform_fault, ("yes", "no")),
    )
    lines = [memory_line(_deaths_of_first_cause(findings)), *held_lines(findings.timeline.histories)]
    if decision.needs_memory_bytes is not None:
        lines.append(f"Memory a worker needs: {format_limit(decision.needs_memory_bytes)}")
    if decision.needs_memory_lower_bound_bytes is not None:
        wanted = format_bytes(decision.needs_memory_lower_bound_bytes)
        lines.append(f"Memory a worker needs: more than {wanted}; how much more is unknown")
    lines += [f"{label}: {words[not answer]}" for label, answer, words in answers if answer is not None]
    if findings.outcome == "explained" and decision.policy.reason:
        why = f" ({one_line(decision.policy.reason)})" if decision.policy.action == "ask" else ""
        lines.append(f"For programs: {retry_text(decision.policy)}{why}")
    return [Item(text=line) for line in lines if line]
