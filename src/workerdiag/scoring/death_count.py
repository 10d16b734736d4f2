"""
How many deaths there were beyond those that findings list, and how many are said.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from workerdiag.model.diagnosis import Death, UnlistedDeaths
from workerdiag.model.evidence import Gap
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import whole
from workerdiag.model.rules import SCHEDULER_STATE
from workerdiag.model.vocabulary import GapReason, MatchRole, Place

#: Deaths that findings list, at most: the first and the last.
MAX_DEATHS = 1000
#: What tells of an end.
_ENDS: frozenset[MatchRole] = frozenset(("death", "self-closed", "removal"))
#: Evidence that was not all looked at, or, in a bundle, not all kept.
_CUT: frozenset[tuple[Place, GapReason]] = frozenset(
    (
        ("log", "timed-out"),
        ("scheduler events", "timed-out"),
        ("workerdiag", "timed-out"),
        ("workerdiag", "expired"),
    )
)
_NONE = UnlistedDeaths()


def listed(deaths: Sequence[Death]) -> tuple[Death, ...]:
    """
    Of very many deaths the first and the last.
    """
    half = MAX_DEATHS // 2
    return tuple(deaths) if len(deaths) <= MAX_DEATHS else (*deaths[:half], *deaths[-half:])


def deaths_beyond_cases(incident: Incident, gaps: Sequence[Gap]) -> UnlistedDeaths:
    """
    Losses that the scheduler counted and of which nothing else is known, and whether there may be more.
    """
    states = [each.captures for each in incident.marks if each.owner == SCHEDULER_STATE]
    counted = max((whole(each.get("lost_unasked")) or 0 for each in states), default=0)
    return UnlistedDeaths(
        count=max(incident.more_deaths, counted - len(incident.cases)),
        maybe_more=bool(incident.left_out)
        or not _ENDS.isdisjoint(incident.clipped_roles)
        or any(each.get("lost_unasked_is_lower_bound") == "True" for each in states)
        or any((each.place, each.reason) in _CUT for each in gaps),
    )


@frozen(kw_only=True)
class LostWorkers:
    """
    The unexpected deaths that an answer is about, and how their number is said.
    """

    deaths: Sequence[Death]
    #: Those of which nothing but the number is known.
    beyond: UnlistedDeaths = _NONE
    #: Whether each of them was judged by itself.
    all_judged: bool = True

    @property
    def count_text(self) -> str:
        """
        ``a worker``, ``3 workers``, ``10,000 workers`` or ``at least 800 workers``.
        """
        count = len(self.deaths) + self.beyond.count
        text = "a worker" if count == 1 else f"{count:,} workers"
        return f"at least {text}" if self.beyond.maybe_more else text

    def share_text(self, cause: str) -> str:
        """
        How many died of *cause*, if several; where not all were judged, at least how many of how many.
        """
        same = sum(death.cause == cause for death in self.deaths)
        total = len(self.deaths) + self.beyond.count
        if self.all_judged and self.beyond == _NONE:
            return f"{same} worker processes" if same > 1 else ""
        least = "at least " if self.beyond.maybe_more else ""
        return f"at least {same:,} of {least}{total:,} worker processes" if total > 1 else ""
