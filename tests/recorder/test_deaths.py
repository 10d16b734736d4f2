"""What the scheduler promises to whoever follows the deaths, with a scheduler made of plain objects."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from attrs import evolve

from support.death_records import decoded, nanny_report, scheduler_record, worker_address
from workerdiag.recorder.death_report import json_size
from workerdiag.recorder.deaths import MAX_ANSWER_BYTES, DeathRing, DeathWatch
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import ClusterFigures, WatchAnswer

PATIENCE_S = 60.0


def some_scheduler(**more):
    """As the scheduler, as far as it is looked at."""
    worker = SimpleNamespace(processing={"load": 1.0, "wait": 1.0}, executing={"load": 1.0})
    content = {"workers": {"tcp://a": worker, "tcp://b": worker}, "running": [worker], "unrunnable": {"x": 0}}
    return SimpleNamespace(**{**content, "queued": {"y"}, **more})


def watched(ring, *, due=(), scheduler=None, **more):
    """A watch of that ring, in which the deaths of these workers wait for their reports."""
    return DeathWatch(
        scheduler or some_scheduler(),
        ring,
        is_report_due=lambda death: death.report is None and death.identity.worker in due,
        **more,
    )


def ring_of(*numbers, **limits):
    """A ring with the removals of these workers."""
    ring = DeathRing(**limits)
    for number in numbers:
        ring.add(decoded(scheduler_record(number)))
    return ring


def understood(plain):
    """An answer as it is read, all of it."""
    dropped = []
    answer = from_plain(WatchAnswer, {name: each for name, each in plain.items() if name != "schema"}, dropped)
    assert dropped == []
    return answer


def asked(watch, **arguments):
    """An answer to one question."""
    return understood(asyncio.run(watch.answer(**arguments)))


def addresses(answer):
    """Whose deaths it has."""
    return [each.identity.worker for each in answer.deaths]


def test_deaths_are_answered_once_oldest_first():
    """Who asks on from the number of the last answer hears of each death once."""
    ring = ring_of(1, 2)
    watch = watched(ring)
    first = asked(watch)
    ring.add(decoded(scheduler_record(3)))
    second = asked(watch, since=first.position, epoch=first.epoch)
    third = asked(watch, since=second.position, epoch=second.epoch)
    assert [addresses(each) for each in (first, second, third)] == [
        [worker_address(1), worker_address(2)],
        [worker_address(3)],
        [],
    ]


def test_a_number_of_another_epoch_counts_for_nothing():
    """After a restart of the recorder all its deaths are answered."""
    assert len(asked(watched(ring_of(1, 2)), since=2, epoch="other").deaths) == 2


def test_more_evidence_is_answered_as_a_change():
    """A report that comes after its death was answered brings the death again, whole."""
    ring = ring_of(1, 2)
    watch = watched(ring)
    first = asked(watch)
    ring.add(decoded(nanny_report(1)))
    (death,) = asked(watch, since=first.position, epoch=first.epoch).deaths
    assert (death.identity.worker, death.report.exit.signal) == (worker_address(1), 11)
    assert death.record is not None


def test_a_death_whose_report_is_due_waits_and_nothing_passes_it():
    """What came after a death that waits is held back with it: no number is passed over."""
    ring = ring_of(1, 2, 3)
    watch = watched(ring, due={worker_address(2)})
    first = asked(watch)
    assert addresses(first) == [worker_address(1)]
    ring.add(decoded(nanny_report(2)))
    second = asked(watch, since=first.position, epoch=first.epoch)
    assert sorted(addresses(second)) == [worker_address(2), worker_address(3)]


def test_one_answer_is_bounded_and_says_that_there_is_more():
    """Asking on brings the rest, in as many answers as it takes."""
    ring = ring_of(*range(1, 251))
    watch = watched(ring)
    answer = asked(watch)
    seen = addresses(answer)
    while answer.has_more:
        answer = asked(watch, since=answer.position, epoch=answer.epoch)
        assert len(answer.deaths) <= 100
        seen += addresses(answer)
    assert seen == [worker_address(number) for number in range(1, 251)]


def test_one_answer_is_bounded_in_bytes_but_one_death_always_goes():
    """However long a death is, asking comes to an end."""
    ring = ring_of(1)
    text = "x" * 60_000
    for number in range(2, 12):
        ring.add(decoded(nanny_report(number, box={"stage": "running", "last_output": text})))
    watch = watched(ring)
    plain = asyncio.run(watch.answer())
    assert json_size(plain) <= MAX_ANSWER_BYTES + 2000
    assert plain["has_more"]
    assert len(asked(watch, most_bytes=1).deaths) == 1


def test_what_nobody_read_is_counted():
    """Deaths that the ring dropped after the number are counted, those before it are not."""
    ring = ring_of(1, 2, most=3)
    watch = watched(ring)
    first = asked(watch)
    for number in range(3, 9):
        ring.add(decoded(scheduler_record(number)))
    second = asked(watch, since=first.position, epoch=first.epoch)
    assert (len(second.deaths), second.missed_count) == (3, 3)
    assert asked(watch, since=second.position, epoch=second.epoch).missed_count == 0


def test_all_who_wait_hear_of_a_death():
    """Any number of askers wait at once, and one death answers them all."""

    async def run():
        ring = DeathRing()
        watch = watched(ring)
        askers = [asyncio.create_task(watch.answer(wait_s=PATIENCE_S)) for _ in range(50)]
        await asyncio.sleep(0)
        ring.add(decoded(scheduler_record(1)))
        watch.notify()
        return await asyncio.gather(*askers)

    assert all(len(each["deaths"]) == 1 for each in asyncio.run(run()))


def test_who_waits_is_told_that_the_scheduler_closes():
    """The reason is in the answer, at once."""

    async def run():
        watch = watched(DeathRing())
        asker = asyncio.create_task(watch.answer(wait_s=PATIENCE_S))
        await asyncio.sleep(0)
        await watch.close("idle-timeout-exceeded")
        return await asker

    assert understood(asyncio.run(run())).closing_reason == "idle-timeout-exceeded"


def test_an_uninstalled_recorder_lets_go_of_who_waits():
    """Without a word of closing, as the scheduler runs on."""

    async def run():
        watch = watched(DeathRing())
        asker = asyncio.create_task(watch.answer(wait_s=PATIENCE_S))
        await asyncio.sleep(0)
        await watch.close(None)
        return await asker

    assert understood(asyncio.run(run())).closing_reason is None


def test_an_answer_tells_how_the_cluster_stands():
    """In numbers: who is there, who takes tasks, and how many tasks wait or run."""
    figures = asked(watched(DeathRing())).figures
    expected = ClusterFigures(worker_count=2, running_worker_count=1, waiting_count=2)
    assert figures == evolve(expected, assigned_count=4, executing_count=2)


@pytest.mark.parametrize("limits", [{"most": 5}, {"most_bytes": 5000}])
def test_a_full_ring_keeps_its_order_of_changes(limits):
    """What is dropped is dropped from both orders."""
    ring = ring_of(*range(1, 30), **limits)
    assert [kept.death for kept in ring.changed_since(0)] == list(ring)
    assert len(list(ring)) + ring.dropped_since(0) == 29


def test_who_asks_while_the_scheduler_closes_is_answered():
    """Also one who was between two questions when that began."""

    async def run():
        watch = watched(DeathRing())
        await watch.answer()
        closing = asyncio.create_task(watch.close("unknown"))
        await asyncio.sleep(0)
        answer = await watch.answer(wait_s=PATIENCE_S)
        assert not closing.done()
        await closing
        return answer

    assert understood(asyncio.run(run())).closing_reason == "unknown"
