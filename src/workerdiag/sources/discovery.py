"""
Everything that can be asked about a death, in the order in which it gets lost, within one budget.

First the scheduler and the nannies, which forget soonest and know who died, and what the flight
recorder kept; then, all at once, the platforms below them, of those that apply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field

from workerdiag.model.evidence import Evidence, EvidenceSource, ExceptionFacts, Gap
from workerdiag.model.scene import Location, Scene, Victim, most_perishable_first
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.deployment import setup_event
from workerdiag.sources.host.locations import find_locations
from workerdiag.sources.recorder import RecorderSource
from workerdiag.sources.recorder.selection import workers_and_tasks_in_question
from workerdiag.sources.registry import applicable_sources
from workerdiag.sources.runner import collect_all
from workerdiag.sources.scene import find_victims, make_scene, without_unknown_nannies

#: Of the budget, the live cluster may take so much; it mostly takes a tenth of a second. What is cut is asked
#: again beside the platforms, for as long as there is time.
_CLUSTER_SHARE = 0.6
#: Of the time of a round, the cluster may take so much; the rest is for telling what it said.
_ROUND_SHARE = 0.9
#: Of what is then left, asking where the dead lived.
_LOCATIONS_SHARE = 0.25
#: Of what is then left, finding out which platforms apply; installed sources are imported for it.
_REGISTRY_SHARE = 0.3
#: What one platform may say; more than that takes too long to search.
_MAX_PLATFORM_BYTES = 8 * 2**20


class Discovery:
    """
    One round of questions to a live cluster and the platforms below it.

    Args:
        client: The client, synchronous or not; None: only this machine is asked.
        facts: What the exception says, if there is one.
        budget_s: Seconds for all of it.
        topics: Topics of the scheduler's events that rules refer to.
    """

    def __init__(
        self, client: Any, facts: Sequence[Evidence], *, budget_s: float, topics: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._facts = tuple(facts)
        self._topics = tuple(topics)
        self._budget_s = budget_s
        self._deadline = time.monotonic() + budget_s

    def collect(self) -> list[Evidence]:
        """
        What they say, and gaps where they do not.
        """
        if self._client is None:
            return self._collect_platforms([])
        cluster = _BufferedCluster(self._cluster())
        pieces = collect_all([cluster, self._recorder()], budget_s=self._cluster_s())
        if not is_incomplete(pieces):
            return pieces + self._collect_platforms(pieces)
        again = _BufferedCluster(cluster.source.next_round())
        found = self._collect_platforms(pieces, beside=[again])
        return self._merge_rounds(pieces, cluster.pieces, again.pieces, found)

    async def collect_async(self) -> list[Evidence]:
        """
        The same, from within the client's event loop.
        """
        cluster = self._cluster()
        known, recorded = await asyncio.gather(
            cluster.collect_async(budget_s=self._cluster_s()),
            self._recorder().collect_async(budget_s=self._cluster_s()),
        )
        pieces = [*known, *recorded]
        platforms = asyncio.to_thread(self._collect_platforms, pieces)
        if not is_incomplete(pieces):
            return pieces + await platforms
        more, found = await asyncio.gather(
            cluster.next_round().collect_async(budget_s=_ROUND_SHARE * self._left_s()), platforms
        )
        return await asyncio.to_thread(self._merge_rounds, pieces, known, more, found)

    def _merge_rounds(
        self,
        pieces: Sequence[Evidence],
        before: Sequence[Evidence],
        now: Sequence[Evidence],
        found: Sequence[Evidence],
    ) -> list[Evidence]:
        """
        The *pieces* with what the cluster told *now* in place of what it told *before*, if that is more.

        Those whose death is only known now are asked about where they lived, too.
        """
        if not now or (is_incomplete(now) and len(now) < len(before)):
            return [*pieces, *found]
        before_ids = {id(each) for each in before}
        given_up = [each for each in pieces if isinstance(each, Gap) and each.source == ClusterSource.name]
        others = [each for each in pieces if id(each) not in before_ids and each not in given_up]
        known = [*others, *now]
        if len(find_victims([*self._facts, *known])) > len(find_victims([*self._facts, *pieces])):
            return [*known, *found, *self._collect_platforms(known)]
        return [*known, *found]

    def _cluster(self) -> ClusterSource:
        about, _ = workers_and_tasks_in_question(self._facts)
        return ClusterSource(self._client, about=about, topics=self._topics, gave_up=self._caller_timed_out())

    def _recorder(self) -> RecorderSource:
        about, tasks = workers_and_tasks_in_question(self._facts)
        return RecorderSource(self._client, about=about, tasks=tasks)

    def _cluster_s(self) -> float:
        return _CLUSTER_SHARE * self._budget_s

    def _caller_timed_out(self) -> bool:
        """
        Whether the caller's own patience ended: a ``TimeoutError`` that no task raised.
        """
        return any(
            isinstance(each, ExceptionFacts)
            and each.relation == "raised"
            and not each.from_task
            and each.type.rpartition(".")[2] == "TimeoutError"
            for each in self._facts
        )

    def _collect_platforms(
        self, pieces: Sequence[Evidence], *, beside: Sequence[EvidenceSource] = ()
    ) -> list[Evidence]:
        """
        What the platforms say of those who died, according to *pieces* and the exception.

        Args:
            pieces: What is known.
            beside: Sources to ask at the same time, whose answers are kept elsewhere.
        """
        victims = find_victims([*self._facts, *pieces])
        if not victims and (self._client is None or self._only_a_task_failed()):
            collect_all(beside, budget_s=self._left_s())
            return self._setup_events(make_scene((), (), self._client))
        if self._client is not None:
            victims = without_unknown_nannies(victims, pieces)
        location_finder = _LocationFinder(self._client, victims)
        evidence = collect_all([location_finder], budget_s=_LOCATIONS_SHARE * self._left_s())
        places = tuple(location_finder.locations)
        evidence += self._setup_events(make_scene(victims, places, self._client))
        source_finder = _SourceFinder(victims, places, self._client)
        evidence += collect_all([source_finder], budget_s=_REGISTRY_SHARE * self._left_s())
        sources = [*most_perishable_first(source_finder.sources), *beside]
        found = collect_all(sources, budget_s=self._left_s(), most_bytes=_MAX_PLATFORM_BYTES)
        buffered = {id(each) for one in beside if isinstance(one, _BufferedCluster) for each in one.pieces}
        return [*evidence, *(each for each in found if id(each) not in buffered)]

    def _setup_events(self, scene: Scene) -> list[Evidence]:
        setup = setup_event(scene)
        return [setup] if setup else []

    def _only_a_task_failed(self) -> bool:
        return any(isinstance(each, ExceptionFacts) and each.from_task for each in self._facts)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def is_incomplete(pieces: Sequence[Evidence]) -> bool:
    """
    Whether something is missing for want of time.
    """
    return any(map(_is_timeout, pieces))


def _is_timeout(piece: Evidence) -> bool:
    return isinstance(piece, Gap) and piece.reason == "timed-out"


@define
class _BufferedCluster:
    """
    A source that keeps what it told, also what nobody waited for.
    """

    source: ClusterSource
    pieces: list[Evidence] = field(factory=list, init=False)
    name: str = field(default="cluster", init=False)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        for each in self.source.collect(budget_s=_ROUND_SHARE * budget_s):
            self.pieces.append(each)
            yield each


@define
class _LocationFinder:
    """
    Asking where the dead lived, as a source, so that it can be given up like one.
    """

    _client: Any
    _victims: Sequence[Victim]
    locations: list[Location] = field(factory=list, init=False)
    name: str = field(default="location", init=False)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        self.locations, gaps = find_locations(self._client, self._victims, within_s=budget_s)
        yield from gaps


@define
class _SourceFinder:
    """
    Finding out which platforms apply, as a source: it imports and asks code of others.
    """

    _victims: Sequence[Victim]
    _places: Sequence[Location]
    _client: Any
    sources: list[EvidenceSource] = field(factory=list, init=False)
    name: str = field(default="platforms", init=False)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:  # noqa: ARG002  a source's method
        for each in applicable_sources(make_scene(self._victims, self._places, self._client)):
            if isinstance(each, Gap):
                yield each
            else:
                self.sources.append(each)
