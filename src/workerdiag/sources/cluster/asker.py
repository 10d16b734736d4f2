"""Requests to one scheduler, each sent once with a deadline, and none after it stops responding."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.dask import Client, Reply, is_disallowed
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import GapReason, Place
from workerdiag.sources.cluster import queries

#: Share of the remaining time that one request may take before the scheduler counts as unresponsive.
_SHARE = 0.8
#: The same while the client is not connected: an answer is unlikely.
_SHARE_UNCONNECTED = 0.2
#: Share of a round's time for requests; the rest is for returning on time.
_ASKING_SHARE = 0.95
#: Default event topics: those that report deaths.
TOPICS = ("worker-restart-memory", "scheduler", "worker-fail-hard")


@frozen(kw_only=True)
class ClusterQuestion:
    """What to ask a cluster."""

    #: The workers that an exception names; if empty, those removed recently.
    about: tuple[Identity, ...] = ()
    #: Event topics in addition to ``all`` and the workers' own; if empty, `TOPICS`.
    topics: tuple[str, ...] = ()
    #: Keys of the tasks that those workers were executing at their last heartbeat.
    executing: tuple[str, ...] = ()
    #: Whether the caller's wait for a result timed out.
    gave_up: bool = False


class Asker:
    """Remembers answers, so that a second round requests only what the first one did not get.

    Args:
        client: The client of the scheduler to ask.
        answered: Answers of earlier rounds, by request name.
    """

    def __init__(self, client: Client, answered: Reply | None = None) -> None:
        self._client = client
        self._answered = dict(answered or {})
        self._deadline = NO_DEADLINE
        #: False once the scheduler has failed to answer in this round.
        self.is_responsive = True
        #: What this round could not get, and why.
        self.gaps: list[Gap] = []

    def next_round(self) -> Asker:
        """Return an asker for the next round, which keeps the answers."""
        return Asker(self._client, self._answered)

    def begin_round(self, deadline: Deadline) -> None:
        """Begin a round with a new *deadline* and no gaps."""
        self._deadline = deadline.share(_ASKING_SHARE)
        self.is_responsive = True
        self.gaps = []

    async def ask(self, what: str, call: Callable[[], Awaitable[object]], *, place: Place) -> Any:
        """Return the answer, or None and note a gap.

        Args:
            what: A unique name for the request.
            call: Sends the request.
            place: The place that a gap would name.
        """
        if what in self._answered:
            return self._answered[what]
        if not self.is_responsive:
            return None
        try:
            answer = await queries.answer_in_time(call, self.request_deadline())
        except Exception as problem:  # noqa: BLE001  the scheduler passes on whatever its handlers raise
            status = self.status()
            self.is_responsive = status == "running" and not _is_silence(problem)
            source = place if self.is_responsive else f"scheduler: {place}"
            place = place if self.is_responsive else "scheduler"
            self.gaps.append(queries.query_gap(source, problem, place=place, status=status))
            return None
        self._answered[what] = answer
        return answer

    def gap(self, place: Place, reason: GapReason, detail: str, remedy: str) -> None:
        """Note a gap."""
        self.gaps.append(Gap(source=place, place=place, reason=reason, detail=detail, remedy=remedy))

    def abort(self, problem: Exception) -> None:
        """Note a gap for the whole round, which failed with *problem*."""
        self.is_responsive = False
        self.gaps.append(queries.query_gap("scheduler", problem, place="scheduler", status=self.status()))

    def request_deadline(self) -> Deadline:
        """Return the deadline of a request sent now."""
        share = _SHARE if self.status() == "running" else _SHARE_UNCONNECTED
        return self._deadline.share(share)

    def status(self) -> str:
        """Return the client's connection status, such as ``running``."""
        return str(getattr(self._client, "status", "unknown"))


def _is_silence(problem: Exception) -> bool:
    """Whether nothing answered: a time-out or another error of the connection; a refusal is an answer."""
    return isinstance(problem, OSError) and not is_disallowed(problem)
