"""
From chunks of log text to matches, in one pass: all patterns of a rulebook, ready to run.

What is found depends on the text alone, not on how it was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from workerdiag.matching.scan.literals import NoLiteralError, literals
from workerdiag.matching.scan.log_scan import LogScan
from workerdiag.matching.scan.pattern_sets import PatternGroups
from workerdiag.matching.scan.pattern_table import MatchObserver, PatternOwner, left_out_note
from workerdiag.matching.scan.prefilter import LiteralHits, LiteralScan
from workerdiag.matching.sign_tables import SignTables
from workerdiag.matching.text.repair import MAX_BYTES, RepairedText, repair_text
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Landmark, Rulebook

#: Up to so much waits for what follows: the end of a log is looked at in one piece.
_MOST_HELD_BYTES = 1280 * 1024


class Matcher:
    """
    All signs of a rulebook, its log patterns ready to run.

    Nothing in it changes but caches of what is compiled, so threads may share it.
    """

    def __init__(self, book: Rulebook) -> None:
        #: Its other signs.
        self.signs = SignTables(book)
        self._by_pattern: dict[str, list[PatternOwner]] = {}
        for wanted in _pattern_owners(book):
            self._by_pattern.setdefault(wanted.pattern, []).append(wanted)
        patterns_of: dict[str, list[str]] = {}
        left_out: dict[str, None] = {}
        for text, signs in self._by_pattern.items():
            try:
                for literal in book.literals.get(text) or literals(text):
                    patterns_of.setdefault(literal, []).append(text)
            except NoLiteralError as problem:
                left_out.update((left_out_note(each.owner, each.sign, problem), None) for each in signs)
        #: Notes of rules that cannot be used: one bad rule does not cost the diagnosis.
        self.left_out = tuple(left_out)
        self._scan = LiteralScan(patterns_of)
        self._patterns_of = tuple(map(tuple, patterns_of.values()))
        self._together = PatternGroups(
            {
                text: frozenset(each.unless for each in signs if each.unless)
                for text, signs in self._by_pattern.items()
                if all(each.unless for each in signs)
            }
        )
        #: Patterns for headings.
        self._in_header = {text for text, signs in self._by_pattern.items() if signs[0].in_header}

    def matches(
        self,
        chunks: Iterable[LogChunk],
        observer: MatchObserver | None = None,
        work: WorkBudget | None = None,
    ) -> Iterator[Match]:
        """
        All matches in the chunks of one log, in the order of the text.

        Args:
            chunks: They follow each other; text may have been left out between them.
            observer: Is told where in the text they are, unless copying had damaged it.
            work: Says when time is up, and notes what was done.
        """
        log: LogScan | None = None
        held: list[LogChunk] = []
        held_bytes, is_excerpt = 0, True
        for chunk in chunks:
            log = log or LogScan(self, chunk, observer, work)
            if held_bytes > MAX_BYTES or chunk.first_line is not None:
                is_excerpt = False
                log.feed(held)
                held, held_bytes = [], 0
            if chunk.first_line is not None:
                log.skip_to(chunk.first_line)
            held.append(chunk)
            held_bytes += len(chunk.data)
            if held_bytes > _MOST_HELD_BYTES:
                is_excerpt = False
                log.feed(held)
                held, held_bytes = [], 0
        if log is None:
            return
        is_excerpt = is_excerpt and held_bytes <= MAX_BYTES
        whole = repair_text(b"".join(chunk.data for chunk in held)) if is_excerpt else None
        if whole is not None:
            yield from self._repaired_matches(log, whole)
            return
        yield from log.finish(held)

    def _repaired_matches(self, scan: LogScan, repaired: RepairedText) -> Iterator[Match]:
        """
        What the mended text shows, at the lines of the text as it was given.
        """
        log = LogScan(self, scan.like, work=scan.work)
        for match in log.finish([evolve(scan.like, data=repaired.data)]):
            first, last, top = (
                repaired.line_numbers[min(at, len(repaired.line_numbers)) - 1] if at else 0
                for at in (match.line, match.last_line, match.message_line)
            )
            yield evolve(match, line=first, last_line=last, message_line=top, offset=None)

    @property
    def literal_count(self) -> int:
        """
        How many literals there are.
        """
        return len(self._patterns_of)

    def candidates(self, block: bytes | memoryview, work: WorkBudget) -> LiteralHits:
        """
        Places worth a closer look, and how many bytes there was time to search.
        """
        return self._scan.hits(block, work.clock.deadline)

    def scan_without_places(self, literals: frozenset[int]) -> LiteralScan | None:
        """
        A scan that tells of *literals* whether they are there, no more; None where that is no quicker.
        """
        return self._scan.without_places(literals)

    def texts(self, literal: int) -> tuple[str, ...]:
        """
        The patterns to try where the literal of that number stands.
        """
        return self._patterns_of[literal]

    def matching(self, texts: tuple[str, ...], message: bytes) -> tuple[str, ...]:
        """
        Those of the patterns *texts* that match *message* or its heading, and maybe others.
        """
        if self._in_header.isdisjoint(texts):
            return self._together.matching(texts, message)
        inside = tuple(text for text in texts if text not in self._in_header)
        headings = (text for text in texts if text in self._in_header)
        return (*headings, *self._together.matching(inside, message))

    def wanted(self, text: str) -> list[PatternOwner]:
        """
        Whose signs the pattern *text* is.
        """
        return self._by_pattern[text]


def _pattern_owners(book: Rulebook) -> Iterator[PatternOwner]:
    for owner, name, rule in book.log_rules():
        mark = rule if isinstance(rule, Landmark) else None
        for pattern in rule.wordings:
            yield PatternOwner(
                owner=owner,
                sign=name,
                role=mark.role if mark else "sign",
                pattern=pattern,
                unless=rule.unless,
                unless_in_line=mark.unless_in_line if mark else None,
                streams=rule.streams,
                implied=_implied_captures(mark) if mark else (),
                in_header=mark.in_header if mark else False,
            )


def _implied_captures(landmark: Landmark) -> tuple[tuple[str, str], ...]:
    pairs = (("signal", landmark.signal), ("status", landmark.status))
    return tuple((key, str(value)) for key, value in pairs if value is not None)
