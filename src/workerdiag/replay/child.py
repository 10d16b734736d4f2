"""The process in which tasks are replayed. It is run as a file, and imports nothing of workerdiag.

By its job (JSON) it computes the inputs of all tasks and writes each task with these to a file, or runs the task of
one such file, as a worker would: in a thread, beside that of Dask's profiler. It answers in files.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import json
import pickle
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any


def run_spec(spec: Any, inputs: Mapping[Any, Any]) -> Any:
    """What a task returns, by its specification of any release of Dask."""
    if type(spec) is tuple:  # until 2024.10: function, arguments, named arguments
        from distributed.utils_comm import pack_data as pack

        pack_data: Any = pack

        function, arguments, named = spec
        kinds = (bytes, str, tuple)
        found = function(
            *pack_data(arguments, inputs, key_types=kinds), **pack_data(named, inputs, key_types=kinds)
        )
    else:
        found = spec(inputs)
    return asyncio.run(found) if inspect.iscoroutine(found) else found


def prepare(job: Mapping[str, Any]) -> None:
    """Compute the inputs of the tasks, and write each with its task."""
    import cloudpickle

    steps = pickle.loads(Path(job["recipe"]).read_bytes())  # noqa: S301  who has it replayed trusts it
    data = pickle.loads(Path(job["data"]).read_bytes()) if job["data"] else {}  # noqa: S301  as above
    keys = {str(key)[: job["key_chars"]]: key for key in steps}
    ancestors = {name: find_ancestors(keys[name], steps, data) for name in job["tasks"] if name in keys}
    missing = {
        name: [key for key, inputs in needed.items() if inputs is None] for name, needed in ancestors.items()
    }
    names = [name for name, lacks in missing.items() if not lacks]
    wanted = [keys[name] for name in names]
    needed = {key: inputs or () for name in names for key, inputs in ancestors[name].items()}
    uses = Counter(each for inputs in needed.values() for each in inputs)
    uses.update(each for key in wanted for each in steps[key][1])
    values: dict[Any, Any] = {}
    for key in TopologicalSorter(needed).static_order():
        values[key] = (
            data[key] if key in data else run_spec(steps[key][0], {each: values[each] for each in needed[key]})
        )
        for each in needed[key]:
            uses[each] -= 1
            if not uses[each]:
                del values[each]
    for name, key in zip(names, wanted, strict=True):
        spec, inputs = steps[key]
        with Path(job["paths"][name]).open("wb") as file:
            cloudpickle.dump((spec, {each: values[each] for each in inputs}), file)
    lacking = {name: [str(key)[:200] for key in lacks[:3]] for name, lacks in missing.items()}
    answer(
        {"ready": names, "missing": {name: lacking.get(name, [name]) for name in job["tasks"] if name not in names}}
    )


def find_ancestors(
    key: Any, steps: Mapping[Any, Any], data: Mapping[Any, Any]
) -> dict[Any, tuple[Any, ...] | None]:
    """The tasks that a task needs, with what each of them takes; None for one that cannot be computed."""
    found: dict[Any, tuple[Any, ...] | None] = {}
    ahead = list(steps[key][1])
    while ahead:
        each = ahead.pop()
        if each not in found:
            found[each] = () if each in data else steps[each][1] if each in steps else None
            ahead += found[each] or ()
    return found


def run(job: Mapping[str, Any]) -> None:
    """Run one task, and measure."""
    for name in ("distributed.nanny", "distributed.worker", *job["modules"]):
        with suppress(Exception):  # what is missing here is not missed
            importlib.import_module(name)
    before = memory("VmRSS")
    with Path(job["path"]).open("rb") as file:
        spec, inputs = pickle.load(file)  # noqa: S301  it was written by `prepare`
    gc.collect()
    base = memory("VmRSS")
    with suppress(OSError):  # then the peak is that since the process began
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    numbers = {"base_bytes": base, "inputs_bytes": max(0, base - before) if inputs else 0}
    answer(numbers)
    path = job.get("memray")
    with importlib.import_module("memray").Tracker(path) if path else nullcontext():
        result = run_spec(spec, inputs)
    answer({**numbers, "peak_bytes": memory("VmHWM")})
    del result


def memory(name: str) -> int:
    """Bytes of this process, by the name of ``/proc/self/status``."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def answer(numbers: Mapping[str, object]) -> None:
    """Replace the answer; whoever reads it sees the old or the new one."""
    unfinished = ANSWER.with_suffix(".new")
    unfinished.write_text(json.dumps(numbers), encoding="utf-8")
    unfinished.replace(ANSWER)


def main(job: Mapping[str, Any]) -> None:
    """Do the job in the thread of this call, and note what it raises."""
    try:
        JOBS[job["kind"]](job)
    except BaseException as problem:  # noqa: BLE001  a task may raise anything
        traceback.print_exc()
        answer({"raised": f"{type(problem).__name__}: {problem}"[:500]})


JOBS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"prepare": prepare, "run": run}

if __name__ == "__main__":
    JOB = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    ANSWER = Path(JOB["answer"])
    THREAD = threading.Thread(target=main, args=(JOB,), name="Dask-Default-Threads-replay")
    THREAD.start()
    with suppress(Exception):  # it costs a worker some memory, too
        from distributed.profile import watch

        watch(THREAD.ident, interval="10ms")
    THREAD.join()
