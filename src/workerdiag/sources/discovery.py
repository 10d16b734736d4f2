"""
Everything that can be asked about a death, in the order in which it gets lost, before one deadline.

First the scheduler and the nannies, which forget soonest and know who died, and what the flight
recorder kept; then, all at once, the platforms below them, of those that apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, EvidenceSource, ExceptionFacts, Gap
from workerdiag.model.scene import Location, Scene, Victim, most_perishable_first
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.asker import ClusterQuestion
from workerdiag.sources.host.locations import find_locations
from workerdiag.sources.recorder import RecorderSource
from workerdiag.sources.registry import applicable_sources
from workerdiag.sources.runner import collect_all, collect_each, take_in_time
from workerdiag.sources.scene import (
    find_victims,
    make_scene,
    setup_event,
    without_unknown_nannies,
    workers_and_tasks_in_question,
)

#: Of the time, the live cluster may take this share; it mostly takes a tenth of a second. What is cut is
#: asked again beside the platforms, for as long as there is time.
_CLUSTER_SHARE = 0.6
#: Tasks of lost workers that the scheduler is asked about.
_MAX_EXECUTING = 50
#: Of what is then left, asking where the dead lived.
_LOCATIONS_SHARE = 0.25
#: Of what is then left, finding out which platforms apply; installed sources are imported for it.
_REGISTRY_SHARE = 0.3
#: What one platform may say; more than that takes too long to search.
_MAX_PLATFORM_BYTES = 8 * 2**20


class Discovery:
    """
    One round of questions to a live cluster and the platforms below it; without a client, to this machine.

    *facts* are what the exception says, *topics* those of the scheduler's events that rules refer to.
    """

    def __init__(
        self,
        client: Any,
        facts: Sequence[Evidence],
        deadline: Deadline,
        *,
        topics: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._facts = tuple(facts)
        self._topics = tuple(topics)
        self._deadline = deadline

    def collect(self) -> list[Evidence]:
        """
        What they say, and gaps where they do not.
        """
        if self._client is None:
            return self._collect_platforms([])[0]
        cluster = self._cluster()
        told, recorded = collect_each([cluster, self._recorder()], self._deadline.share(_CLUSTER_SHARE))
        pieces = [*told, *recorded]
        if not is_incomplete(pieces):
            return pieces + self._collect_platforms(pieces)[0]
        found, again = self._collect_platforms(pieces, beside=[cluster.next_round()])
        return self._merge_rounds(told, recorded, again, found)

    async def collect_async(self) -> list[Evidence]:
        """
        The same, from within the client's event loop.
        """
        cluster = self._cluster()
        budget_s = self._deadline.share(_CLUSTER_SHARE).left_s
        told, recorded = await asyncio.gather(
            cluster.collect_async(budget_s=budget_s), self._recorder().collect_async(budget_s=budget_s)
        )
        pieces = [*told, *recorded]
        platforms = asyncio.to_thread(self._collect_platforms, pieces)
        if not is_incomplete(pieces):
            return pieces + (await platforms)[0]
        again, (found, _) = await asyncio.gather(
            cluster.next_round().collect_async(budget_s=self._deadline.left_s), platforms
        )
        return await asyncio.to_thread(self._merge_rounds, told, recorded, again, found)

    def _merge_rounds(
        self,
        told: Sequence[Evidence],
        recorded: Sequence[Evidence],
        again: Sequence[Evidence],
        found: Sequence[Evidence],
    ) -> list[Evidence]:
        """
        All evidence, with what the cluster said *again* in place of what it *told*, if that is more.

        The platforms are asked about deaths that are only known now.
        """
        if not again or (is_incomplete(again) and len(again) < len(told)):
            return [*told, *recorded, *found]
        known = [*recorded, *again]
        if len(find_victims([*self._facts, *known])) > len(find_victims([*self._facts, *told, *recorded])):
            return [*known, *found, *self._collect_platforms(known)[0]]
        return [*known, *found]

    def _cluster(self) -> ClusterSource:
        about, _ = workers_and_tasks_in_question(self._facts)
        killed = [each for each in self._facts if isinstance(each, ExceptionFacts)]
        executing = [key for each in killed for key in each.executing or ()]
        question = ClusterQuestion(
            about=about,
            topics=self._topics,
            executing=tuple(executing[:_MAX_EXECUTING]),
            gave_up=self._caller_timed_out(),
        )
        return ClusterSource(self._client, question)

    def _recorder(self) -> RecorderSource:
        about, tasks = workers_and_tasks_in_question(self._facts)
        return RecorderSource(self._client, about=about, tasks=tasks)

    def _caller_timed_out(self) -> bool:
        """
        Whether the caller itself timed out: a ``TimeoutError`` that no task raised.
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
    ) -> tuple[list[Evidence], list[Evidence]]:
        """
        What the platforms say of the dead, and what the sources *beside* them say.

        The dead are those of *pieces* and of the exception.
        """
        victims = find_victims([*self._facts, *pieces])
        if not victims and (self._client is None or self._only_a_task_failed()):
            return _setup_events(make_scene((), (), self._client)), collect_all(beside, self._deadline)
        if self._client is not None:
            victims = without_unknown_nannies(victims, pieces)
        locations, evidence = self._find_locations(victims)
        scene = make_scene(victims, locations, self._client)
        evidence += _setup_events(scene)
        platforms: list[EvidenceSource] = []
        deadline = self._deadline.share(_REGISTRY_SHARE)
        for each in take_in_time("platforms", partial(applicable_sources, scene), deadline):
            if isinstance(each, Gap):
                evidence.append(each)
            else:
                platforms.append(each)
        sources = [*most_perishable_first(platforms), *beside]
        answers = collect_each(sources, self._deadline, most_bytes=_MAX_PLATFORM_BYTES)
        count = len(platforms)
        return [*evidence, *chain(*answers[:count])], list(chain(*answers[count:]))

    def _find_locations(self, victims: Sequence[Victim]) -> tuple[list[Location], list[Evidence]]:
        deadline = self._deadline.share(_LOCATIONS_SHARE)
        find = partial(find_locations, self._client, victims, deadline)
        found = list(take_in_time("location", lambda: chain(*find()), deadline))
        places = [each for each in found if isinstance(each, Location)]
        return places, [each for each in found if isinstance(each, Gap)]

    def _only_a_task_failed(self) -> bool:
        return any(isinstance(each, ExceptionFacts) and each.from_task for each in self._facts)


def is_incomplete(pieces: Sequence[Evidence]) -> bool:
    """
    Whether something is missing for want of time.
    """
    return any(map(_is_timeout, pieces))


def _is_timeout(piece: Evidence) -> bool:
    return isinstance(piece, Gap) and piece.reason == "timed-out"


def _setup_events(scene: Scene) -> list[Evidence]:
    setup = setup_event(scene)
    return [setup] if setup else []
