"""One cause of the rulebook, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import fields

from workerdiag.model.rules import Cause, LogSign, Mitigation, Sign
from workerdiag.model.vocabulary import CauseEnd, RetryVerdict
from workerdiag.rendering.outline import Item, Outline, Section, labelled_notes
from workerdiag.rendering.text import render_outline
from workerdiag.rendering.wording import VERDICT_TEXTS, clip, one_line, printable, printable_object

_ENDS: Mapping[CauseEnd, str] = {
    "stopped": "The worker was asked to stop.",
    "raised": "The worker gave up with an error.",
    "killed": "The worker process was killed.",
    "crashed": "The worker process crashed.",
    "never-started": "The worker never started working.",
    "standstill": "No worker dies; work stands still.",
    "disconnected": "The worker and the scheduler lost each other.",
}
_RETRIES: Mapping[RetryVerdict, str] = {
    "safe": "The same work should succeed.",
    "unsafe": "The same work may fail the same way.",
    "unknown": "Unknown.",
}
_SIGNS: Mapping[str, str] = {
    "log": "a log message",
    "landmark": "a landmark",
    "exit": "the exit of the process",
    "event": "an event",
    "exception": "an exception",
    "absent": "an absence",
    "together": "signs close together",
}


def render_cause(cause: Cause, *, width: int = 80, color: bool = False) -> str:
    """The cause as lines of at most *width* columns: what happens, what shows it, what to do."""
    return render_outline(_cause_outline(cause), width=width, color=color)


def _cause_outline(cause: Cause) -> Outline:
    cause = printable_object(cause)
    again = one_line(cause.retry_advice) or _RETRIES[cause.retry]
    sections = (
        Section(title="Why", items=(Item(text=one_line(cause.why)),) if cause.why else ()),
        Section(title="Who needs to act", items=(Item(text=VERDICT_TEXTS[cause.blame]),)),
        Section(title="Signs", items=tuple(map(_sign_item, cause.signs))),
        Section(title="Signs against", items=tuple(map(_sign_item, cause.against))),
        Section(title="What to do", items=tuple(_mitigation_items(cause)), numbered=True),
        Section(title="Retry?", items=(Item(text=again),)),
        Section(
            title="Similar causes",
            items=tuple(Item(text=f"{each.cause}: {one_line(each.difference)}") for each in cause.rivals),
        ),
        Section(title="Explains", items=tuple(Item(text=each) for each in cause.explains)),
        Section(title="How to confirm it", items=tuple(_next_step_items(cause)), numbered=True),
        Section(title="Read more", items=tuple(Item(link=one_line(each)) for each in cause.references)),
    )
    return Outline(
        outcome="explained",
        lead=(
            ("Cause", one_line(cause.title)),
            ("Id", f"{cause.id}, revision {cause.revision}"),
            ("Ends", _ENDS[cause.ends]),
        ),
        summary="" if cause.status == "stable" else f"{cause.status}: {one_line(cause.deprecated_because)}",
        sections=tuple(each for each in sections if each.items),
        footer=(f"family {cause.family}", f"{cause.frequency} before any evidence", *_provenance(cause)),
    )


def _provenance(cause: Cause) -> Iterator[str]:
    if cause.author and cause.added:
        yield one_line(f"added {cause.added} by {cause.author}")
    if cause.origin:
        yield f"learned from {', '.join(cause.origin).replace('-', ' ')}"


def _sign_item(sign: Sign) -> Item:
    head = f"{sign.name}, {sign.grade}: {_SIGNS[sign.kind]}"
    seen = sign.seen[:1] if isinstance(sign, LogSign) else ()
    quote = tuple(part for line in seen for part in line.strip("\n").split("\n"))
    return Item(text=head, notes=tuple(_sign_details(sign)), quote=quote)


def _sign_details(sign: Sign) -> Iterator[tuple[str, str]]:
    """Yield the keys of a sign that are set, except those that every sign has."""
    for part in fields(type(sign)):
        value = getattr(sign, part.name)
        if part.name in ("name", "grade", "fact", "seen", "lookalikes") or not value:
            continue
        if isinstance(value, Mapping):
            value = tuple(f"{key} {wanted}" for key, wanted in value.items())
        text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield part.name.replace("_", " "), clip(one_line(printable(text)), 120)


def _mitigation_items(cause: Cause) -> Iterator[Item]:
    for each in cause.mitigations:
        notes = labelled_notes(("If", each.when), ("Only on", ", ".join(each.deployments)), ("Cost", each.cost))
        yield Item(text=one_line(each.do), notes=notes, code=tuple(_example_lines(each)))


def _example_lines(mitigation: Mitigation) -> Iterator[str]:
    """Yield the command, and under comments the commands for other deployments."""
    yield from mitigation.example.strip("\n").splitlines()
    for deployment, example in sorted(mitigation.examples.items()):
        yield f"# on {deployment}:"
        yield from printable(example).strip("\n").splitlines()


def _next_step_items(cause: Cause) -> Iterator[Item]:
    for each in cause.next_steps:
        notes = labelled_notes(("Needs", each.permission), ("Possible until", each.until))
        code = tuple(each.command.strip("\n").splitlines())
        yield Item(text=one_line(each.inspect), notes=notes, code=code)
