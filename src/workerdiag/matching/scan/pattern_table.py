"""
What a log on its way through the matcher needs to know of others: patterns, and who listens.
"""

from __future__ import annotations

from typing import Protocol

from attrs import field, frozen

from workerdiag.matching.scan.prefilter import LiteralHits, LiteralScan
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.evidence import LogExcerpt
from workerdiag.model.vocabulary import MatchRole, Stream


@frozen(kw_only=True)
class PatternOwner:
    """
    A pattern and whose sign it is.
    """

    owner: str
    sign: str
    role: MatchRole
    pattern: str
    #: What rules the sign out where it matches in the message, or in the very lines.
    unless: str | None
    unless_in_line: str | None
    streams: tuple[Stream, ...]
    #: Captures that the message implies.
    implied: tuple[tuple[str, str], ...] = ()
    #: Whether the pattern is for ``logger - LEVEL - message``.
    in_header: bool = False
    #: The sign's owner, and its name.
    key: tuple[str, str] = field(init=False)

    @key.default
    def _key(self) -> tuple[str, str]:
        return self.owner, self.sign


def left_out_note(owner: str, sign: str, problem: Exception) -> str:
    """
    The note of a rule whose pattern cannot be used.
    """
    return f"{owner} {sign}".strip() + f" is left out: {problem}"


class PatternTable(Protocol):
    """
    What a log needs to know of the matcher.
    """

    @property
    def literal_count(self) -> int:
        """
        How many literals there are.
        """

    def candidates(self, block: bytes | memoryview, work: WorkBudget) -> LiteralHits:
        """
        Places worth a closer look, and how many bytes there was time to search.
        """

    def scan_without_places(self, literals: frozenset[int]) -> LiteralScan | None:
        """
        A scan that tells of *literals* whether they are there, no more; None where that is no quicker.
        """

    def texts(self, literal: int) -> tuple[str, ...]:
        """
        The patterns to try where the literal of that number stands.
        """

    def matching(self, texts: tuple[str, ...], message: bytes) -> tuple[str, ...]:
        """
        Those of the patterns *texts* that match *message* (ASCII) or its heading, and maybe others.
        """

    def wanted(self, text: str) -> list[PatternOwner]:
        """
        Whose signs the pattern *text* is.
        """


class MatchObserver(Protocol):
    """
    Somebody who wants the text around each match.
    """

    def on_match(self, origin: str, sign: tuple[str, str], message: LogExcerpt) -> None:
        """
        A message of the log *origin* shows *sign* (its owner, and its name).
        """
