"""The last minutes of a worker, from its black box."""

from __future__ import annotations

from support.death_records import NOW, nanny_report, scheduler_record
from workerdiag.model.identity import Identity
from workerdiag.model.timeline import MemoryLimits, MemorySample, TaskSpan
from workerdiag.sources.recorder.death_evidence import process_history
from workerdiag.wire.messages import decode_message
from workerdiag.wire.recorded_death import RecordedDeath

WHO = Identity(worker="tcp://10.0.0.4:1001")


def history_of(*plain):
    """The history of the death that these messages tell of."""
    death = RecordedDeath()
    for each in plain:
        death = death.with_message(decode_message(each))
    return process_history(death, WHO)


def box(**more):
    """A black box as it is sent."""
    sample = {"at": NOW, "process_rss_bytes": 90, "managed_bytes": 50, "memory_limit_bytes": 100}
    return {"samples": (sample,), "identity": {}, "written_at": NOW, **more}


def test_samples_limits_and_tasks_of_the_box_are_all_there():
    """What a drawing needs, as typed values, with the thresholds that the worker and the nanny noted."""
    history = history_of(
        nanny_report(
            terminate_fraction=0.95,
            box=box(
                identity={"memory_spill": "0.7", "memory_pause": "0.8"},
                finished_tasks=(
                    {
                        "key": "before",
                        "slot": 0,
                        "started_at": NOW - 9,
                        "ended_at": NOW - 5,
                        "duration_s": 4,
                        "outcome": "ended",
                    },
                ),
            ),
        )
    )
    assert history.recorded
    assert history.samples == (MemorySample(at=NOW, process_bytes=90, managed_bytes=50),)
    assert history.limits == MemoryLimits(
        worker_bytes=100, spill_fraction=0.7, pause_fraction=0.8, terminate_fraction=0.95
    )
    assert history.tasks == (
        TaskSpan(key="before", thread="slot 0", started_at=NOW - 9, ended_at=NOW - 5),
        TaskSpan(key="load", thread="Dask-0", started_at=NOW - 1, crashed=True),
    )


def test_a_control_group_without_a_limit_is_not_its_own():
    """The group of a login or of a whole machine holds what others use: it is not drawn."""
    sample = {"at": NOW, "process_rss_bytes": 90, "cgroup_current_bytes": 7000}
    limited = sample | {"cgroup_limit_bytes": 9000}
    group = {"peak_bytes": 8000, "limit_bytes": None}
    history = history_of(nanny_report(box=box(samples=(sample, limited)), cgroup=group))
    assert [each.group_bytes for each in history.samples] == [None, 7000]
    assert history.limits.group_bytes == 9000
    assert history.group_peak_bytes is None


def test_thresholds_that_are_switched_off_or_broken_are_none():
    """A worker may never pause, and anybody may have written the box."""
    history = history_of(nanny_report(box=box(identity={"memory_spill": "False", "memory_pause": "7"})))
    assert history.limits.spill_fraction is None
    assert history.limits.pause_fraction is None


def test_without_a_box_there_is_no_history():
    """A scheduler's record alone has one heartbeat, which is a reading."""
    assert history_of(scheduler_record()) is None
    assert history_of(nanny_report(box=None)) is None


def test_a_thread_that_ran_a_task_at_the_end_lends_its_name():
    """Earlier tasks of the same slot ran on the same thread."""
    running = {"key": "now", "slot": 3, "thread_name": "Dask-7", "started_at": NOW - 1}
    finished = {
        "key": "old",
        "slot": 3,
        "started_at": NOW - 4,
        "ended_at": NOW - 2,
        "duration_s": 2,
        "outcome": "ended",
    }
    history = history_of(nanny_report(running_tasks=(running,), box=box(finished_tasks=(finished,))))
    assert {each.thread for each in history.tasks} == {"Dask-7"}
