"""What tasks take and what others of their kind have given, for tasks that workers died of.

The scheduler forgets a task soon after its failure. The counts of its kind last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workerdiag.model.dask import Method, Reply, Scheduler
from workerdiag.model.evidence import Event
from workerdiag.sources.cluster.scheduler_functions import pauses

#: At most this many tasks, kinds of tasks, and inputs of a task are looked at.
MAX_TASKS = 20


def needs_reader() -> Method:
    """Return a function for ``needs``: a dictionary for each of some tasks, and for each of some kinds of task.

    Of kinds of which all are forgotten there is the mean duration.
    """
    begin, spec_bytes, most, most_inputs = pauses(), _spec_sizer(), MAX_TASKS, 5000
    present = ("memory", "processing", "queued", "no-worker", "waiting")

    def of_kind(name: str, prefix: Any) -> dict[str, object]:
        from itertools import islice

        counts = getattr(prefix, "state_counts", {})
        states = getattr(prefix, "states", {})
        finished, kept = int(counts.get("memory", 0)), int(states.get("memory", 0))
        made_bytes = sum(int(each.nbytes_total) for each in islice(prefix.groups, 100))  # freed ones too
        return {
            "kind": name[:200],
            "finished": finished,  # of all that have been, forgotten ones too
            "began": int(counts.get("processing", 0)),
            "failed": int(counts.get("erred", 0)),
            "suspicious": int(getattr(prefix, "suspicious", 0)),
            "kept": kept,
            "kept_bytes": made_bytes * kept // max(finished, kept, 1),
            "seconds": float(getattr(prefix, "duration_average", -1)),
        }

    def inputs_of(task: Any) -> dict[str, object]:
        from itertools import islice

        inputs = list(islice(task.dependencies, most_inputs))
        sizes = sorted(each.nbytes for each in inputs if each.nbytes > 0)
        return {
            "inputs": len(task.dependencies),
            "inputs_bytes": sum(sizes),
            "largest_input_bytes": sizes[-1] if sizes else 0,
            "median_input_bytes": sizes[len(sizes) // 2] if sizes else 0,
            "spec_bytes": spec_bytes(getattr(task, "run_spec", None), 4),
        }

    async def needs(scheduler: Scheduler, keys: list[object]) -> list[dict[str, object]]:
        from itertools import islice

        from dask.utils import key_split

        pause = begin()
        found: list[dict[str, object]] = []
        kinds: dict[str, int] = {}
        for key in dict.fromkeys(keys):
            name = str(key_split(key))
            prefix: Any = scheduler.task_prefixes.get(name)
            if prefix is not None and kinds.setdefault(name, 0) < 2 and len(found) < most:
                kinds[name] += 1
                known = inputs_of(scheduler.tasks[key]) if key in scheduler.tasks else {}
                found.append({"key": str(key)[:500], **of_kind(name, prefix), **known})
            await pause()
        durations: list[dict[str, object]] = []
        for name, prefix in list(islice(scheduler.task_prefixes.items(), 2000)):
            if len(found) < 2 * most and any(prefix.states.get(each) for each in present):
                found.append(of_kind(str(name), prefix))
            elif len(durations) < 2 * most and prefix.duration_average >= 0:  # -1 until one has finished
                durations.append({"kind": str(name)[:200], "mean_s": prefix.duration_average})
            await pause()
        return found + durations

    return needs


def _spec_sizer() -> Method:
    """Return a function for the bytes of the arrays, frames, texts and numbers in a task's arguments and function.

    Of a long list, set or dictionary some items are looked at, and the others are taken to be alike.
    """
    most = 64

    def inside(value: Any) -> list[object]:
        from itertools import islice

        if isinstance(value, list | tuple | set | dict):
            return list(islice(value.values() if isinstance(value, dict) else value, most))
        if type(value).__module__.startswith("dask."):
            return [getattr(value, each, None) for each in ("value", "args", "kwargs", "func")]
        if type(value).__name__ == "partial":
            return [value.func, value.args, value.keywords]
        cells = (getattr(value, "__closure__", None) or ()) if type(value).__name__ == "function" else ()
        return [getattr(each, "cell_contents", None) for each in cells[:most]]

    def spec_bytes(value: Any, depth: int) -> int:
        from sys import getsizeof

        if isinstance(value, bytes | bytearray | str | int | float):
            return getsizeof(value)
        if type(value).__module__.startswith("pandas."):
            usage = value.memory_usage(deep=False) if hasattr(value, "memory_usage") else 0
            return int(usage.sum() if hasattr(usage, "sum") else usage)
        if isinstance(size := getattr(value, "nbytes", None), int):
            return size
        found = sum(spec_bytes(each, depth - 1) for each in inside(value) if each is not None) if depth else 0
        if isinstance(value, list | tuple | set | dict) and len(value) > most:
            return getsizeof(value) + found * len(value) // most
        return found

    return spec_bytes


def need_events(reply: Reply) -> Iterator[Event]:
    """Yield one event for each task and each kind of task that was looked at, and for each duration."""
    for each in reply.get("needs") or ():
        if "mean_s" in each:
            yield Event(topic="task-duration", fields=dict(each))
        else:
            yield Event(topic="task-needs", fields=dict(each))
