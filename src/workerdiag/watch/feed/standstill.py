"""Notices a standstill, work that does not go on although tasks wait, by cheap figures; then collects evidence."""

from __future__ import annotations

from workerdiag.model.dask import Client
from workerdiag.model.evidence import Evidence
from workerdiag.sources.cluster import ClusterSource
from workerdiag.wire.watch_answer import ClusterFigures

#: Seconds between two collections of evidence while it lasts.
_AGAIN_S = 60.0
_ASK_S = 5.0


class StandstillWatch:
    """Remembers since when work has stood still.

    Args:
        least_s: Minimum duration of a standstill, in seconds: workers may be on their way.
    """

    def __init__(self, *, least_s: float) -> None:
        self._least_s = least_s
        #: Time of the last answer, by the scheduler's clock.
        self._now = 0.0
        self._since: float | None = None
        self._asked_at: float | None = None
        self._evidence: tuple[Evidence, ...] = ()

    @property
    def due_in_s(self) -> float | None:
        """Return the seconds from the last answer until it counts as a standstill.

        None if work goes on, or it counts already.
        """
        if self._since is None or self._asked_at is not None:
            return None
        return max(0.0, self._least_s - (self._now - self._since))

    async def evidence(self, figures: ClusterFigures, client: Client, *, now: float) -> tuple[Evidence, ...]:
        """Return the evidence of a standstill; empty without one.

        Args:
            figures: The current figures of the cluster.
            client: A connection to its scheduler, which is asked once a minute while the standstill lasts.
            now: The scheduler's clock, in seconds.
        """
        self._now = now
        if not stands_still(figures):
            self._since = self._asked_at = None
            self._evidence = ()
            return ()
        if self._since is None:
            self._since = now
        if now - self._since < self._least_s:
            return ()
        if self._asked_at is None or now - self._asked_at >= _AGAIN_S:
            self._asked_at = now
            self._evidence = tuple(await ClusterSource(client).collect_async(budget_s=_ASK_S))
        return self._evidence


def stands_still(figures: ClusterFigures) -> bool:
    """Whether tasks wait and nothing runs: no workers, none that takes tasks, or none that fits."""
    if figures.executing_count or not (figures.waiting_count or figures.assigned_count):
        return False
    return figures.running_worker_count == 0 or figures.assigned_count == 0
