"""How likely each candidate is, as bars."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen
from markupsafe import Markup

from workerdiag.model.diagnosis import Clue, Findings
from workerdiag.rendering.drawing.svg import drawing, element, percent
from workerdiag.rendering.wording import clip, format_percent, one_line

#: Candidates less likely than this have no bar.
MIN_CHANCE = 0.005
MAX_CANDIDATES, MAX_AGAINST = 6, 3
_MAX_TEXT_CHARS = 160
_HEIGHT_PX = 10


@frozen(kw_only=True)
class CandidateBar:
    """One candidate with its bar."""

    title: str
    #: Id of the cause; empty for something else.
    id: str
    percent: str
    svg: Markup
    #: What speaks against it, a line each.
    against: tuple[str, ...] = ()


def candidate_bars(findings: Findings) -> tuple[CandidateBar, ...]:
    """A bar for each likely cause and for "something else"; none where no cause is a candidate."""
    return tuple(_bars(findings)) if findings.causes else ()


def _bars(findings: Findings) -> Iterator[CandidateBar]:
    likely = [each for each in findings.causes if each.probability >= MIN_CHANCE][:MAX_CANDIDATES]
    for number, cause in enumerate(likely):
        against = tuple(_against_text(each) for each in cause.against[:MAX_AGAINST]) if number else ()
        bar = _bar(one_line(cause.title), cause.id, cause.probability, "other" if number else "top")
        yield evolve(bar, against=against)
    if findings.unknown_probability >= MIN_CHANCE:
        yield _bar("Something else", "", findings.unknown_probability, "unknown")


def _against_text(clue: Clue) -> str:
    where = f" ({one_line(clue.where)})" if clue.where else ""
    return f"Against it: {clip(one_line(clue.text), _MAX_TEXT_CHARS)}{where}"


def _bar(title: str, id_: str, chance: float, kind: str) -> CandidateBar:
    text = format_percent(chance)
    parts = (
        element("rect", width="100%", height=_HEIGHT_PX, rx=2, class_="wd-track"),
        element("rect", width=percent(chance), height=_HEIGHT_PX, rx=2, class_=f"wd-chance wd-{kind}"),
    )
    svg = drawing(text, f"Probability of: {title}", _HEIGHT_PX, parts)
    return CandidateBar(title=title, id=id_, percent=text, svg=svg)
