"""What a scheduler knows of the tasks that workers died of."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

from workerdiag.sources.cluster import scheduler_functions
from workerdiag.sources.cluster.scheduler_functions import spec_bytes
from workerdiag.sources.cluster.state import need_events


def task(key, nbytes=0, inputs=(), spec=None, prefix=None):
    return SimpleNamespace(key=key, nbytes=nbytes, dependencies=list(inputs), run_spec=spec, prefix=prefix)


def kind(**counts):
    return SimpleNamespace(
        state_counts=counts, states={"memory": 0, "processing": 1}, groups=[], duration_average=0.5
    )


def needs(tasks, prefixes, *keys, spans=(), topics=None):
    scheduler = SimpleNamespace(tasks=tasks, task_prefixes=prefixes)
    scheduler.extensions = {"spans": SimpleNamespace(root_spans=list(spans))}
    scheduler._broker = SimpleNamespace(_topics=topics or {})
    found = asyncio.run(scheduler_functions.needs(scheduler, list(keys)))
    return [each.fields for each in need_events({"needs": found})]


def test_a_task_that_is_still_known_has_its_inputs():
    """Their number, all their bytes, the largest one, and one in the middle."""
    inputs = [task(f"part-{number}", nbytes=size) for number, size in enumerate((10, 20, 900))]
    tasks = {"sum-1": task("sum-1", inputs=inputs)}

    first = needs(tasks, {"sum": kind(memory=3)}, "sum-1")[0]

    assert (first["inputs"], first["inputs_bytes"]) == (3, 930)
    assert (first["largest_input_bytes"], first["median_input_bytes"]) == (900, 20)
    assert first["finished"] == 3


def test_of_a_forgotten_task_its_kind_is_left():
    """The scheduler forgets a failed task soon, and its kind never."""
    first = needs({}, {"sum": kind(memory=3)}, "sum-1")[0]

    assert first["kind"] == "sum"
    assert first["finished"] == 3
    assert "inputs" not in first


def test_data_in_a_function_and_its_arguments_are_counted():
    """A table that a function closes over travels with each task, as do arguments."""
    table = bytes(3000)

    def look_up(index):
        return table[index]

    spec = {"function": partial(look_up, 1), "arguments": [b"x" * 500]}
    first = needs({"f-1": task("f-1", spec=spec)}, {"f": kind()}, "f-1")[0]

    assert 3500 <= first["spec_bytes"] < 3800


def test_results_that_were_freed_are_not_kept():
    """The scheduler counts the bytes that a kind of task has made in all, also those of results long gone."""
    loads = kind(memory=40)
    loads.states["memory"] = 4
    loads.states["queued"] = 3
    loads.groups = [SimpleNamespace(states={"memory": 40}, nbytes_total=4000, types={"shop.Index"})]

    first = needs({}, {"load": loads})[0]

    assert (first["kept"], first["kept_bytes"], first["types"]) == (4, 400, "shop.Index")
    assert first["expected"] == 4 + 3 + loads.states["processing"]


def test_a_long_list_of_numbers_has_its_size():
    """What a caller gives by hand is often no array: three million numbers are 100 MB in each task."""
    assert 25_000_000 < spec_bytes(partial(sum, list(range(1_000_000))), 4) < 45_000_000
    assert spec_bytes({"names": ["a" * 100] * 6400}, 4) > 640_000


def test_of_a_kind_of_which_all_are_forgotten_it_is_told_what_they_made():
    """A span keeps the groups of tasks; of a kind that was computed twice, those of the latest span count."""
    load = kind(memory=12)
    load.states["processing"] = 0
    load.name = "load"
    earlier, latest = (
        SimpleNamespace(prefix=load, states={"forgotten": count}, nbytes_total=size, types=())
        for count, size in ((9, 90), (4, 400))
    )
    spans = [SimpleNamespace(traverse_groups=partial(iter, [each])) for each in (earlier, latest)]

    made = [{"kind": "load", "finished": 12, "tasks": 4, "made_bytes": 400}]
    assert needs({}, {"load": load}, spans=spans) == made


def test_clients_that_tasks_opened_are_counted():
    """``worker_client`` and ``get_client`` open one on the worker."""
    opened = [{"action": "add-client", "client": name} for name in ("Client-worker-1", "Client-2")]
    topic = SimpleNamespace(events=[(0.0, each) for each in opened])

    assert needs({}, {"f": kind()}, "f-1", topics={"all": topic})[0]["clients"] == 1


def test_a_global_of_a_script_travels_with_its_function():
    """One of a module that a worker can import does not; an attribute of the same name is no global."""
    table = {f"gene{number}": "x" * 100 for number in range(1000)}
    names = {"table": table, "__name__": "__main__", "__builtins__": __builtins__}
    exec("def look_up(genes): return [table[each] for each in genes]", names)
    exec("def own(genes): return genes.table", names)
    module = dict(names, __name__="genes")
    exec("def look_up(genes): return [table[each] for each in genes]", module)

    assert spec_bytes(names["look_up"], 4) > 150_000
    assert spec_bytes(names["own"], 4) == 0
    assert spec_bytes(module["look_up"], 4) == 0
