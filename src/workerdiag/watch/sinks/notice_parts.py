"""What a notice says, in the parts that every service shows in its own way.

All text in it is clean: nothing that a terminal acts upon, no character that hides or reorders others.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from urllib.parse import urlsplit

from attrs import frozen

from workerdiag.model.vocabulary import NoticeReason
from workerdiag.rendering.wording import VERDICT_TEXTS, format_percent, one_line, printable
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.notices import ENDED_TEXT, times_text

#: What people read for why the watcher speaks.
REASON_WORDS: Mapping[NoticeReason, str] = {
    "new": "New",
    "recurring": "Back again",
    "escalating": "Getting worse",
    "changed": "Another cause",
    "resolved": "Resolved",
    "ended": "Cluster shut down",
    "blind": "The watcher cannot see",
}
_LINK_WORDS = {"cause": "About this cause", "bundle": "Saved evidence"}
#: A title by the model's promise; a hostile one is cut.
_MAX_TITLE = 150
_MAX_VALUE = 300
_MAX_TEXT = 2_900
_MAX_ADVICE = 5
_MAX_LINKS = 5
#: Longer addresses are shown by no service: https://www.rfc-editor.org/rfc/rfc9110#section-4.1 names 8,000,
#: Slack takes 3,000.
_MAX_URL = 2_000


@frozen(kw_only=True)
class Card:
    """A notice in parts, each within a length that every service takes."""

    #: ``New``, ``Back again``: why the watcher speaks.
    reason: str
    title: str
    #: Paragraphs of a notice that is about no deaths; else empty.
    text: str = ""
    #: Label and value.
    facts: tuple[tuple[str, str], ...] = ()
    #: What to do, at most five sentences.
    advice: tuple[str, ...] = ()
    #: Label and web address.
    links: tuple[tuple[str, str], ...] = ()
    #: Label and what to type in a shell.
    commands: tuple[tuple[str, str], ...] = ()

    def body_text(self) -> str:
        """All but the title, in lines."""
        parts = (
            self.reason,
            self.text,
            "\n".join(f"{label}: {value}" for label, value in self.facts),
            "\n".join(f"- {sentence}" for sentence in self.advice),
            "\n".join(f"{label}: {value}" for label, value in (*self.links, *self.commands)),
        )
        return "\n\n".join(filter(None, parts))


def card_of(notice: WatchedCase) -> Card:
    """The parts of a notice."""
    is_about_deaths = notice.death_count > 0
    return Card(
        reason=REASON_WORDS[notice.reason],
        title=line(notice.title, _MAX_TITLE) or "(no title)",
        text="" if is_about_deaths else shorten(printable(notice.text).strip(), _MAX_TEXT),
        facts=tuple(_facts(notice)) if is_about_deaths else (("Cluster", line(notice.cluster)),),
        advice=tuple(filter(None, (line(each, 500) for each in notice.advice[:_MAX_ADVICE]))),
        links=tuple(_web_links(notice)),
        commands=tuple(_commands(notice)),
    )


def _facts(notice: WatchedCase) -> Iterator[tuple[str, str]]:
    yield "Cause", f"{line(notice.cause)} ({_sure(notice)})" if notice.cause else "not known"
    if notice.blame != "unknown":
        yield "Who needs to act", VERDICT_TEXTS[notice.blame]
    yield "Deaths", f"{notice.death_count}{_on_hosts(sorted(notice.hosts))}"
    if notice.unexplained_count:
        yield "Also", f"{notice.unexplained_count} of an unknown cause"
    if notice.first_victim:
        yield "First", line(notice.first_victim)
    yield "Cluster", line(notice.cluster)
    yield "Time", times_text(notice)
    if notice.reason == "ended":
        yield "Not resolved", ENDED_TEXT
    if bundle := _local_bundle(notice):
        yield "Saved evidence", bundle


def _sure(notice: WatchedCase) -> str:
    """``93%``; a number that is none counts as 0."""
    return format_percent(min(1.0, max(0.0, notice.probability)) if isfinite(notice.probability) else 0.0)


def _on_hosts(hosts: Sequence[str]) -> str:
    if not hosts:
        return ""
    names = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
    return line(f" on {len(hosts)} host{'s' if len(hosts) > 1 else ''} ({names})", start=" ")


def _local_bundle(notice: WatchedCase) -> str:
    bundle = notice.links.get("bundle", "")
    return "" if is_web_address(bundle) else line(bundle)


def _web_links(notice: WatchedCase) -> Iterator[tuple[str, str]]:
    for name, target in list(notice.links.items())[:_MAX_LINKS]:
        if is_web_address(target):
            yield _LINK_WORDS.get(name, line(name, 60) or "link"), target


def _commands(notice: WatchedCase) -> Iterator[tuple[str, str]]:
    """What to type in a shell."""
    if notice.cause and not is_web_address(notice.links.get("cause", "")):
        yield "Read more", f"workerdiag knowledge show {shlex.quote(line(notice.cause, 200))}"
    if (bundle := _local_bundle(notice)) and not bundle.endswith("..."):
        yield "Evidence", f"workerdiag report {shlex.quote(bundle)}"


def is_web_address(target: str) -> bool:
    """Whether a browser can be sent there: http or https, in printable ASCII."""
    if (
        len(target) > _MAX_URL
        or not target.isascii()
        or not target.isprintable()
        or set(' "<>\\^`{|}') & set(target)
    ):
        return False
    try:
        parts = urlsplit(target)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


def line(text: str, most: int = _MAX_VALUE, *, start: str = "") -> str:
    """The *text* clean and on one line, of at most this many characters."""
    return shorten(start + one_line(printable(text)), most)


def shorten(text: str, most: int) -> str:
    """The beginning of *text*, with dots where it was cut.

    Characters are counted as JavaScript does, in which these services are written: an emoji is two.
    """
    if len(text) * 2 <= most or _length(text) <= most:
        return text
    kept = text[:most].encode("utf-16-le")[: 2 * (most - 3)].decode("utf-16-le", errors="ignore")
    return kept.rstrip() + "..."


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", errors="replace")) // 2
