"""What may never happen, whatever the input: each a word, counted."""

from __future__ import annotations

import ctypes
import gc
import platform
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.parser import HTMLParser

from markdown_it import MarkdownIt

import workerdiag
from fuzz import corpus
from fuzz.attempts import ATTEMPTS, TIMEOUT_S
from workerdiag import Diagnosis, LogText

FAILURES = (
    "raised",
    "itself-failed",
    "over-budget",
    "memory",
    "escaped",
    "leaked",
    "wrong-all-clear",
    "died",
)
MOST_CPU_S = TIMEOUT_S * 1.1 + 0.2
MOST_BYTES = 200 * 10**6
_MARKDOWN = MarkdownIt("commonmark", {"html": True})
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BAD_TAGS = frozenset("script img iframe object embed link meta base form input video audio math".split())
#: Stands in any page, and in any Markdown, in which something acts: only such are read closely.
_SUSPECT = re.compile(
    rf"""!\[|<(?:{"|".join(sorted(_BAD_TAGS))})|[\s/"']on\w+\s*=|(?:javascript|data|vbscript):""",
    re.IGNORECASE,
)
_BAD_LINK = re.compile(r"\s*(?:javascript|data|vbscript):", re.IGNORECASE)


def failures(kind: str, data: bytes) -> list[str]:
    """What went wrong with one input."""
    peak, began = peak_bytes(), time.process_time()
    try:
        diagnosis = ATTEMPTS[kind](data)
        spent_s = time.process_time() - began
        found = list(_wrong(data, diagnosis, is_log=kind == "log")) if diagnosis else []
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt):
            raise
        return [f"raised: {type(problem).__name__}"]
    if spent_s > MOST_CPU_S:
        found.append(f"over-budget: {spent_s:.1f} s")
    if (more := peak_bytes() - peak) > MOST_BYTES:
        found.append(f"memory: {more / 1e6:.0f} MB")
    return found


def _wrong(data: bytes, diagnosis: Diagnosis, *, is_log: bool) -> Iterator[str]:
    outputs = {
        "first screen": str(diagnosis),
        "text": diagnosis.to_text(full=True),
        "markdown": diagnosis.to_markdown(),
        "html": diagnosis.to_html(),
        "json": diagnosis.to_json(),
    }
    if diagnosis.summary.startswith("workerdiag itself failed"):
        yield f"itself-failed: {diagnosis.gaps[-1].detail[:100]}"
    yield from (
        f"itself-failed: {gap.detail[:100]}" for gap in diagnosis.gaps if "could not be judged" in gap.detail
    )
    for name, output in outputs.items():
        if corpus.SECRET in output and any(line in data for line in corpus.SECRETS):
            yield f"leaked: {name}"
    yield from (f"escaped: {each}" for each in escaped(outputs))
    if is_log and diagnosis.outcome == "no-death" and corpus.DEATH in data.split(b"\n"):
        yield "wrong-all-clear"


def escaped(outputs: dict[str, str]) -> Iterator[str]:
    """What a terminal, a browser or GitHub would act upon."""
    for name in ("text", "markdown", "json"):
        if found := _CONTROL.search(outputs[name]):
            yield f"{name} has {found[0]!r}"
    more = Counter(_acting(outputs["html"])) - _of_every_page()
    yield from (f"html has {each}" for each in more)
    if _SUSPECT.search(unescape(outputs["markdown"].replace("\\", ""))):
        yield from (f"markdown has {each}" for each in _acting(_MARKDOWN.render(outputs["markdown"]))[:1])


@cache
def _of_every_page() -> Counter[str]:
    """What acts in our own page, whatever it shows: its head, and the script of its copy buttons."""
    return Counter(_acting(workerdiag.explain(logs=LogText(corpus.DEATH.decode())).to_html()))


def _acting(html: str) -> list[str]:
    reader = _Tags()
    reader.feed(html)
    return reader.bad


class _Tags(HTMLParser):
    """Collects tags and attributes that act."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag if it acts by itself."""
        if tag in _BAD_TAGS:
            self.bad.append(tag)
        self.bad += [name for name, value in attrs if name.startswith("on") or _BAD_LINK.match(value or "")]


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_memory_back() -> None:
    """Collect garbage, and have malloc give back what it keeps.

    The peak is to be that of one input, not of thousands before it.
    """
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
