"""
Deaths of which more became known after they were told: they are judged once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import define, evolve, field

from workerdiag.incidents.alert_incident import AlertIncident, WatchedDeath


@define(eq=False)
class LateEvidence:
    """
    Deaths that are in a case already and came again, as a nanny's report may come minutes later.

    They are kept in memory only: without them a case says what was thought first.
    """

    _deaths: dict[str, WatchedDeath] = field(factory=dict, init=False)
    _case_ids: dict[str, str] = field(factory=dict, init=False)

    def __bool__(self) -> bool:
        return bool(self._deaths)

    def add(self, deaths: Iterable[WatchedDeath], case_ids: Mapping[str, str]) -> None:
        """
        Note those of the *deaths* that are in a case, by its id.
        """
        for each in deaths:
            if each.id in case_ids and each.evidence and not each.is_expected:
                self._deaths[each.id] = each
                self._case_ids[each.id] = case_ids[each.id]

    def deaths(self) -> tuple[WatchedDeath, ...]:
        """
        The deaths, with all that is known of them now.
        """
        return tuple(self._deaths.values())

    def is_late(self, death: WatchedDeath) -> bool:
        """
        Whether the death is in a case already.
        """
        return death.id in self._deaths

    def without(self, incident: AlertIncident) -> AlertIncident | None:
        """
        The incident with the deaths that are in no case yet; None if all are.
        """
        fresh = tuple(each for each in incident.deaths if not self.is_late(each))
        if len(fresh) == len(incident.deaths):
            return incident
        return evolve(incident, deaths=fresh, when=fresh[0].when) if fresh else None

    def counts(self, incident: AlertIncident) -> Mapping[str, int]:
        """
        How many deaths of the incident are in which case already.
        """
        return Counter(self._case_ids[each.id] for each in incident.deaths if self.is_late(each))

    def judged(self, deaths: Iterable[WatchedDeath]) -> None:
        """
        Let go of those of the *deaths* that were judged.
        """
        for each in deaths:
            self._deaths.pop(each.id, None)
            self._case_ids.pop(each.id, None)
