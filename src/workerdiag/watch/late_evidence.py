"""Deaths with late evidence, which are judged again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from workerdiag.incidents.incident import WatchedDeath, WatchedIncident


@define(eq=False)
class LateEvidence:
    """Deaths that are in a case and came again, for example when a nanny reports minutes later.

    They are kept in memory only: if they are lost, the first judgement stays.
    """

    _deaths: dict[str, WatchedDeath] = field(factory=dict, init=False)
    _case_ids: dict[str, str] = field(factory=dict, init=False)

    def __bool__(self) -> bool:
        return bool(self._deaths)

    def add(self, deaths: Iterable[WatchedDeath], case_ids: Mapping[str, str]) -> None:
        """Add those of the *deaths* that are in a case."""
        for each in deaths:
            if each.id in case_ids and each.evidence and not each.is_expected:
                self._deaths[each.id] = each
                self._case_ids[each.id] = case_ids[each.id]

    def deaths(self) -> tuple[WatchedDeath, ...]:
        """Return the deaths, with all their evidence."""
        return tuple(self._deaths.values())

    def is_late(self, death: WatchedDeath) -> bool:
        """Whether the death is in a case."""
        return death.id in self._deaths

    def by_case(self, incident: WatchedIncident) -> Mapping[str, frozenset[str]]:
        """Return the ids of the deaths of the incident that are in a case, by the id of the case."""
        ids: dict[str, frozenset[str]] = {}
        for each in filter(self.is_late, incident.deaths):
            ids[self._case_ids[each.id]] = ids.get(self._case_ids[each.id], frozenset()) | {each.id}
        return ids

    def judged(self, deaths: Iterable[WatchedDeath]) -> None:
        """Remove the *deaths* that were judged."""
        for each in deaths:
            self._deaths.pop(each.id, None)
            self._case_ids.pop(each.id, None)
