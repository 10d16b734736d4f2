"""A diagnosis with the details that maintainers ask for, as Markdown for a bug report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import assert_never

from workerdiag.model.diagnosis import Findings
from workerdiag.redaction.objects import redact_object
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.markdown import escape, render_markdown
from workerdiag.rendering.wording import clip, format_percent, map_texts, one_line, printable
from workerdiag.units import format_bytes, format_time
from workerdiag.values import field, frozen

#: GitHub takes 65,536 characters of an issue.
MAX_CHARS = 60_000
_MAX_ROWS = 60


@frozen(kw_only=True)
class TimelineMoment:
    """Something that was seen, and when."""

    #: Seconds since the epoch.
    when: float
    where: str
    text: str


@frozen(kw_only=True)
class ReportExtras:
    """The parts of a report beside the diagnosis."""

    #: The diagnosis of today's rules, where it is another one than the diagnosis that was saved.
    again: Findings | None = None
    moments: tuple[TimelineMoment, ...] = ()
    versions: Mapping[str, str] = field(factory=dict)
    configuration: Mapping[str, str] = field(factory=dict)
    #: Name and bytes of each log that was read, and bytes of it that were kept.
    logs: tuple[tuple[str, int, int], ...] = ()
    #: What is not in the bundle, or could not be read of it.
    missing: tuple[str, ...] = ()
    #: When and by what it was saved, what was hidden.
    origin: tuple[str, ...] = ()


def render_report(findings: Findings, extras: ReportExtras) -> str:
    """The report, in at most 60,000 characters, everything untrusted escaped."""
    findings = redact_object(findings)  # a bundle of others, or of an older version, may hold secrets
    parts = [f"## {escape(_title(findings))}\n\n", _diagnosis_markdown(findings)]
    length = sum(map(len, parts)) + 1000
    left_out = []
    for title, lines in _extra_sections(extras):
        text = "\n".join((f"\n### {title}\n", *lines, ""))
        length += len(text)
        if length > MAX_CHARS:
            left_out.append(title)
        elif lines:
            parts.append(text)
    if left_out:
        parts.append(f"\nLeft out because the report would be too long: {', '.join(left_out)}.\n")
    if extras.origin:
        parts.append(f"\n---\n\n{escape(clip(', '.join(map(_safe_text, extras.origin)), 800))}\n")
    return "".join(parts)


def _title(findings: Findings) -> str:
    match findings.outcome:
        case "explained" if findings.top:
            return f"Worker death: {_safe_text(findings.top.title)}"
        case "no-death":
            return "No worker died"
        case "no-evidence":
            return "Nothing known about a worker"
        case "unknown" if findings.deaths_are_separate:
            is_own = findings.failure is not None and not findings.failure.in_task
            return "The program failed" if is_own else "A task failed"
        case "explained" | "unknown":
            return "Unexplained worker death"
        case _:
            assert_never(findings.outcome)


def _diagnosis_markdown(findings: Findings) -> str:
    for most in (1500, 300, 60):  # characters of a text
        text = render_markdown(map_texts(partial(clip, most=most), findings))
        if len(text) <= 40_000:
            return text
    return f"{escape(_safe_text(findings.summary))}\n\nThe full diagnosis is too long to show.\n"


def _extra_sections(extras: ReportExtras) -> Iterator[tuple[str, list[str]]]:
    again = extras.again
    if again is not None:
        conclusion = (
            f"{format_percent(again.top.probability)} {again.top.title} ({again.top.id})"
            if again.top
            else again.summary
        )
        yield (
            f"Re-evaluated with knowledge {escape(_safe_text(again.knowledge))}",
            [f"- {escape(_safe_text(conclusion))}"],
        )
    yield "Versions", list(_name_value_rows(redact_object(extras.versions).items()))
    yield (
        "Timeline",
        [
            f"- {format_time(each.when)} {escape(_safe_text(each.where))}: {escape(_safe_text(each.text))}"
            for each in extras.moments
        ],
    )
    yield "Configuration", list(_name_value_rows(redact_object(extras.configuration).items()))
    log_sizes = (
        (name, f"{format_bytes(read)}, {format_bytes(part)} of it kept") for name, read, part in extras.logs
    )
    yield "Logs that were read", list(_name_value_rows(log_sizes))
    yield "Not in this report", [f"- {escape(_safe_text(each))}" for each in extras.missing[:_MAX_ROWS]]


def _name_value_rows(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for number, (name, value) in enumerate(pairs):
        if number == _MAX_ROWS:
            yield "- and more"
            return
        yield f"- {escape(_safe_text(name))}: {escape(_safe_text(value))}"


def _safe_text(text: object) -> str:
    return clip(one_line(printable(redact_text(str(text)))), 200)
