"""A diagnosis as HTML: a complete page with drawings, and the same as a part of another page."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from attrs import evolve
from markupsafe import Markup

from workerdiag.model.diagnosis import SURE_ENOUGH, Findings
from workerdiag.rendering.memory import account_figure, memory_figure
from workerdiag.rendering.outline import Item, Outline, Section, is_nobody_to_act, outline
from workerdiag.rendering.sparkline import NOT_SAMPLED, is_unsampled
from workerdiag.rendering.task_timeline import CandidateBar, candidate_bars, timeline_figure
from workerdiag.rendering.wording import CODE_SPAN, capitalize, printable_object
from workerdiag.settings import shipped_text
from workerdiag.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2 import Environment

#: A date, a key such as Ctrl-C, a number with its unit, and an option that fits into a line of a phone.
_ONE_WORD = re.compile(
    r"(?<![\w-])(--[a-z][a-z-]{2,24}(?![\w-])|\d{4}-\d\d-\d\d(?![\d-])|Ctrl-[A-Z]\b"
    r"|\d[\d.,]{0,9} (?:[KMGT]i?B|ms|s|%)(?!\w))"
)
#: Words this long are broken after these rather than within a name: paths, calls, assignments.
_LONG_WORD, _BREAK = re.compile(r"(\S{30,})"), re.compile(r"(?<=[\w\])\"'][/(=,])(?=[\w\"'\[{])")
#: A comment behind code, with the blanks that set it apart and its line end.
_COMMENT = re.compile(r"((?<! ) {2,}# [^\n]*\n?)")


def render_html(findings: Findings, *, page: bool = False, folded: bool = False) -> str:
    """The findings as one page, or as one ``<div>``, *folded* for notebooks, with its style: nothing is loaded.

    The ``<div>`` has no script and takes the colours of what is around it. The page is whole without its script.
    The text is ASCII, so it shows the same in any encoding.
    """
    findings = printable_object(findings)
    return _rendered(_content(findings), page=page, folded=folded)


def render_page(report: Outline, bars: Sequence[CandidateBar]) -> str:
    """Return any report as one page; the *bars* stand for its section of candidates."""
    first = Item(code=report.code)
    content = {"report": report, "first": first, "bars": bars, "sections": report.sections, "certainty": "open"}
    return _rendered(content, page=True, folded=False)


def _rendered(content: Mapping[str, object], *, page: bool, folded: bool) -> str:
    template = html_environment().get_template("page.html.j2" if page else "report.html.j2")
    around = _page_content() if page else {"level": 3, "with_buttons": False}  # headings of a part begin lower
    text = template.render(**content, **around, style=template_text("report.css"), folded=folded).strip()
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def prose(text: str) -> Markup:
    """Escaped text in which what stands in a pair of backticks is code."""
    return _mark(CODE_SPAN, text, lambda part: Markup("<code>{}</code>").format(unbroken(part)), unbroken)


def unbroken(text: str) -> Markup:
    """Escaped text in which options, dates and numbers with units stay on one line: browsers would break them."""
    return _mark(_ONE_WORD, text, Markup('<span class="wd-unbroken">{}</span>').format, _breakable)


def code(text: str) -> Markup:
    """Return escaped lines of code with marked comments: a phone has no room for them beside the code."""
    return _mark(_COMMENT, text, Markup('<span class="wd-comment">{}</span>').format, unbroken)


def _breakable(text: str) -> Markup:
    return _mark(_LONG_WORD, text, lambda part: Markup("<wbr>").join(_BREAK.split(part)), str)


def _mark(
    found: re.Pattern[str], text: str, marked: Callable[[str], Markup], other: Callable[[str], str]
) -> Markup:
    parts = enumerate(found.split(text))
    return Markup().join(marked(part) if at % 2 else other(part) for at, part in parts)


def _page_content() -> dict[str, object]:
    """What only a page has. Its policy forbids every request and every script but our own."""
    script = template_text("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return {
        "level": 1,
        "with_buttons": True,
        "page_style": template_text("page.css"),
        "script": script,
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
    }


def _content(findings: Findings) -> dict[str, object]:
    report = outline(findings)
    memory = memory_figure(findings)
    figures = (account_figure(findings.memory), memory, timeline_figure(findings))
    times = [each.when for each in findings.deaths if each.when is not None]
    first, advice, sections = _split_advice(report)
    bars = list(candidate_bars(findings))
    if bars:  # the likeliest candidate has one too
        sections = [evolve(each, title="Candidates") if each.topic == "candidates" else each for each in sections]
    return {
        "report": report,
        "certainty": _certainty(findings),
        "when": format_time(min(times, default=None)),
        "first": first,
        "advice": advice,
        "is_clear": is_nobody_to_act(findings),
        "figures": [each for each in figures if each is not None],
        "no_memory": capitalize(f"{NOT_SAMPLED}.") if memory is None and is_unsampled(findings) else "",
        "bars": bars,
        # what else it may have been is read first
        "sections": sorted(sections, key=lambda each: each.topic not in ("failure", "candidates")),
    }


def _split_advice(report: Outline) -> tuple[Item | None, Section | None, list[Section]]:
    """The first advice, if it is what to do now; the other advice; and the other sections."""
    advice = next((each for each in report.sections if each.topic == "advice"), None)
    sections = [each for each in report.sections if each is not advice]
    if advice is None or advice.items[0].text != report.lead[-1][1]:
        return None, advice, sections
    others = evolve(advice, title="What else to do", items=advice.items[1:])
    return advice.items[0], others if others.items else None, sections


def _certainty(findings: Findings) -> str:
    """The class that gives the answer its colour."""
    chance = findings.top.probability if findings.top else 0.0
    if findings.outcome == "no-death":
        return "likely" if findings.gaps else "sure"
    if findings.outcome != "explained" or chance < SURE_ENOUGH:
        return "open"
    return "sure" if chance >= 0.9 else "likely"  # as the words "very likely"


@cache
def template_text(name: str) -> Markup:
    """Return one of our style sheets or scripts."""
    return Markup(template_source(name))  # noqa: S704  it is a file of ours


def template_source(name: str) -> str:
    """Return the text of a file of ``rendering/templates``."""
    return shipped_text(f"rendering/templates/{name}")


@cache
def html_environment() -> Environment:
    """Finds our templates, and escapes what is put into them."""
    from jinja2 import Environment, FunctionLoader

    environment = Environment(
        loader=FunctionLoader(template_source), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(prose=prose, unbroken=unbroken, code=code)
    return environment
