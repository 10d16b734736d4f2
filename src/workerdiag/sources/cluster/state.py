"""The present state of a cluster: its workers, the silent ones, what runs, and what the client waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from heapq import nsmallest

from attrs import field, frozen

from workerdiag.model.dask import Reply
from workerdiag.model.evidence import Event
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.sources.cluster.health import heartbeat_interval_s
from workerdiag.sources.cluster.losses import Losses

#: No losses are known.
NO_LOSSES = Losses()
#: A worker without a heartbeat for this many seconds and this many intervals may be silent.
_SILENT_S = 5.0
_SILENT_INTERVALS = 6
#: At most this many of the tasks that the client waits for become evidence.
_MAX_AWAITED = 5
_WAITING = ("queued", "no-worker", "waiting")


@frozen(kw_only=True)
class ClusterState:
    """The scheduler's view of the cluster at one moment."""

    #: By address, as in `Client.scheduler_info` or a snapshot; of a large cluster only the relevant ones.
    workers: Mapping[str, Reply]
    #: Number of workers in the cluster; None if `workers` has all.
    worker_count: int | None = None
    #: Number of tasks in each state, and some tasks; from a snapshot also counts of workers.
    counts: Reply
    #: The scheduler's clock, in seconds since the epoch; None if unknown.
    now: float | None
    #: Workers lost unexpectedly in the relevant time.
    losses: Losses = NO_LOSSES
    #: Number of nannies found to ask how their workers ended.
    nannies: int = 0
    #: Futures of the client that have no result yet.
    pending: int = 0
    #: Whether the caller no longer waits for a result.
    gave_up: bool = False
    ages_s: Mapping[str, float] = field(init=False, hash=False)

    @ages_s.default
    def _ages(self) -> dict[str, float]:
        seen = {address: worker.get("last_seen") for address, worker in self.workers.items()}
        now = self.now
        if now is None:
            return {}
        return {
            address: max(0.0, now - when) for address, when in seen.items() if isinstance(when, int | float)
        }

    @cached_property
    def _freshest(self) -> list[tuple[str, float]]:
        """The two most recent heartbeats."""
        return nsmallest(2, self.ages_s.items(), key=lambda each: each[1])

    @property
    def waiting(self) -> int:
        """Lower bound of the tasks that no worker has yet.

        Where the scheduler counts only some states, it is the number of the client's pending futures.
        """
        states = self.counts.get("states", {})
        counted = sum(int(states.get(each, 0)) for each in _WAITING)
        return max(counted, self.pending)

    @property
    def in_trouble(self) -> bool:
        """Whether the client or the scheduler noticed a failure."""
        return self.gave_up or self.losses.count > 0 or (not self.workers and self.waiting > 0)

    @property
    def heartbeat_interval_s(self) -> float:
        """Seconds between heartbeats of one worker."""
        return heartbeat_interval_s(self.worker_count or len(self.workers))

    def others_heartbeat_age_s(self, address: str) -> float | None:
        """Return the age of the most recent heartbeat of any other worker; None without others."""
        return next((age for each, age in self._freshest if each != address), None)

    def maybe_silent(self) -> list[str]:
        """Return workers whose last heartbeat is old, also compared with the others'.

        A blocked scheduler receives no heartbeats at all.
        """
        least_s = max(_SILENT_S, _SILENT_INTERVALS * self.heartbeat_interval_s)
        return [
            address
            for address, age in self.ages_s.items()
            if age >= least_s
            and ((other := self.others_heartbeat_age_s(address)) is None or other <= 0.5 * age)
        ]


def scheduler_clock(snapshot: Reply, workers: Mapping[str, Reply]) -> float | None:
    """Return the scheduler's clock from a snapshot, or else the latest of several heartbeats."""
    last_seen = [worker["last_seen"] for worker in workers.values() if worker.get("last_seen")]
    now: float | None = snapshot.get("now") or (max(last_seen) if len(last_seen) > 1 else None)
    return now


def state_events(
    state: ClusterState, *, silent: Collection[str], known: Mapping[str, Identity]
) -> Iterator[Event]:
    """Yield one event for the whole cluster, and one for each task that the client waits for.

    Args:
        state: The scheduler's view of the cluster.
        silent: Addresses of the silent workers.
        known: Identities by worker address.
    """
    running = state.counts.get("running_count")
    if running is None:
        running = sum(worker.get("status") == "running" for worker in state.workers.values())
    yield Event(
        topic="scheduler-state",
        fields={
            "workers": state.worker_count or len(state.workers),
            "running_workers": running,
            "waiting_tasks": state.waiting,
            "lost_unasked": state.losses.count,
            "lost_unasked_is_lower_bound": state.losses.is_lower_bound,
            "lost_within_s": state.losses.within_s,
            "nannies": state.nannies,
            "left_at_once": state.losses.left_at_once,
            "worker_plugins": int(state.counts.get("plugins", 0)),
            "starved_tasks": int(state.counts.get("starved_count", 0)),
            "overdue_tasks": int(state.counts.get("overdue_count", 0)),
            "idle_tasks": int(state.counts.get("idle_count", 0)),
            "threads_taken_s": _round_or_none(state.counts.get("threads_taken_s")),
        },  # without a time: it belongs to no single death, not even the last
    )
    awaited = [each for each in state.counts.get("tasks", ()) if each.get("awaited")]
    unfinished = [each for each in awaited if each["state"] in ("processing", *_WAITING)]
    for each in unfinished[:_MAX_AWAITED]:
        address = each.get("worker")
        yield Event(
            topic="awaited-task",
            fields={
                "key": each["key"],
                "state": each["state"],
                "worker": address,
                "runs": _what_runs(each, state),
                "running_s": _running_s(each, state),
                "heard_s": _round_or_none(state.ages_s.get(str(address))),
                "caller": "gave-up" if state.gave_up else "waits",
                "worker_answers": None if address is None else address not in silent,
            },
            when=state.now,
            identity=known.get(str(address), NO_IDENTITY),
        )


def _what_runs(task: Reply, state: ClusterState) -> str:
    if task.get("running_s") is not None:
        return "itself"
    does_any = state.counts.get("is_any_executing")
    if does_any is None:
        does_any = any(worker.get("executing") for worker in state.workers.values())
    return "others" if does_any else "nothing"


def _running_s(task: Reply, state: ClusterState) -> float | None:
    """Return the seconds that a task has run: up to the last heartbeat, plus the heartbeat's age."""
    ran_s = task.get("running_s")
    if not isinstance(ran_s, int | float):
        return None
    return _round_or_none(ran_s + state.ages_s.get(str(task.get("worker")), 0.0))


def describe_executing(worker: Reply) -> str | None:
    """Describe what a worker ran at its last heartbeat, and for how long; None without a snapshot."""
    listed = worker.get("executing")
    if not isinstance(listed, list | tuple):
        return None
    return ", ".join(f"{key} for {ran_s:.1f} s" for key, ran_s in listed) or "nothing yet"


def _round_or_none(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
