"""A diagnosis for a terminal: everything, one screen, or three lines for the end of a traceback (PEP 678)."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping

from attrs import evolve

from workerdiag.model.diagnosis import Findings, RankedCause
from workerdiag.model.vocabulary import NO_ANSWER, NOTE_START, FactorKind, Outcome
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.outline import (
    GUESS_CHANCE,
    Item,
    Outline,
    Section,
    blame_items,
    candidate_line,
    clue_item,
    command_lines,
    failed_at,
    failure_items,
    gap_item,
    is_nobody_to_act,
    next_step_item,
    open_next_steps,
    outline,
    page_item,
    strongest_first,
    unique_clues,
    what_was_raised,
)
from workerdiag.rendering.wording import (
    capitalize,
    clip,
    death_count_text,
    death_lines,
    format_percent,
    one_line,
    plain_punctuation,
    pluralize,
    printable,
    printable_object,
    retry_text,
    still_lines,
)

#: Characters of what is quoted of a clue, and of a death.
_MAX_QUOTED_CHARS, _MAX_DEATH_CHARS = 140, 230
WHOLE_BY = "print(diagnosis.to_text(full=True))"
_LABEL_COLUMNS = 10
#: Narrower than this nothing is readable.
_MIN_WIDTH = 40
#: Stands for the second column of a wide character while lines are being filled.
_SECOND_COLUMN = "\ue000"
#: A blank at which no line ends, so that a number stays with its name.
_NO_BREAK = "\xa0"
_LEAD_LINES = 3
#: Maximum number of lines of a report that is shown whole: a small terminal has 24, and the prompt takes one.
_SCREEN_LINES = 24
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_TINTS: Mapping[Outcome, str] = {
    "explained": "\x1b[31m",
    "no-death": "\x1b[32m",
    "unknown": "\x1b[33m",
    "no-evidence": "\x1b[33m",
}


def brief_outline(findings: Findings, *, most: int = 2, whole_by: str = WHOLE_BY) -> Outline:
    """An outline for one screen, with *most* entries of each kind and *whole_by* for the rest."""
    findings = printable_object(evolve(findings, fingerprint=""))  # which is for programs
    whole = outline(findings)
    code = _first_step_code(findings)
    return evolve(
        whole,
        code=code if len(code) <= 3 else (),  # half of an example is of no use
        summary=whole.summary if findings.outcome != "explained" else "",
        sections=tuple(each for each in _sections(findings, most) if each.items),
        hint=_hint(findings, whole_by),
    )


def _first_step_code(findings: Findings) -> tuple[str, ...]:
    if is_nobody_to_act(findings):
        return ()
    if findings.top and findings.outcome != "unknown":
        return command_lines("".join(each.example for each in findings.top.mitigations[:1]))
    if failed_at(findings):  # that line must be edited; it is not a command
        return ()
    return command_lines("".join(each.command for each in open_next_steps(findings)[:1]))


def _sections(findings: Findings, most: int) -> Iterator[Section]:
    if findings.failure and findings.outcome != "explained" and not findings.deaths:
        title = capitalize(what_was_raised(findings.failure))
        yield Section(title=title, items=tuple(failure_items(findings.failure)))
    if findings.top and findings.outcome != "unknown":
        ranked = strongest_first(findings)  # a hint only if there is no better clue
        clues = [clue_item(each) for each in ranked if each.grade != "hint" or each is ranked[0]]
        short = (  # one line of its words: the last, which in a traceback is the error
            evolve(each, quote=tuple(clip(line, _MAX_QUOTED_CHARS) for line in each.quote[-1:]))
            for each in clues[:most]
        )
        yield Section(title="Evidence", items=tuple(short))
    now = still_lines(findings.present) if findings.present else ()
    yield Section(title="Now", items=tuple(Item(text=clip(each, _MAX_DEATH_CHARS)) for each in now))
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


def _hint(findings: Findings, whole_by: str) -> tuple[str, ...]:
    """What the whole report has, how to get it, and where to read about the cause."""
    top = findings.top
    counts = (
        (len(top.mitigations) if top and findings.outcome != "unknown" else 0, "suggestion"),
        (len(unique_clues(top.evidence)) if top else 0, "sign"),
        (findings.death_count, "death"),
        (len(findings.gaps), "gap"),
    )
    parts = ", ".join(pluralize(count, noun) for count, noun in counts if count)
    whole = f"Full report{f' ({parts})' if parts else ''}: {whole_by}"
    if top is None or findings.outcome != "explained":
        return (whole,)
    page = page_item(top.id)
    return (whole, f"About the cause: {page.link or page.text}")


def render_text(
    findings: Findings, *, width: int = 80, color: bool = False, full: bool = True, whole_by: str = WHOLE_BY
) -> str:
    """The findings as lines of at most *width* columns, but for addresses, paths and lines to be typed.

    What others wrote is stripped of what a terminal acts upon. Unless *full*, a report longer than a screen is cut
    to its first screen, which says *whole_by* what to get the rest.
    """
    whole = render_outline(outline(findings), width=width, color=color)
    if full or whole.count("\n") < _SCREEN_LINES:
        return whole
    text = render_outline(brief_outline(findings, whole_by=whole_by), width=width, color=color)
    if text.count("\n") < _SCREEN_LINES:
        return text
    return render_outline(brief_outline(findings, most=1, whole_by=whole_by), width=width, color=color)


def render_outline(report: Outline, *, width: int, color: bool) -> str:
    """Any report, laid out as `render_text` does."""
    return "\n".join(_report_lines(report, max(width, _MIN_WIDTH), color=color))


def _report_lines(report: Outline, width: int, *, color: bool) -> Iterator[str]:
    bold, plain = (_BOLD, _PLAIN) if color else ("", "")
    tint = _TINTS[report.outcome] if color else ""
    for label, text in report.lead:
        lines = _lead_lines(text, width - _LABEL_COLUMNS)
        yield f"{bold}{label:<{_LABEL_COLUMNS}}{plain}{tint}{lines[0]}{plain if tint else ''}"
        yield from (f"{'':<{_LABEL_COLUMNS}}{line}" for line in lines[1:])
        tint = ""
    yield from (f"{'':<{_LABEL_COLUMNS + 4}}{line}" for line in report.code)
    if report.summary:
        yield ""
        yield from wrap_text(report.summary, width)
    for section in report.sections:
        yield ""
        yield f"{bold}{section.title}{plain}"
        yield from _section_lines(section, width)
    footer = ", ".join(_NO_BREAK.join(each.rsplit(" ", 1)) for each in report.footer)
    if last := list(filter(None, (*report.hint, footer))):
        yield ""
        yield from (line.replace(_NO_BREAK, " ") for text in last for line in wrap_text(text, width))


def _lead_lines(text: str, room: int) -> list[str]:
    """As many whole sentences as fit in three lines of *room* columns; of a long first one, words with dots."""
    lines = wrap_text(text, room)
    sentences = re.split(r"(?<=[.!?]) ", text)
    while len(lines) > _LEAD_LINES and len(sentences) > 1:
        sentences.pop()
        kept = " ".join(sentences)
        lines = wrap_text(f'{kept} ..."' if kept.count('"') % 2 else kept, room)
    if len(lines) > _LEAD_LINES:
        is_quote_open = " ".join(lines[:_LEAD_LINES]).count('"') % 2
        last = _cut_line(lines[_LEAD_LINES - 1], room - 1)
        lines = [*lines[: _LEAD_LINES - 1], f'{last}"' if is_quote_open else last]
    return lines


def _section_lines(section: Section, width: int) -> Iterator[str]:
    if section.paragraph:
        yield from wrap_text(section.paragraph, width, first="  ", rest="  ")
        return
    for number, item in enumerate(section.items, 1):
        mark = f"{number}." if section.numbered else "-"
        yield from _item_lines(item, f"  {mark} ", width)
    if section.more:
        yield f"  {section.more}"


def _item_lines(item: Item, mark: str, width: int) -> Iterator[str]:
    indent = " " * len(mark)
    yield from wrap_text(item.text or item.link, width, first=mark, rest=indent)
    for label, text in item.notes:
        yield from wrap_text(f"{label}: {text}", width, first=indent, rest=indent + "  ")
    for line in item.quote:
        yield from wrap_text(line, width, first=f"{indent}| ", rest=f"{indent}|   ")
    for line in item.code:
        yield f"{indent}    {line}"


def wrap_text(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """The lines of one paragraph: *first* stands before the first of them, *rest* before the others."""
    room = width - max(len(first), len(rest))
    filled = textwrap.wrap(
        _break_long_words(_widen(text), room),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_SECOND_COLUMN, "") for line in filled] or [first.rstrip()]


def _break_long_words(text: str, room: int) -> str:
    """The text with blanks put into words that are longer than *room* and are no address and no path."""

    def broken(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) <= 200 and word.isascii() and ("/" in word or "\\" in word):
            return word
        return " ".join(word[start : start + room] for start in range(0, len(word), room))

    return re.sub(rf"\S{{{room + 1},}}", broken, text)


def _cut_line(line: str, room: int) -> str:
    while len(_widen(line)) > room - 3:
        line = line.rpartition(" ")[0] or line[: room // 2 - 3]
    return f"{line}..."


def _widen(text: str) -> str:
    """The text with a second character behind each that takes two columns (Unicode TR 11)."""
    if text.isascii():
        return text
    return "".join(char + _SECOND_COLUMN if unicodedata.east_asian_width(char) in "WF" else char for char in text)


_FACTOR_TEXTS: Mapping[FactorKind, str] = {
    "frequency": "odds against unknown before anything is seen: {}",
    "sign": "{}",
    "absence": "looked for and absent: {}",
    "against": "against it: {}",
    "explained": "its signs are explained by: {}",
    "rivals": "a share of all odds, with unknown and: {}",
    "deaths": "mean over the deaths of the incident",
}


def render_factors(findings: Findings, *, width: int = 80) -> str:
    """How the probabilities of the first causes come about: each factor, and their product."""
    causes = printable_object(findings.causes[:3])
    texts = ("\n".join(_factored_cause(each, max(width, _MIN_WIDTH))) for each in causes)
    return "\n\n".join(texts) or "No cause has evidence, so there is nothing to multiply."


def _factored_cause(cause: RankedCause, width: int) -> Iterator[str]:
    yield f"Factors of {cause.id}, {format_percent(cause.probability)}"
    words = {each.sign: clip(one_line(each.text), _MAX_QUOTED_CHARS) for each in (*cause.evidence, *cause.against)}
    for factor in cause.factors:
        parts = [factor.name]
        if factor.kind in ("sign", "absence", "against"):
            counted = "counted above" if factor.times == 1.0 else words.get(factor.name, "")
            parts += filter(None, (factor.where, counted))
        sign = " " if factor is cause.factors[0] else "x"
        first = f"  {sign} {_factor_text(factor.times):<12}"
        text = _FACTOR_TEXTS[factor.kind].format(", ".join(parts)).removesuffix(" and: ")
        yield from wrap_text(text, width, first=first, rest=" " * len(first))
    yield f"  = {_factor_text(cause.probability)}"


def _factor_text(value: float) -> str:
    return f"1/{1 / value:,.0f}" if 0 < value < 0.002 else f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


_LINE_CHARS = 200


def render_note(findings: Findings) -> str:
    """What happened with its probability, then what to do, then whether to retry and how to learn more."""
    lead = _ascii_lead(findings)
    what, answer = next(iter(lead.items()))
    words = (("Where", "in"), ("At line", "at line"))
    place = "".join(f", {word} {lead[label]}" for label, word in words if label in lead)
    sure = f" ({clip(lead['How sure'], 100)})"
    policy = findings.decision.policy
    again = "" if policy.action == "ask" else f"{_to_ascii(retry_text(policy))}. "
    lines = (
        clip(f"{NOTE_START}{what}: {answer}{place}", _LINE_CHARS - len(sure)) + sure,
        clip(f"Do now: {lead['Do now']}.", _LINE_CHARS),
        f"{again}More: print(workerdiag.explain(exc, client))",
    )
    return "\n".join(lines)


def churn_warning(findings: Findings) -> str:
    """A churn in one paragraph: deaths, work done twice, cause, reason, what to do; empty without one."""
    if findings.churn is None:
        return ""
    lead = _ascii_lead(findings)
    known = (f"{each}: {lead[each]}" for each in ("Cause", "Because", "Do now") if each in lead)
    said = ". ".join((lead.get("Churn", ""), *known))
    return f"{NOTE_START}{said}. More: print(workerdiag.explain(client=client))"


def _ascii_lead(findings: Findings) -> dict[str, str]:
    return {label: _to_ascii(text.rstrip(".")) for label, text in outline(findings).lead}


def failure_note(problem: str) -> str:
    """The note where no answer could be made: one line, without secrets."""
    return clip(f"{NO_ANSWER}: {_to_ascii(one_line(printable(redact_text(problem))))}", _LINE_CHARS)


def _to_ascii(text: str) -> str:
    plain = unicodedata.normalize("NFKD", plain_punctuation(text))
    return plain.encode("ascii", "replace").decode()
