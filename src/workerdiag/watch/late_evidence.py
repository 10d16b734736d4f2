"""
Deaths of which more became known after they were told: they are judged once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from workerdiag.incidents.watched_incident import WatchedDeath, WatchedIncident


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

    def by_case(self, incident: WatchedIncident) -> Mapping[str, frozenset[str]]:
        """
        The ids of the deaths of the incident that are in a case already, by the id of that case.
        """
        ids: dict[str, frozenset[str]] = {}
        for each in filter(self.is_late, incident.deaths):
            ids[self._case_ids[each.id]] = ids.get(self._case_ids[each.id], frozenset()) | {each.id}
        return ids

    def judged(self, deaths: Iterable[WatchedDeath]) -> None:
        """
        Let go of those of the *deaths* that were judged.
        """
        for each in deaths:
            self._deaths.pop(each.id, None)
            self._case_ids.pop(each.id, None)
