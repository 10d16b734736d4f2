"""
Questions to one scheduler: each in time, each once, and none after it fell silent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import GapReason, Place
from workerdiag.sources.cluster import queries

#: Of the time that is left, one question may take so much; then the scheduler counts as silent.
_SHARE = 0.8
#: While the client is not connected an answer is unlikely.
_SHARE_UNCONNECTED = 0.2
#: Of the time for a round, this much is for asking; the rest for ending in time.
_ASKING_SHARE = 0.95
#: Topics of events that tell of deaths, where nobody says which are wanted.
TOPICS = ("worker-restart-memory", "scheduler", "worker-fail-hard")


@frozen(kw_only=True)
class ClusterQuestion:
    """
    What a cluster is asked.
    """

    #: The workers in question, where an exception names them; else those removed lately.
    about: tuple[Identity, ...] = ()
    #: Topics of events that are wanted, beside ``all`` and the workers' own; none: `TOPICS`.
    topics: tuple[str, ...] = ()
    #: Keys of the tasks that ran on those workers at their last heartbeat.
    executing: tuple[str, ...] = ()
    #: Whether the caller waited for a result until its own patience ended.
    gave_up: bool = False


class Asker:
    """
    Remembers what was answered, so that a second round asks for nothing but what the first one did not get.

    Args:
        client: Whose scheduler is asked.
        answered: What is known already, by question.
    """

    def __init__(self, client: Client, answered: Reply | None = None) -> None:
        self._client = client
        self._answered = dict(answered or {})
        self._deadline = NO_DEADLINE
        #: Whether the scheduler answers, as far as is known.
        self.is_responsive = True
        #: What this round did not get, and why.
        self.gaps: list[Gap] = []

    def next_round(self) -> Asker:
        """
        One for the next round.
        """
        return Asker(self._client, self._answered)

    def begin_round(self, deadline: Deadline) -> None:
        """
        A new round, with another *deadline*.
        """
        self._deadline = deadline.share(_ASKING_SHARE)
        self.is_responsive = True
        self.gaps = []

    async def ask(self, what: str, call: Callable[[], Awaitable[object]], *, place: Place) -> Any:
        """
        The answer; None, and a gap, without one.

        Args:
            what: Names the question, once among all.
            call: Asks it.
            place: Where the answer would be.
        """
        if what in self._answered:
            return self._answered[what]
        if not self.is_responsive:
            return None
        try:
            answer = await queries.answer_in_time(call, self.request_deadline())
        except Exception as problem:  # noqa: BLE001  the scheduler passes on whatever its handlers raise
            status = self.status()
            self.is_responsive = status == "running" and not isinstance(
                problem, OSError
            )  # a TimeoutError is one
            source = place if self.is_responsive else f"scheduler: {place}"
            place = place if self.is_responsive else "scheduler"
            self.gaps.append(queries.query_gap(source, problem, place=place, status=status))
            return None
        self._answered[what] = answer
        return answer

    def gap(self, place: Place, reason: GapReason, detail: str, remedy: str) -> None:
        """
        Take down that something is not there.
        """
        self.gaps.append(Gap(source=place, place=place, reason=reason, detail=detail, remedy=remedy))

    def abort(self, problem: Exception) -> None:
        """
        The round could not be brought to its end.
        """
        self.is_responsive = False
        self.gaps.append(queries.query_gap("scheduler", problem, place="scheduler", status=self.status()))

    def request_deadline(self) -> Deadline:
        """
        The deadline of a question that is asked now.
        """
        share = _SHARE if self.status() == "running" else _SHARE_UNCONNECTED
        return self._deadline.share(share)

    def status(self) -> str:
        """
        How the client sees its connection.
        """
        return str(getattr(self._client, "status", "unknown"))
