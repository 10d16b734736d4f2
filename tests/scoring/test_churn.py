"""A cluster that only churns is told as that, and what only looks like it is not."""

from __future__ import annotations

import pytest
from attrs import evolve

from workerdiag import load_rulebook
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.evidence import Event, ExceptionFacts, Inspected, ProcessExit, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.pipeline import diagnose
from workerdiag.rendering.wording import churn_lines

BOOK = load_rulebook()
NOW = 1_795_281_103.0
QUEUED = Event(topic="task-state", fields={"state": "queued", "count": 40})
KIND = Event(topic="task-needs", fields={"kind": "load", "finished": 80, "kept": 10})


def worker(number):
    """One of the workers, each with its own address."""
    return Identity(worker=f"tcp://10.0.0.4:{3000 + number}", pid=3000 + number)


def state(deaths, *, replacements, last_s=2.0, **fields):
    """What the scheduler says of itself and of the workers that it lost."""
    known = {
        "workers": 2,
        "running_workers": 2,
        "waiting_tasks": 40,
        "nannies": 2,
        "lost_unasked": deaths,
        "lost_within_s": 30.0,
        "lost_replacements": replacements,
        "lost_results": 36,
        "lost_last_s": last_s,
    }
    return Event(topic="scheduler-state", fields=known | fields)


def removed(number, *, expected=False):
    """The scheduler's event of a removal."""
    who = worker(number)
    fields = {"action": "remove-worker", "worker": who.worker, "processing": "load-1", "expected": expected}
    return Event(topic="all", fields=fields, when=NOW + 5 * number, identity=who)


def killed(number):
    """A worker that its nanny killed for its memory, with work that others have done since."""
    who = worker(number)
    terminated = {"worker": who.worker, "pid": who.pid, "rss": 510 * 2**20}
    fate = {"worker": who.worker, "assigned": 1, "unfinished": 0}
    return (
        removed(number),
        Event(topic="worker-restart-memory", fields=terminated, when=NOW + 5 * number, identity=who),
        Event(topic="lost-tasks", fields=fate, identity=who),
    )


def lost_spot(number):
    """A worker whose machine its provider took back."""
    who, at = worker(number), NOW + 5 * number
    fields = {"action": "closing-worker", "reason": "signal-15", "worker": who.worker}
    return (Event(topic=who.worker, fields=fields, when=at, identity=who), removed(number))


def retired(number):
    """A worker that left as asked: at the end of its lifetime, or because it was not needed."""
    who = worker(number)
    fields = {"action": "closing-worker", "reason": "worker-lifetime-reached", "worker": who.worker}
    return (
        Event(topic=who.worker, fields=fields, when=NOW + 5 * number, identity=who),
        removed(number, expected=True),
    )


def found(*events, exc=None):
    """The diagnosis."""
    evidence = [*([exc] if exc else []), *events, QUEUED, KIND, Inspected(place="scheduler events")]
    return diagnose(evidence, BOOK)


def deaths(count, kind=killed):
    """The events of several ends."""
    return [each for number in range(count) for each in kind(number)]


def test_workers_that_die_in_the_place_of_others_are_a_churn():
    """It has its numbers, each with its origin or what would show it, and the cause of the newest deaths."""
    diagnosis = found(*deaths(6), state(6, replacements=4))
    churn = diagnosis.churn
    assert (diagnosis.outcome, churn.cause) == ("explained", "nanny.memory-terminate")
    assert (churn.deaths, churn.period_s, churn.replacements) == (6, 30.0, 4)
    assert (churn.lost_results.count, churn.finished.count) == (36, 80)
    assert all(each.origin for each in (churn.lost_results, churn.finished))
    assert (churn.interrupted.count, "recorder" in churn.interrupted.missing) == (None, True)


def test_its_deaths_are_the_matter_though_their_work_was_done_elsewhere():
    """Tasks finish between the deaths, so each death alone looks made good."""
    diagnosis = found(*deaths(6), state(6, replacements=4))
    assert not diagnosis.deaths_are_separate
    assert diagnosis.memory is not None
    assert "6 deaths in 30 seconds" in str(Diagnosis.from_json(Diagnosis(**fields_of(diagnosis)).to_json()))


def fields_of(diagnosis):
    """The fields by their names."""
    return {name: getattr(diagnosis, name) for name in type(diagnosis).__slots__ if not name.startswith("_")}


def test_every_form_of_the_report_says_it():
    """HTML and Markdown have the line and the numbers too."""
    diagnosis = Diagnosis(**fields_of(found(*deaths(6), state(6, replacements=4))))
    for text in (diagnosis.to_html(), diagnosis.to_markdown(), diagnosis.to_text(full=True)):
        assert "again and again" in text
        assert "36 of 80 finished results" in " ".join(text.split())


def test_the_report_says_how_much_is_done_twice():
    """In plain sentences."""
    lines = churn_lines(found(*deaths(6), state(6, replacements=4)))
    assert lines[0].startswith("Workers die and are replaced again and again: 6 deaths in 30 seconds")
    assert lines[1] == "Work is done twice: 36 of 80 finished results (45%) were lost with their workers"


def test_the_recorder_counts_the_tasks_that_begin_again():
    """It saw what ran at each death."""
    ran = [TasksAtLoss(identity=worker(each), tasks=("load-1", "load-2"), exact=True) for each in range(5)]
    term = found(*deaths(6), *ran, state(6, replacements=4)).churn.interrupted
    assert (term.count, term.origin) == (10, "the flight recorder, for 5 of the deaths")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((*deaths(6), state(6, replacements=0)), "one batch: none of them had replaced another"),
        ((*deaths(2), state(2, replacements=1)), "one died again: no more than a coincidence"),
        ((*deaths(6), state(6, replacements=4, last_s=90.0)), "nobody has died for long"),
        ((*deaths(8, retired), state(0, replacements=0)), "they left as asked"),
        ((*deaths(8, retired), *killed(9), state(1, replacements=1)), "one death among renewals"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_only_looks_like_it(events, why):
    """Batches, renewals at the end of a lifetime, adaptive scaling, and what is over."""
    assert found(*events).churn is None, why


def test_machines_that_are_taken_back_again_and_again_are_no_matter_of_memory():
    """It may be a churn, but of the platform: no account, no cure of memory."""
    diagnosis = found(*deaths(6, lost_spot), state(6, replacements=4))
    assert diagnosis.churn is None or not str(diagnosis.churn.cause).startswith("nanny.memory")
    assert (diagnosis.memory, diagnosis.cures) == (None, ())


def test_deaths_of_another_cause_do_not_count():
    """A segmentation fault after a batch of memory deaths does not make one trouble of two."""
    crash = [
        piece
        for number in (7, 8)
        for piece in (
            removed(number),
            ProcessExit(reporter="nanny log", signal=11, when=NOW + 5 * number, identity=worker(number)),
        )
    ]
    assert found(*deaths(6), *crash, state(8, replacements=6)).churn is None


def test_a_caught_error_is_answered_first():
    """KilledWorker was raised: then something is raised."""
    exc = ExceptionFacts(type="distributed.scheduler.KilledWorker", text="", task="load-1", identity=worker(5))
    assert found(*deaths(6), state(6, replacements=4), exc=exc).churn is None


def test_no_churn_without_work():
    """All is done: it is over."""
    idle = diagnose([*deaths(6), state(6, replacements=4, waiting_tasks=0)], BOOK)
    assert idle.churn is None


def test_a_churn_is_not_over_when_no_worker_is_left():
    """A cluster that gave up its nannies has nobody left to die, and its work waits for ever."""
    diagnosis = found(*deaths(6), state(6, replacements=4, last_s=90.0, workers=0))
    assert churn_lines(diagnosis)[0].startswith(
        "Workers die and are replaced again and again, and none is left now:"
    )


@pytest.mark.parametrize(("finished", "reason"), [(42, "leak"), (9, "too-many-at-once")])
def test_workers_that_finish_several_tasks_each_time_fill_up_over_them(finished, reason):
    """Six fresh workers that did seven tasks each before they died did not die of two that ran at once."""
    kind = Event(topic="task-needs", fields={"kind": "load", "finished": finished, "kept": 0})
    known = Event(topic="worker-state", fields={"status": "running", "memory_bytes": 1, "nthreads": 2})
    two = [
        evolve(each, fields=each.fields | {"processing": "load-1, load-2"}) if each.topic == "all" else each
        for each in deaths(6)
    ]
    call = Event(topic="workload", fields={"kinds": "delayed", "place": "main (a.py:1)"})
    found_so = diagnose([*two, state(6, replacements=4, lost_results=0), QUEUED, kind, known, call], BOOK)
    assert found_so.memory.reason == reason
