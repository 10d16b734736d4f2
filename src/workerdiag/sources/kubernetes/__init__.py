"""
The Kubernetes API: what became of the pods, containers and nodes that workers died in.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from typing import ClassVar

from workerdiag.errors import describe_error
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.scene import Scene, Terms
from workerdiag.sources.kubernetes.api import SOURCE_NAME
from workerdiag.sources.kubernetes.target import KubernetesTarget, target_of

#: Of the budget, so much is for asking, and so much for both; the rest for ending in time.
_ASKING_SHARE = 0.85
_WAITING_SHARE = 0.95


class KubernetesSource:
    """
    Asks the API server about the victims' pods, their events, nodes and logs; changes nothing.

    Args:
        target: Whom to ask about; `of` works it out.
    """

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
        """
        The source for *scene*; None where nothing points to Kubernetes.
        """
        target = target_of(scene)
        return None if target is None else cls(target)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        Yield what the API server says, pods first, within *budget_s* seconds.
        """
        began = time.monotonic()
        answers: queue.SimpleQueue[Evidence | None] = queue.SimpleQueue()
        thread = threading.Thread(
            target=self._ask,
            args=(answers, began + _ASKING_SHARE * budget_s),
            name="workerdiag-kubernetes-loop",
            daemon=True,  # an abandoned look-up of a host name may hang for long
        )
        thread.start()
        while True:
            try:
                piece = answers.get(timeout=max(0.001, began + _WAITING_SHARE * budget_s - time.monotonic()))
            except queue.Empty:
                yield _source_gap(
                    "timed-out", "the API server did not answer in time", "kubectl get --raw /readyz"
                )
                return
            if piece is None:
                return
            yield piece

    def _ask(self, answers: queue.SimpleQueue[Evidence | None], deadline: float) -> None:
        try:
            asyncio.run(self._run_session(answers, deadline))
        except TimeoutError:
            answers.put(
                _source_gap(
                    "timed-out", "the time was up before all was asked", "give it more time: timeout='60s'"
                )
            )
        except Exception as problem:  # noqa: BLE001  a source never raises
            detail = f"the answers could not be read: {describe_error(problem)}"
            answers.put(_source_gap("malformed", detail[:500], "kubectl version"))
        finally:
            answers.put(None)

    async def _run_session(self, answers: queue.SimpleQueue[Evidence | None], deadline: float) -> None:
        from workerdiag.sources.kubernetes.session import KubernetesSession

        async with asyncio.timeout(deadline - time.monotonic()):
            await KubernetesSession(self._target, answers.put, deadline=deadline).ask_all()


def _source_gap(reason: str, detail: str, remedy: str) -> Gap:
    return Gap(source=SOURCE_NAME, reason=reason, detail=detail, remedy=remedy)
