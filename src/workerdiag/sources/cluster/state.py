"""
How a cluster stands at this moment: who is there, who is silent, what runs, and what the client waits for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from workerdiag.model.evidence import NOBODY, Event, Identity
from workerdiag.sources.cluster.health import heartbeat_interval_s
from workerdiag.sources.cluster.selection import Removal

#: A worker from which nothing was heard for so long, and for so many intervals of heartbeats, may be silent.
_SILENT_S = 5.0
_SILENT_INTERVALS = 6
#: Tasks that the client waits for, of which each is told.
_MOST_AWAITED = 5
_WAITING = ("queued", "no-worker", "waiting")


@frozen(kw_only=True)
class Standing:
    """
    What the scheduler says of now.
    """

    #: By address, as in `Client.scheduler_info` or from a look inside.
    workers: Mapping[str, Mapping[str, Any]]
    #: How many tasks are in which state, and some of the tasks.
    counts: Mapping[str, Any]
    #: The scheduler's clock; None: not known.
    now: float | None
    #: Removals of the time in question.
    lost: Sequence[Removal] = ()
    #: Of these, how many had only just come.
    left_at_once: int = 0
    #: Nannies that there were to ask how their workers ended.
    nannies: int = 0
    #: Futures of the client that have no result yet.
    pending: int = 0
    #: Whether the caller no longer waits for a result.
    gave_up: bool = False
    ages_s: Mapping[str, float] = field(init=False, hash=False)

    @ages_s.default
    def _ages(self) -> dict[str, float]:
        """
        Seconds since each worker was heard of.
        """
        seen = {address: said.get("last_seen") for address, said in self.workers.items()}
        now = self.now
        if now is None:
            return {}
        return {
            address: max(0.0, now - when) for address, when in seen.items() if isinstance(when, int | float)
        }

    @property
    def waiting(self) -> int:
        """
        Tasks that no worker has yet, at least: where the scheduler counts only some states, by the client's.
        """
        states = self.counts.get("states", {})
        counted = sum(int(states.get(each, 0)) for each in _WAITING)
        return max(counted, self.pending)

    @property
    def lost_unasked(self) -> int:
        """
        Workers that went without anybody's order.
        """
        return sum(not each.expected for each in self.lost)

    @property
    def lost_within_s(self) -> float | None:
        """
        Seconds between the first and the last of these; None if there are fewer than two.
        """
        moments = [each.when for each in self.lost if not each.expected]
        return round(max(moments) - min(moments), 1) if len(moments) > 1 else None

    @property
    def in_trouble(self) -> bool:
        """
        Whether something is wrong that the client knows of or that the scheduler noted.
        """
        return self.gave_up or self.lost_unasked > 0 or (not self.workers and self.waiting > 0)

    def others_heard_s(self, address: str) -> float | None:
        """
        How old the freshest heartbeat of the other workers is; None without others.
        """
        return min((age for each, age in self.ages_s.items() if each != address), default=None)

    def maybe_silent(self) -> list[str]:
        """
        Workers of which nothing was heard for long, also beside the others: a stuck scheduler hears nobody.
        """
        least_s = max(_SILENT_S, _SILENT_INTERVALS * heartbeat_interval_s(len(self.workers)))
        return [
            address
            for address, age in self.ages_s.items()
            if age >= least_s and ((other := self.others_heard_s(address)) is None or other <= 0.5 * age)
        ]


def told(standing: Standing, *, silent: Collection[str], known: Mapping[str, Identity]) -> Iterator[Event]:
    """
    The cluster as a whole, and the tasks that the client waits for.

    Args:
        standing: What the scheduler says.
        silent: Workers that answer nobody.
        known: What is known of a worker, by address.
    """
    running = sum(said.get("status") == "running" for said in standing.workers.values())
    yield Event(
        topic="scheduler-state",
        fields={
            "workers": len(standing.workers),
            "running_workers": running,
            "waiting_tasks": standing.waiting,
            "lost_unasked": standing.lost_unasked,
            "lost_within_s": standing.lost_within_s,
            "nannies": standing.nannies,
            "left_at_once": standing.left_at_once,
        },  # without a time: it is of no one death, also not of the last
    )
    awaited = [each for each in standing.counts.get("tasks", ()) if each.get("awaited")]
    unfinished = [each for each in awaited if each["state"] in ("processing", *_WAITING)]
    for each in unfinished[:_MOST_AWAITED]:
        address = each.get("worker")
        yield Event(
            topic="awaited-task",
            fields={
                "key": each["key"],
                "state": each["state"],
                "worker": address,
                "runs": _what_runs(each, standing.workers),
                "running_s": _running_s(each, standing),
                "heard_s": _rounded(standing.ages_s.get(str(address))),
                "caller": "gave-up" if standing.gave_up else "waits",
                "worker_answers": None if address is None else address not in silent,
            },
            when=standing.now,
            whose=known.get(str(address), NOBODY),
        )


def _what_runs(task: Mapping[str, Any], workers: Mapping[str, Mapping[str, Any]]) -> str:
    if task.get("running_s") is not None:
        return "itself"
    return "others" if any(said.get("executing") for said in workers.values()) else "nothing"


def _running_s(task: Mapping[str, Any], standing: Standing) -> float | None:
    """
    For how long a task runs now: until the last heartbeat, and since.
    """
    ran_s = task.get("running_s")
    if not isinstance(ran_s, int | float):
        return None
    return _rounded(ran_s + standing.ages_s.get(str(task.get("worker")), 0.0))


def executing_in_words(said: Mapping[str, Any]) -> str | None:
    """
    What ran on a worker at its last heartbeat, and for how long then; None without a look inside.
    """
    listed = said.get("executing")
    if not isinstance(listed, list | tuple):
        return None
    return ", ".join(f"{key} for {ran_s:.1f} s" for key, ran_s in listed) or "nothing yet"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
