"""What is known of a computation before it runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from workerdiag.model.memory import Cure, MemoryAccount
from workerdiag.model.vocabulary import CheckGrade
from workerdiag.values import field, frozen

#: The grades of work that is expected to fail as it stands.
ALARMS: frozenset[CheckGrade] = frozenset({"too-many-threads", "will-not-fit", "result-too-big"})
_COLUMNS = 100


@frozen(kw_only=True)
class Check:
    """What is known of a computation before it runs; ``str(check)`` says it in a few lines."""

    grade: CheckGrade
    #: The sum behind the grade, in one sentence.
    why: str
    #: The terms: the limit that binds, and what one task of the largest operation takes, gives and copies.
    memory: MemoryAccount = field(factory=MemoryAccount)
    #: Changes after which it should fit, as after a death.
    cures: tuple[Cure, ...] = ()
    #: What workers lack, or have in another version than the client; one sentence each.
    missing: tuple[str, ...] = ()
    #: What could not be worked out, or is to be kept in mind; one sentence each.
    notes: tuple[str, ...] = ()

    @property
    def is_alarm(self) -> bool:
        """Whether it is expected to fail as it stands."""
        return self.grade in ALARMS

    @property
    def in_brief(self) -> str:
        """The grade with its sum on one line, and the first change."""
        return "\n".join((self._headline, *(f"{each.do}: {each.change}" for each in self.cures[:1])))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    @property
    def _headline(self) -> str:
        return f"{self.grade.replace('-', ' ').capitalize()}: {self.why}."

    def _lines(self) -> Iterator[str]:
        yield from textwrap.wrap(self._headline, _COLUMNS)
        for each in self.cures:
            yield from textwrap.wrap(f"- {each.do}. {each.why[:1].upper()}{each.why[1:]}.", _COLUMNS)
            yield f"      {each.change}"
        for text in (*self.missing, *self.notes):
            yield from textwrap.wrap(f"- {text}", _COLUMNS)
