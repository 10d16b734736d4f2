"""The present state of a cluster: its workers, its tasks, what the client waits for, and the client itself."""

from __future__ import annotations

import ast
import errno
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from heapq import nsmallest
from types import MappingProxyType

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Event
from workerdiag.model.identity import NO_IDENTITY, Identity, identity_of
from workerdiag.sources.cluster.losses import Losses, heartbeat_interval_s
from workerdiag.sources.cluster.synchronization import Wait, graph_waits_at, wait_fields
from workerdiag.values import frozen

#: No losses are known.
NO_LOSSES = Losses()
#: A worker without a heartbeat in this many more seconds is silent.
LISTENING_S = 1.2
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
    #: Workers that the client's cluster object wants; None without one, or if it scales by itself.
    workers_wanted: int | None = None
    #: Workers that the caller waited for in vain.
    workers_awaited: int | None = None

    @cached_property
    def ages_s(self) -> Mapping[str, float]:
        """Seconds since the last heartbeat of each worker; empty without the scheduler's clock."""
        if (now := self.now) is None:
            return {}
        seen = ((address, worker.get("last_seen")) for address, worker in self.workers.items())
        return {address: max(0.0, now - when) for address, when in seen if isinstance(when, int | float)}

    @cached_property
    def _freshest(self) -> list[tuple[str, float]]:
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
        """Return workers whose last heartbeat is old, also compared with the others'; or all, if all are silent.

        A blocked scheduler receives no heartbeats at all: that all are silent needs a second look that is long
        enough for a heartbeat of each.
        """
        least_s = max(5.0, 6 * self.heartbeat_interval_s)
        old = [address for address, age in self.ages_s.items() if age >= least_s]
        if len(old) == len(self.workers) and self.heartbeat_interval_s < LISTENING_S:
            return old

        def is_older_than_others(address: str) -> bool:
            other = self.others_heartbeat_age_s(address)
            return other is None or other <= 0.5 * self.ages_s[address]

        return [each for each in old if is_older_than_others(each)]


def scheduler_clock(snapshot: Reply, workers: Mapping[str, Reply]) -> float | None:
    """Return the scheduler's clock from a snapshot, or else the latest of several heartbeats."""
    last_seen = [worker["last_seen"] for worker in workers.values() if worker.get("last_seen")]
    now: float | None = snapshot.get("now") or (max(last_seen) if len(last_seen) > 1 else None)
    return now


def awaited_tasks(counts: Reply) -> list[Reply]:
    """Return the first unfinished tasks among those that the client waits for."""
    awaited = [each for each in counts.get("tasks", ()) if each.get("awaited")]
    return [each for each in awaited if each["state"] in ("processing", *_WAITING)][:5]


def undelivered_errors(counts: Reply, client: Client) -> Iterator[Event]:
    """Yield one event for each failed task whose future still waits: the client could not read the error."""
    for task in counts.get("tasks", ()):
        if task.get("awaited") and task["state"] == "erred":
            future = getattr(client, "futures", {}).get(parsed_key(task["key"]))
            if getattr(future, "status", "") == "pending":
                yield Event(topic="undelivered-error", fields={"key": task["key"], "error": task.get("error")})


def state_events(
    state: ClusterState,
    *,
    silent: Collection[str],
    known: Mapping[str, Identity],
    waits: Mapping[str, Wait | None] = MappingProxyType({}),
) -> Iterator[Event]:
    """Yield one event for the whole cluster, and one for each task that the client waits for.

    *silent* are the addresses of silent workers, *known* the identities by worker address, and *waits* what
    running tasks wait for themselves, by key; None: they do not.
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
            "unknown_tasks": int(state.counts.get("unknown_count", 0)),
            "graph_waits_at": graph_waits_at() if state.counts.get("unknown_count") else None,
            "workers_wanted": state.workers_wanted,
            "workers_awaited": state.workers_awaited,
            "fewer_wanted": _is_fewer(state.workers_wanted, state.workers_awaited),
            "lost_unasked": state.losses.count,
            "lost_unasked_is_lower_bound": state.losses.is_lower_bound,
            "lost_within_s": state.losses.within_s,
            "lost_replacements": state.losses.replacements,
            "lost_results": state.losses.results,
            "lost_last_s": _seconds_since(state.losses.last_when, state.now),
            "lost_threads": state.losses.threads,
            "nannies": state.nannies,
            "left_at_once": state.losses.left_at_once,
            "worker_plugins": int(state.counts.get("plugins", 0)),
            "starved_tasks": int(state.counts.get("starved_count", 0)),
            "overdue_tasks": int(state.counts.get("overdue_count", 0)),
            "idle_tasks": int(state.counts.get("idle_count", 0)),
            "threads_taken_s": _round_or_none(state.counts.get("threads_taken_s")),
        },  # without a time: it belongs to no single death, not even the last
    )
    all_wait = bool(waits) and None not in waits.values()
    for each in awaited_tasks(state.counts):
        address = each.get("worker")
        yield Event(
            topic="awaited-task",
            fields={
                "key": each["key"],
                **wait_fields(waits.get(each["key"]), state.counts.get("contention", ())),
                "state": each["state"],
                "worker": address,
                "runs": _what_runs(each, state),
                "running_s": _running_s(each, state),
                "heard_s": _round_or_none(state.ages_s.get(str(address))),
                "all_wait": all_wait or None,
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


def _is_fewer(count: int | None, other: int | None) -> bool | None:
    return None if count is None or other is None else count < other


def _seconds_since(when: float | None, now: float | None) -> float | None:
    return None if when is None or now is None else round(max(0.0, now - when), 1)


def _round_or_none(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def wanted_keys(client: Client) -> list[object]:
    """Return the keys of the client's failed and pending futures, failed ones first."""
    return [*_futures_with(client, "error"), *_futures_with(client, "pending")][:50]


def pending_count(client: Client) -> int:
    """Return the number of the client's pending futures."""
    return len(_futures_with(client, "pending"))


def _futures_with(client: Client, status: str) -> list[object]:
    futures = list(getattr(client, "futures", {}).items())
    return [key for key, each in futures if getattr(each, "status", "") == status]


async def count_states(client: Client) -> Reply:
    """Return only the number of tasks in each ordinary state, without running a function on the scheduler."""
    states = Counter[str]()
    for prefix in (await client.scheduler.get_task_prefix_states()).values():
        states.update(prefix)
    return {"states": states}


def parsed_key(text: str) -> object:
    """Return the key whose ``str()`` is *text*; keys of collections are tuples, such as ``('x', 0)``."""
    if not text.startswith("("):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def finished_kind_events(reply: Reply, keys: Collection[str]) -> Iterator[Event]:
    """Yield one event for each of the *keys* of whose task prefix at least one task has finished."""
    finished = {task["key"] for task in reply.get("tasks", ()) if task.get("kind_finished")}
    yield from (Event(topic="finished-kind", fields={"key": key}) for key in keys if key in finished)


def lost_task_events(reply: Reply, known: Mapping[str, Identity]) -> Iterator[Event]:
    """Yield for each lost worker how many tasks it had, and how many of them are still to be done."""
    for address, assigned, unfinished in (reply.get("removals") or {}).get("fates", ()):
        yield Event(
            topic="lost-tasks",
            fields={"worker": address, "assigned": assigned, "unfinished": unfinished},
            identity=identity_of(worker=address).merged_with(known.get(address, NO_IDENTITY)),
        )


def task_state_events(reply: Reply) -> Iterator[Event]:
    """Yield one event for each task state, with the most suspicious task as its example."""
    for state, count in reply.get("states", {}).items():
        if not count or state == "forgotten":
            continue
        tasks = [task for task in reply.get("tasks", ()) if task["state"] == state]
        fields: dict[str, str | int | None] = {"state": str(state), "count": int(count)}
        if not reply.get("whole", True):
            fields["counted"] = "at least"
        if tasks:
            example = max(tasks, key=lambda task: (task["suspicious"], bool(task["restrictions"])))
            fields |= {
                "key": example["key"],
                "suspicious": int(example["suspicious"]),
                "restrictions": _most_common([task["restrictions"] for task in tasks]),
                "exception_blame": example["exception_blame"],
            }
        yield Event(topic="task-state", fields=fields)


def _most_common(texts: Collection[str]) -> str | None:
    stated = [text for text in texts if text]
    return max(stated, key=stated.count) if stated else None


def need_events(reply: Reply) -> Iterator[Event]:
    """Yield one event for each task and each kind of task that was looked at, and for each forgotten kind."""
    for each in reply.get("needs") or ():
        yield (Event(topic="task-needs", fields=each) if "kept" in each else Event(topic="tasks-made", fields=each))


#: What an address says by the error of a connection (``man 2 connect``).
_ANSWER_OF_ERROR = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ETIMEDOUT: "no-answer",
}


def client_state_events(client: Client, deadline: Deadline) -> Iterator[Event]:
    """Yield one event: the status of the client, of its scheduler's address, and of a scheduler in this process.

    The address is connected to once, for at most a second, and nothing is sent.
    """
    with guarded("asking the client for its own state"):
        scheduler = getattr(client, "scheduler", None)
        address = str(getattr(scheduler, "address", "") or "")
        cluster = getattr(client, "cluster", None)
        in_process = getattr(cluster, "scheduler", None)
        status = str(getattr(client, "status", "unknown"))
        if address or in_process is not None or status == "closed":
            yield Event(
                topic="client-state",
                fields={
                    "status": status,
                    "address": address or None,
                    "answer": _answer_of(address, deadline.share(at_most_s=1.0).left_s),
                    "cluster": _name_of(getattr(cluster, "status", None)),
                    "scheduler": _name_of(getattr(in_process, "status", None)),
                },
            )


def _name_of(status: object) -> str | None:
    name = getattr(status, "name", status)
    return name if isinstance(name, str) else None


def _answer_of(address: str, timeout_s: float) -> str | None:
    """What an address of TCP says: ``answers``, ``refused``, ``no-route``, ``no-answer``, ``unknown-host``."""
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if protocol not in ("tcp", "tls", "ws", "wss") or not port.isdigit() or timeout_s <= 0:
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
    except socket.gaierror:
        return "unknown-host"
    except TimeoutError:
        return "no-answer"
    except OSError as problem:
        return _ANSWER_OF_ERROR.get(problem.errno or 0)
    return "answers"
