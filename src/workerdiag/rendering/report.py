"""
A diagnosis with what a maintainer asks for beside it, as Markdown for a bug report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from attrs import evolve, field, fields, frozen, has

from workerdiag.model.diagnosis import Findings
from workerdiag.redaction.objects import redacted_object
from workerdiag.redaction.secrets import redacted
from workerdiag.rendering.markdown import escape, render_markdown
from workerdiag.rendering.wording import clean, clipped, moment, one_line, percent, size

T = TypeVar("T")

#: GitHub takes 65,536 characters of an issue.
MOST_CHARS = 60_000
_MOST_DIAGNOSIS_CHARS = 40_000
#: Texts are clipped to the first of these with which the diagnosis fits.
_CLIPS = (1500, 300, 60)
_MOST_ROWS = 60
_MOST_VALUE_CHARS = 200


@frozen(kw_only=True)
class Moment:
    """
    Something that was seen, and when.
    """

    #: Seconds since the epoch.
    when: float
    where: str
    text: str


@frozen(kw_only=True)
class Beside:
    """
    What a report says beside the diagnosis.
    """

    #: The diagnosis of today's rules, where it is another one than the diagnosis that was saved.
    again: Findings | None = None
    moments: tuple[Moment, ...] = ()
    versions: Mapping[str, str] = field(factory=dict)
    configuration: Mapping[str, str] = field(factory=dict)
    #: Name and bytes of each log that was read, and bytes of it that were kept.
    logs: tuple[tuple[str, int, int], ...] = ()
    #: What is not in the bundle, or could not be read of it.
    missing: tuple[str, ...] = ()
    #: When and by what it was saved, what was hidden.
    origin: tuple[str, ...] = ()


def render_report(findings: Findings, beside: Beside) -> str:
    """
    The report, in at most 60,000 characters, everything untrusted escaped.
    """
    findings = redacted_object(findings)  # a bundle of others, or of an older version, may hold secrets
    parts = [f"## {escape(_title(findings))}\n\n", _diagnosis(findings)]
    length = sum(map(len, parts)) + 1000
    left_out = []
    for title, lines in _sections(beside):
        text = "\n".join((f"\n### {title}\n", *lines, ""))
        length += len(text)
        if length > MOST_CHARS:
            left_out.append(title)
        elif lines:
            parts.append(text)
    if left_out:
        parts.append(f"\nLeft out, as it would be too long: {', '.join(left_out)}.\n")
    if beside.origin:
        parts.append(f"\n---\n\n{escape(clipped(', '.join(map(_safe, beside.origin)), 800))}\n")
    return "".join(parts)


def _title(findings: Findings) -> str:
    if findings.outcome == "explained" and findings.top:
        return f"Worker death: {_safe(findings.top.title)}"
    titles = {"no-death": "No worker died", "no-evidence": "Nothing known of a worker"}
    return titles.get(findings.outcome, "Worker death, not explained")


def _diagnosis(findings: Findings) -> str:
    for most in _CLIPS:
        text = render_markdown(_shortened(findings, most))
        if len(text) <= _MOST_DIAGNOSIS_CHARS:
            return text
    return f"{escape(_safe(findings.summary))}\n\nThe whole diagnosis is too long to be shown.\n"


def _shortened(value: T, most: int) -> T:
    """
    The same object with every text in it clipped, at any depth.
    """
    if isinstance(value, str):
        return cast("T", clipped(value, most))
    if isinstance(value, tuple):
        return cast("T", tuple(_shortened(each, most) for each in value))
    if has(type(value)):
        changes: dict[str, Any] = {
            each.name: _shortened(getattr(value, each.name), most)
            for each in fields(cast("Any", type(value)))
            if each.eq
        }
        return cast("T", evolve(cast("Any", value), **changes))
    return value


def _sections(beside: Beside) -> Iterator[tuple[str, list[str]]]:
    again = beside.again
    if again is not None:
        said = (
            f"{percent(again.top.probability)} {again.top.title} ({again.top.id})"
            if again.top
            else again.summary
        )
        yield f"Judged again by knowledge {escape(_safe(again.knowledge))}", [f"- {escape(_safe(said))}"]
    yield "Versions", list(_rows(redacted_object(beside.versions).items()))
    yield "Timeline", [_when(each) for each in beside.moments]
    yield "Configuration", list(_rows(redacted_object(beside.configuration).items()))
    kept = ((name, f"{size(read)}, {size(part)} of it kept") for name, read, part in beside.logs)
    yield "Logs that were read", list(_rows(kept))
    yield "Not in this report", [f"- {escape(_safe(each))}" for each in beside.missing[:_MOST_ROWS]]


def _rows(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for number, (name, value) in enumerate(pairs):
        if number == _MOST_ROWS:
            yield "- and more"
            return
        yield f"- {escape(_safe(name))}: {escape(_safe(value))}"


def _when(each: Moment) -> str:
    return f"- {moment(each.when)} {escape(_safe(each.where))}: {escape(_safe(each.text))}"


def _safe(text: object) -> str:
    return clipped(one_line(clean(redacted(str(text)))), _MOST_VALUE_CHARS)
