"""Collects evidence about a death from all sources, the most short-lived first, before one deadline.

First come the scheduler and the nannies, which forget soonest and know who died, and the flight recorder.
Then the applicable platforms below them are queried in parallel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, EvidenceSource, ExceptionFacts, Gap
from workerdiag.model.replay import KitContent
from workerdiag.model.scene import Location, Scene, Victim, most_perishable_first
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.queries import ClusterQuestion
from workerdiag.sources.host.respondents import find_locations
from workerdiag.sources.modules import ModuleSource, module_question
from workerdiag.sources.recorder.source import RecorderSource
from workerdiag.sources.registry import applicable_sources
from workerdiag.sources.runner import collect_each, take_in_time
from workerdiag.sources.scene import (
    find_victims,
    make_scene,
    setup_events,
    without_unknown_nannies,
    workers_and_tasks_in_question,
)

#: Share of the time for the live cluster, which usually takes a tenth of a second. Timed-out requests are
#: repeated in parallel with the platforms.
_CLUSTER_SHARE = 0.6


class Discovery:
    """One query of a live cluster and the platforms below it, or without a client of this machine.

    *facts* is the evidence from the exception; *topics* are the scheduler's event topics that rules use.
    """

    def __init__(
        self, client: Any, facts: Sequence[Evidence], deadline: Deadline, *, topics: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._facts = tuple(facts)
        self._caught = [each for each in facts if isinstance(each, ExceptionFacts)]
        self._topics = tuple(topics)
        self._deadline = deadline
        self._about, self._tasks = workers_and_tasks_in_question(facts)
        self._recorder = RecorderSource(client, about=self._about, tasks=self._tasks)

    def collect(self) -> list[Evidence]:
        """Return all evidence, with gaps for failed queries. Another thread must run the client's event loop."""
        if self._client is None:
            return self._collect_platforms([])[0]
        cluster = self._cluster()
        first, recorded = collect_each([cluster, self._recorder], self._deadline.share(_CLUSTER_SHARE))
        pieces = [*first, *recorded]
        if not is_incomplete(pieces):
            return pieces + self._collect_platforms(pieces)[0]
        found, second = self._collect_platforms(pieces, others=[cluster.next_round()])
        if not second or (is_incomplete(second) and len(second) < len(first)):
            return [*pieces, *found]
        whole = [*recorded, *second]
        if len(self._victims(whole)) > len(self._victims(pieces)):  # the platforms were not asked about all
            found += self._collect_platforms(whole)[0]
        return [*whole, *found]

    def _victims(self, pieces: Iterable[Evidence]) -> tuple[Victim, ...]:
        return find_victims([*self._facts, *pieces])

    def _cluster(self) -> ClusterSource:
        gave_up = any(map(_is_callers_timeout, self._caught))
        question = ClusterQuestion(
            about=self._about,
            topics=self._topics,
            executing=tuple(key for each in self._caught for key in each.executing or ())[:50],
            tasks=self._tasks,
            gave_up=gave_up,
            has_failed=bool(self._caught) and not gave_up,
            workers_awaited=_workers_awaited(self._caught),
        )
        return ClusterSource(self._client, question)

    @property
    def recipe(self) -> tuple[KitContent, bytes] | None:
        """How to run again what ran as the workers died, as far as the recorder had it when it was asked."""
        return self._recorder.recipe

    def _collect_platforms(
        self, pieces: Sequence[Evidence], *, others: Sequence[EvidenceSource] = ()
    ) -> tuple[list[Evidence], list[Evidence]]:
        """Return the platforms' evidence about the victims, and that of the *others*, queried in parallel.

        The victims are those in *pieces* and in the exception.
        """
        victims = self._victims(pieces)
        only_a_task_failed = any(each.from_task for each in self._caught)
        is_callers_own = any(each.in_caller for each in self._caught)  # then no worker's machine is in question
        modules = module_question(self._client, self._caught, pieces)
        sources: list[EvidenceSource] = []
        if self._client is not None and modules.is_open:
            sources.append(ModuleSource(self._client, modules))
        evidence: list[Evidence] = []
        if is_callers_own or (not victims and (self._client is None or only_a_task_failed)):
            evidence += setup_events(make_scene((), (), self._client))
        else:
            scene = self._scene(victims, pieces, evidence)
            evidence += setup_events(scene)
            found = list(take_in_time("platforms", partial(applicable_sources, scene), self._deadline.share(0.3)))
            evidence += [each for each in found if isinstance(each, Gap)]
            sources += most_perishable_first(each for each in found if not isinstance(each, Gap))
        count = len(sources)
        sources += others
        answers = collect_each(sources, self._deadline, most_bytes=8 * 2**20)  # more takes too long to search
        return [*evidence, *chain(*answers[:count])], list(chain(*answers[count:]))

    def _scene(self, victims: Sequence[Victim], pieces: Sequence[Evidence], evidence: list[Evidence]) -> Scene:
        """Find where the *victims* ran, and note gaps in *evidence*."""
        if self._client is not None:
            victims = without_unknown_nannies(victims, pieces)
        deadline = self._deadline.share(0.25)
        find = partial(find_locations, self._client, victims, deadline)
        found = list(take_in_time("location", lambda: chain(*find()), deadline))
        evidence += [each for each in found if isinstance(each, Gap)]
        return make_scene(victims, [each for each in found if isinstance(each, Location)], self._client, pieces)


def is_incomplete(pieces: Sequence[Evidence]) -> bool:
    """Whether evidence is missing because of a time-out."""
    return any(isinstance(each, Gap) and each.reason == "timed-out" for each in pieces)


def _workers_awaited(caught: Iterable[ExceptionFacts]) -> int | None:
    """How many workers the caller waited for in vain, as ``Client.wait_for_workers`` words it (client.py)."""
    found = (re.search(r"\bOnly \d+/(\d+) workers arrived\b", each.text) for each in caught)
    return next((int(each[1]) for each in found if each), None)


def _is_callers_timeout(facts: ExceptionFacts) -> bool:
    return facts.relation == "raised" and not facts.from_task and facts.class_name == "TimeoutError"
