"""The only access to the regex engine, so that it can be replaced, and the bound on its work.

RE2 (google-re2) runs in time linear in the text, as untrusted logs require. Without its wheel, Python's ``re`` is
used, on short texts only. What is skipped for want of time is counted, so that the report can say so.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from attrs import define, field

from workerdiag.deadline import MORE_TIME, GraceDeadline
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import Place

try:
    import re2

    if not hasattr(re2, "Options"):  # another package of that name (pyre2, fb-re2)
        re2 = None
except ImportError:  # no wheel for this platform (musl, rare machines)
    re2 = None

#: Longest text for the substitute; longer texts are searched in overlapping pieces.
_GUARD_CHARS = 2_000
_OVERLAP_CHARS = 500
#: Memory limit of RE2's cache for one pattern. There are a thousand patterns; with RE2's default of 8 MiB each,
#: varied logs would take gigabytes in a long run. With half as much memory, varied text is searched at half the
#: speed.
_PATTERN_BYTES = 512 * 1024
#: After this much text the caches are dropped. Without this, 38,000 fuzzed logs took 380 MB.
_CHARS_OF_A_GENERATION = 16 * 2**20


class Generation:
    """The generation of compiled patterns: patterns of an earlier generation are compiled again.

    RE2 locks the caches of its patterns. A lock that another thread holds during a fork is never released in
    the child. And RE2 never shrinks its caches: they would grow for weeks in a long-running process.
    """

    now = 0
    _searched_chars = 0

    @classmethod
    def begin(cls) -> None:
        """Begin a new generation; compiling again takes some milliseconds."""
        cls.now += 1
        cls._searched_chars = 0
        pattern.cache_clear()  # a pattern that is not compiled again takes no memory
        if re2 is not None:
            re2.purge()

    @classmethod
    def count(cls, chars: int) -> None:
        """Count searched text, and begin a new generation after much of it."""
        cls._searched_chars += chars
        if cls._searched_chars > _CHARS_OF_A_GENERATION:
            cls.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Generation.begin)


class BadPatternError(ValueError):
    """A pattern that RE2 does not accept."""


class RegexMatch:
    """One match, in a text or a piece of it: its span and its groups."""

    __slots__ = ("_at", "_match", "_names")

    def __init__(self, match: Any, names: tuple[tuple[str, int], ...], at: int = 0) -> None:
        self._match = match
        self._names = names
        self._at = at

    def span(self) -> tuple[int, int]:
        """Return the offset of the first character, and the one behind the last."""
        start, end = self._match.span()
        return self._at + start, self._at + end

    def groupdict(self) -> dict[str, str | None]:
        """Return the text of each named group; None for a group that did not take part."""
        groups = ((name, self._match[index]) for name, index in self._names)
        return {name: text.decode() if isinstance(text, bytes) else text for name, text in groups}


class Pattern:
    """A pattern, case-insensitive, searched anywhere in a text; compiled when first used."""

    __slots__ = ("_ascii", "_made_in", "_names", "_unicode", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._made_in = -1

    def compile(self) -> Pattern:
        """Compile it, unless it is; returns it. Raises `BadPatternError` if RE2 does not accept it."""
        if self._made_in == Generation.now:
            return self
        # google-re2 converts offsets of str one by one; most log text is ASCII and needs no conversion
        self._ascii: Any = _compile_pattern(self.text.encode()) if re2 is not None and self.text.isascii() else None
        self._unicode: Any = None
        groups = (self._ascii or self._any()).groupindex.items()
        self._names = tuple((name.decode() if isinstance(name, bytes) else name, at) for name, at in groups)
        self._made_in = Generation.now
        return self

    def search(self, text: str) -> RegexMatch | None:
        """Return the first match in *text*, or None."""
        if not self._takes_bytes(text):
            return next(self.finditer(text), None)
        match = self._ascii.search(text.encode())
        return None if match is None else RegexMatch(match, self._names)

    def _takes_bytes(self, text: str) -> bool:
        """Count *text*, and return whether it can be searched as bytes."""
        Generation.count(len(text))
        self.compile()
        return self._ascii is not None and text.isascii()

    def finditer(self, text: str) -> Iterator[RegexMatch]:
        """Yield all matches, left to right, not overlapping."""
        if self._takes_bytes(text):
            for match in self._ascii.finditer(text.encode()):
                yield RegexMatch(match, self._names)
        elif re2 is not None:
            for match in self._any().finditer(text):
                yield RegexMatch(match, self._names)
        else:
            yield from self._in_pieces(text)

    def _in_pieces(self, text: str) -> Iterator[RegexMatch]:
        found: set[int] = set()
        for at in range(0, max(1, len(text)), _GUARD_CHARS - _OVERLAP_CHARS):
            for match in self._any().finditer(text[at : at + _GUARD_CHARS]):
                shifted = RegexMatch(match, self._names, at)
                if shifted.span()[0] not in found:
                    found.add(shifted.span()[0])
                    yield shifted

    def matches_whole(self, text: str) -> bool:
        """Whether the pattern matches the whole of *text*."""
        if self._takes_bytes(text):
            return self._ascii.fullmatch(text.encode()) is not None
        return self._any().fullmatch(text) is not None

    def _any(self) -> Any:
        if self._unicode is None:
            self._unicode = _compile_pattern(self.text)
        return self._unicode


@lru_cache(maxsize=4096)  # of compiled patterns only
def pattern(text: str) -> Pattern:
    """Return the compiled pattern *text*.

    Raises:
        BadPatternError: RE2 does not accept it.
    """
    return Pattern(text).compile()


def uses_re2() -> bool:
    """Whether RE2 is installed."""
    return re2 is not None


def _options(most_bytes: int | None = None) -> Any:
    options = re2.Options()
    if most_bytes is not None:
        options.max_mem = most_bytes
    options.case_sensitive = False
    options.log_errors = False
    return options


def _compile_pattern(text: str | bytes) -> Any:
    try:
        if re2 is None:
            return re.compile(text, re.IGNORECASE)
        try:  # with little memory, or with RE2's default if the pattern is too large for that
            return re2.compile(text, _options(_PATTERN_BYTES))
        except re2.error:
            return re2.compile(text, _options())
    except (re.error, ValueError) as problem:
        raise BadPatternError(str(problem)) from None
    except Exception as problem:
        if re2 is not None and isinstance(problem, re2.error):
            detail = problem.args[0] if problem.args else "not understood"
            raise BadPatternError(detail.decode() if isinstance(detail, bytes) else str(detail)) from None
        raise


@define
class SearchWork:
    """The work done for one log, and the text for which there was no time."""

    #: Deadline of all logs. The first readings find time left, so that something is searched.
    clock: GraceDeadline = field(factory=GraceDeadline)
    #: Runs of patterns, and characters searched.
    runs: int = 0
    searched_chars: int = 0
    #: Bytes parsed as lines, and assembled into messages.
    line_bytes: int = 0
    gathered_bytes: int = 0
    #: Bytes that were skipped as time was up.
    late_bytes: int = 0
    is_late: bool = False
    #: Notes about rules whose patterns could not be run: one bad rule does not prevent a diagnosis.
    left_out: dict[str, None] = field(factory=dict)
    #: Whether all matches are kept, not only the first and last of each sign.
    keeps_all: bool = False
    #: Minimum number of reports of ends by landmark, and the landmarks that may have more.
    reports: Counter[str] = field(factory=Counter)
    #: How many of them follow the text of their landmark (`Landmark.follows`).
    following: Counter[str] = field(factory=Counter)
    unsure_reports: set[str] = field(factory=set)
    #: Lines until the next reading of the clock.
    _lines_left: int = field(default=1, init=False)

    def gather(self, chars: int, lines: int) -> None:
        """Count an assembled message."""
        self.gathered_bytes += chars
        self._lines_left -= lines

    def count_run(self, chars: int) -> None:
        """Count a run of a pattern over a number of characters."""
        self.runs += 1
        self.searched_chars += chars

    def has_time(self) -> bool:
        """Whether there is time left. The clock is not read every time."""
        self._lines_left -= 1
        if self._lines_left <= 0 and not self.is_late:
            self._lines_left = 32
            self.is_late = self.clock.is_over()
        return not self.is_late

    def gaps(self, source: str, place: Place, what: str) -> Iterator[Gap]:
        """Yield the gaps for the skipped parts of *source*, counted in *what*."""
        if self.late_bytes:
            yield Gap(
                source=source,
                place=place,
                reason="timed-out",
                detail=f"{self.late_bytes} {what} were not searched",
                remedy=MORE_TIME,
            )
