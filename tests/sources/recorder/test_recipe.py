"""What is made of a scheduler's recipe and of what is recorded of the deaths."""

from __future__ import annotations

import pytest

from support.death_records import NOW, nanny_report, scheduler_record, worker_address
from workerdiag.model.evidence import TasksAtLoss
from workerdiag.model.replay import KitDeath, RecipeGap
from workerdiag.sources.recorder.death_evidence import tasks_at_loss
from workerdiag.sources.recorder.recorded_deaths import read_recipe
from workerdiag.wire.messages import decode_message
from workerdiag.wire.recorded_death import identity_of_death, merge_messages


def recorded(*messages):
    """Deaths with what was on each worker."""
    deaths = merge_messages([decode_message(each) for each in messages])
    return [(each, tasks_at_loss(each, identity_of_death(each))) for each in deaths]


def reply(*deaths, **more):
    """As a scheduler answers: of each death the number of its worker, and its tasks."""
    plain = [{"worker": worker_address(number), "at": NOW + number, "tasks": tasks} for number, tasks in deaths]
    return {"schema": 1, "deaths": plain, "gaps": [], "recipe": b"pickle", **more}


def test_a_kit_knows_which_tasks_ran_and_under_what():
    """By the black box; the limit, the threads and the modules are those of the worker that died last."""
    box = {"identity": {"modules": "numpy dask", "python": "3.11.7"}, "samples": ()}
    messages = [scheduler_record(), nanny_report(box=box, terminate_fraction=0.9)]
    gap = {"key": "data", "reason": "no-recipe"}
    content, data = read_recipe(reply((1, ["wait", "load"]), gaps=[gap]), recorded(*messages), ["wait"])
    assert data == b"pickle"
    assert content.deaths == (KitDeath(worker=worker_address(1), at=NOW + 1, tasks=("load",), is_known=True),)
    assert (content.killed, content.tasks) == ("wait", ("wait", "load"))
    assert (content.limit_bytes, content.nthreads, content.terminate_fraction) == (100, 1, 0.9)
    assert (content.modules, content.versions) == (("numpy", "dask"), {"python": "3.11.7"})
    assert content.gaps == (RecipeGap(key="data", reason="no-recipe"),)


def test_without_a_report_as_many_tasks_are_taken_as_there_are_threads():
    """First those that ran at the last heartbeat, then the likeliest."""
    messages = [scheduler_record(nthreads=2)]
    content, _ = read_recipe(reply((1, ["wait", "load", "more"])), recorded(*messages), [])
    assert content.deaths[0].tasks == ("load", "wait")
    assert not content.deaths[0].is_known


def test_without_a_blamed_task_the_one_that_ran_last_is_it():
    """As where the error is not KilledWorker."""
    answer = reply((1, ["wait", "load"]), (2, ["other"]))
    assert read_recipe(answer, recorded(scheduler_record(), scheduler_record(2)), ["gone"])[0].killed == "load"
    assert read_recipe(answer, [], [])[0].killed == "other"


@pytest.mark.parametrize(
    "answer",
    [{}, reply(), {**reply((1, ["load"])), "recipe": "text"}],
    ids=["an older recorder", "no deaths", "no pickle"],
)
def test_no_recipe_makes_no_kit(answer):
    """Whatever came instead."""
    assert read_recipe(answer, [], ["load"]) is None


def test_a_worker_that_is_not_recorded_has_its_likeliest_task():
    """The ring may have forgotten it."""
    death = read_recipe(reply((7, ["a", "b"])), [], [])[0].deaths[0]
    assert death.tasks == ("a",)
    assert isinstance(recorded(scheduler_record())[0][1], TasksAtLoss)
