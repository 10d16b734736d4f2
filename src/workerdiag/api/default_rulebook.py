"""
The rules that `explain` uses by default, loaded once per process.
"""

from __future__ import annotations

from attrs import define, field

from workerdiag.deadline import Deadline
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.load import load_rulebook_in_time


@define
class DefaultRulebook:
    """
    The shipped rules and installed packs; a pack that is too slow for one call is used by a later one.
    """

    _whole: tuple[Rulebook, Matcher] | None = field(default=None, init=False)

    def within(self, deadline: Deadline) -> tuple[Rulebook, Matcher]:
        """
        The rules with those packs that load before *deadline*, ready to run.
        """
        if self._whole is not None:
            return self._whole
        book, is_whole = load_rulebook_in_time(deadline)
        ready = book, Matcher(book)
        if is_whole:
            self._whole = ready
        return ready


#: Frozen values: two callers may share them, and two that come first at once each load them.
DEFAULT_RULEBOOK = DefaultRulebook()
