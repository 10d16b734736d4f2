"""What the recorder promises about recipes, with tasks made of plain objects; tests/lab has real ones."""

from __future__ import annotations

import asyncio
import pickle
import threading
from types import SimpleNamespace

import pytest

from workerdiag.recorder import recipes
from workerdiag.recorder.recipes import Recipes


class Task:
    """As the scheduler's TaskState, as far as it is looked at."""

    def __init__(self, key, spec="spec", inputs=(), suspicious=0):
        self.key, self.run_spec, self.dependencies = key, spec, set(inputs)
        self.suspicious, self.priority, self.state = suspicious, (0, 1, 0), "processing"


def died(kept, tasks, *, worker="tcp://10.0.0.4:1001", executing=()):
    """Have a worker with these tasks removed."""
    scheduler = SimpleNamespace(tasks={each.key: each for each in tasks})
    state = SimpleNamespace(address=worker, executing=dict.fromkeys(executing, 1.0))
    kept.keep(scheduler, state, {"processing-tasks": [each.key for each in tasks]})
    for thread in threading.enumerate():
        if thread.name == "workerdiag-recipes":
            thread.join()


def answer(kept, **question):
    """What a client is answered, and the steps in it."""
    reply = asyncio.run(kept.answer(**question))
    return reply, pickle.loads(reply["recipe"]) if reply["recipe"] else {}


def test_a_recipe_has_the_tasks_and_all_their_ancestors():
    """Also those of which Dask has forgotten everything by the time that somebody asks."""
    kept = Recipes()
    read = Task("read", "how to read")
    load = Task("load", "how to load", [read])
    work = Task("work", "how to work", [load])
    died(kept, [work])
    for each in (work, load, read):
        each.dependencies.clear()
        each.state = "forgotten"
    reply, steps = answer(kept)
    assert steps == {
        "work": ("how to work", ("load",)),
        "load": ("how to load", ("read",)),
        "read": ("how to read", ()),
    }
    assert [each["tasks"] for each in reply["deaths"]] == [["work"]]


def test_the_tasks_that_ran_come_first_then_the_most_suspicious():
    """Of many tasks that were assigned, these are the likeliest to have run."""
    kept = Recipes()
    tasks = [Task(f"task-{number}") for number in range(recipes.MAX_TASKS + 5)]
    tasks[-1].suspicious = 2
    died(kept, tasks, executing=[tasks[-2]])
    assert answer(kept)[0]["deaths"][0]["tasks"][:2] == [tasks[-2].key, tasks[-1].key]
    assert len(answer(kept)[0]["deaths"][0]["tasks"]) == recipes.MAX_TASKS


def test_data_has_no_recipe_and_is_named():
    """What a user scattered was never computed."""
    kept = Recipes()
    died(kept, [Task("work", inputs=[Task("scattered", spec=None)])])
    assert answer(kept)[0]["gaps"] == [{"key": "scattered", "reason": "no-recipe"}]


def test_more_ancestors_than_the_limit_are_left_out_and_said(monkeypatch):
    """The nearest stay."""
    monkeypatch.setattr(recipes, "MAX_SPECS", 3)
    task = Task("task-0")
    for number in range(1, 6):
        task = Task(f"task-{number}", inputs=[task])
    kept = Recipes()
    died(kept, [task])
    reply, steps = answer(kept)
    assert list(steps) == ["task-5", "task-4", "task-3"]
    assert reply["gaps"] == [{"key": "task-2", "reason": "too-many"}]


def test_the_event_loop_is_not_held_up_by_a_large_graph(monkeypatch):
    """It is followed bit by bit, with whatever else the scheduler has to do in between."""
    monkeypatch.setattr(recipes, "_SLICE_S", 0.0)
    kept, turns = Recipes(), []

    async def run():
        loop = asyncio.get_running_loop()
        died(kept, [Task("sum", inputs=[Task(f"part-{number}") for number in range(1000)])])
        while not any(each.name == "workerdiag-recipes" for each in threading.enumerate()) and len(turns) < 500:
            turns.append(loop.time())
            await asyncio.sleep(0)
        return await kept.answer()

    reply = asyncio.run(run())
    assert len(turns) > 10
    assert (len(pickle.loads(reply["recipe"])), reply["gaps"]) == (1001, [])


def test_a_specification_with_much_data_is_left_out_and_said(monkeypatch):
    """The others of that death stay."""
    monkeypatch.setattr(recipes, "MAX_BYTES", 10_000)
    kept = Recipes()
    died(kept, [Task("work", ("small",), [Task("frame", (bytes(9_990),))])])
    reply, steps = answer(kept)
    assert list(steps) == ["work"]
    assert reply["gaps"] == [{"key": "frame", "reason": "too-large"}]


def test_the_oldest_recipes_make_room_for_the_newest(monkeypatch):
    """By size, and by number; a specification that several deaths share counts once."""
    monkeypatch.setattr(recipes, "MAX_BYTES", 10_000)
    kept = Recipes()
    for number in range(3):
        died(kept, [Task(f"work-{number}", (bytes(4_000),))], worker=f"tcp://10.0.0.{number}:1")
    assert kept.size_bytes <= 10_000
    assert list(answer(kept, about=["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"])[1]) == ["work-1", "work-2"]
    shared = Task("shared", (bytes(6_000),))
    for number in range(recipes.MAX_DEATHS + 1):
        died(kept, [shared], worker=f"tcp://10.0.1.{number}:1")
    reply, _ = answer(kept, tasks=["shared"])
    assert len(reply["deaths"]) == recipes.MAX_DEATHS


def test_the_deaths_in_question_are_answered_and_else_the_last():
    """By worker, or by a task that Dask gave up on."""
    kept = Recipes()
    for name in "abc":
        died(kept, [Task(name)], worker=f"tcp://{name}:1")
    assert list(answer(kept)[1]) == ["c"]
    assert list(answer(kept, about=["tcp://a:1"])[1]) == ["a"]
    assert sorted(answer(kept, about=["tcp://a:1"], tasks=["b"])[1]) == ["a", "b"]


@pytest.mark.parametrize(
    ("spec", "most", "why"),
    [((threading.Lock(),), 10**6, "cannot be pickled"), ((bytes(5_000),), 1_000, "more than 1000")],
    ids=["a lock", "too large"],
)
def test_why_there_is_no_pickle_is_said(spec, most, why):
    """The tasks of the deaths are known all the same."""
    kept = Recipes()
    died(kept, [Task("work", spec)])
    reply, steps = answer(kept, most_bytes=most)
    assert why in reply["problem"]
    assert steps == {}
    assert reply["deaths"][0]["tasks"] == ["work"]
