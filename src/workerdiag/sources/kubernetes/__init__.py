"""Evidence from the Kubernetes API about the pods, containers and nodes of dead workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from workerdiag.deadline import CALL_FAILURES, Deadline, call_in_time
from workerdiag.errors import error_text
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.scene import Scene, Terms
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.kubernetes.api import SOURCE_NAME
from workerdiag.sources.kubernetes.search import KubernetesTarget, target_of

#: Share of the budget for requests; the event loop needs the rest to stop.
_WAITING_SHARE = 0.95


class KubernetesSource:
    """Queries the API server about the victims' pods, their events, nodes and logs; changes nothing."""

    name: ClassVar[str] = SOURCE_NAME
    terms: ClassVar[Terms] = Terms(
        lasts_s=300.0,
        permission="get and list pods, events; get pods/log, nodes",
        extra="kubernetes",
        cost="five to thirty small requests to the API server, four at a time, at most 4 MiB",
    )

    def __init__(self, target: KubernetesTarget) -> None:
        self._target = target

    @classmethod
    def of(cls, scene: Scene) -> KubernetesSource | None:
        """Return the source for *scene*; None without a sign of Kubernetes."""
        target = target_of(scene)
        return None if target is None else cls(target)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the API server's evidence, pods first, within *budget_s* seconds."""
        deadline, asking = Deadline.after(_WAITING_SHARE * budget_s), Deadline.of_budget(budget_s)
        found: list[Evidence] = []
        try:
            # An abandoned DNS look-up may hang for long.
            call_in_time("workerdiag-kubernetes", partial(self._run_session, found, asking), deadline)
        except TimeoutError:
            found.append(
                _source_gap("timed-out", "the API server did not answer in time", "kubectl get --raw /readyz")
            )
        except CALL_FAILURES as problem:
            detail = f"the answers could not be read: {error_text(problem)}"[:500]
            found.append(_source_gap("malformed", detail, "kubectl version"))
        yield from tuple(found)

    def _run_session(self, found: list[Evidence], deadline: Deadline) -> None:
        from workerdiag.sources.kubernetes.session import KubernetesSession

        async def ask() -> None:
            async with asyncio.timeout(deadline.left_s):
                await KubernetesSession(self._target, found.append, deadline).ask_all()

        try:
            asyncio.run(ask())
        except TimeoutError:
            found.append(
                _source_gap(
                    "timed-out",
                    "the time was up before all requests were sent",
                    "give it more time: timeout='60s'",
                )
            )


def _source_gap(reason: GapReason, detail: str, remedy: str) -> Gap:
    return Gap(source=SOURCE_NAME, reason=reason, detail=detail, remedy=remedy)
