"""Logs of one cluster run in different time zones: its deaths are counted twice, and the summary says so."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve

from support.triage_work import triage_here
from workerdiag.triage.tables import DeathRow
from workerdiag.triage.work import double_count_note

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


def row(number, *, run="a", after_s=0.0):
    """The death of a worker, by its number, in one of two runs."""
    return DeathRow(
        case="c",
        outcome="unknown",
        scheduler="tcp://10.0.0.1:8786",
        worker=f"tcp://10.0.0.4:{40_000 + number}",
        died_at=NOON + 100 * number + after_s,
        run=run,
        url=f"{run}.log",
        offset=number,
        knowledge="1",
    )


@pytest.mark.parametrize(
    ("after_s", "told"),
    [
        ((2 * HOUR_S, 2 * HOUR_S + 1), True),
        ((-5.5 * HOUR_S,), True),
        ((2 * HOUR_S, 3 * HOUR_S), False),  # not one zone
        ((2 * HOUR_S, 2 * HOUR_S + 300), False),
        ((0.0, 0.0), False),  # not another zone
        ((72 * HOUR_S,), False),  # no zone is so far away
        ((), False),
    ],
)
def test_deaths_of_the_same_workers_a_zone_apart_are_told(after_s, told):
    """Where all that are in both runs are as far apart, by what zones differ by."""
    others = [row(number, run="b", after_s=each) for number, each in enumerate(after_s)]
    note = double_count_note([row(number) for number in range(3)] + others)
    assert (note is not None) is told
    if note:
        assert note.startswith(f"{len(after_s)} death")
        assert "a.log and b.log" in note
        assert "--runs" in note


def test_an_address_that_is_used_again_and_again_tells_nothing():
    """With fixed ports a worker of that address dies in every run, and in a crash loop many times."""
    runs = [row(0, run=f"{number:02}", after_s=number * HOUR_S) for number in range(60)]
    loop = [evolve(row(0, run="b"), offset=each, died_at=NOON + each * HOUR_S) for each in range(9)]
    assert double_count_note(runs) is None
    assert double_count_note([row(0, after_s=30.0), *loop]) is None


def test_logs_in_different_zones_are_told_by_the_summary(tmp_path):
    """Without a hint the death is two rows, and a note says so; with the folders of runs it is one."""
    folder = tmp_path / "run-1"
    folder.mkdir()
    (folder / "scheduler.log").write_text(
        "2026-05-04 12:00:00,000 - distributed.scheduler - INFO -   Scheduler at:   tcp://10.0.0.1:8786\n"
        "2026-05-04 12:00:05,000 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.4:4002 name: a\n"
        "2026-05-04 12:20:00,000 - distributed.scheduler - INFO - Remove worker addr: tcp://10.0.0.4:4002 name: a "
        "(stimulus_id='handle-worker-cleanup-1777896000.0')\n"
    )
    (folder / "worker.log").write_text(
        "2026-05-04 14:00:02,000 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.4:4001'\n"
        "2026-05-04 14:00:04,000 - distributed.worker - INFO -       Start worker at:     tcp://10.0.0.4:4002\n"
        "2026-05-04 14:00:04,000 - distributed.worker - INFO - Waiting to connect to:      tcp://10.0.0.1:8786\n"
        "2026-05-04 14:00:05,000 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786\n"
        "2026-05-04 14:19:59,000 - distributed.nanny - INFO - Worker process 77 was killed by signal 11\n"
    )
    deaths, _, notes = triage_here([folder], tmp_path / "out")
    assert len(deaths) == 2
    assert [note for note in notes if "may be counted twice" in note] == list(notes) != []
    deaths, _, notes = triage_here([folder], tmp_path / "told", folders=f"{tmp_path}/*/")
    assert ([each.cause for each in deaths], notes) == (["signal.segfault"], ())
