"""All tables and states of a folder are read; what cannot be read is a gap, and costs nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from attrs import evolve

import workerdiag
from support.fleet_rows import fleet_row
from support.watch_values import NOW, watched_case, watched_death
from workerdiag.errors import UnreadableInputError
from workerdiag.model.timeline import ProcessHistory, TaskSpan, Timeline
from workerdiag.triage.tables import DeathRow, InputRow, write_table
from workerdiag.watch.store import Store

INPUT = InputRow(url="s3://logs/a.log", status="failed", reason="access denied", knowledge="2026.11")


def write_state(path, *, cause="kernel.oom", deaths=3):
    """The state of a watcher that judged some deaths, saw one stop, and did not judge the last one yet."""
    store = Store(path)
    store.add_deaths("prod", [watched_death(number) for number in range(1, deaths + 1)])
    store.add_deaths("prod", [watched_death(50, is_expected=True), watched_death(51), watched_death(60)])
    store.put_case(watched_case(cause=cause, probability=0.9))
    store.assign([watched_death(number).id for number in range(1, deaths + 1)], "case-a")
    store.assign([watched_death(51).id], None)  # judged, and no incident
    return store


def test_tables_and_states_of_a_folder_are_counted_together(tmp_path):
    """In whatever form, however deep; other files are passed over."""
    write_table(tmp_path / "a" / "deaths.parquet", DeathRow, [fleet_row(1), fleet_row(2)])
    write_table(tmp_path / "b" / "other.csv", DeathRow, [fleet_row(3)])
    write_table(tmp_path / "b" / "more.jsonl", DeathRow, [fleet_row(4), fleet_row(5, stop_requested=True)])
    write_table(tmp_path / "b" / "inputs.csv", InputRow, [evolve(INPUT, status="done")])
    write_table(tmp_path / "empty.jsonl", DeathRow, [])
    write_table(tmp_path / ".hidden" / "deaths.csv", DeathRow, [fleet_row(6)])
    (tmp_path / "notes.txt").write_text("not a table")
    write_state(tmp_path / "watch.db").close()
    report = workerdiag.fleet(tmp_path)
    assert {each.cause: each.death_count for each in report.causes} == {
        "nanny.memory-terminate": 4,
        "kernel.oom": 3,
        None: 1,
    }
    assert (report.requested_count, report.duplicate_count, report.is_partial) == (3, 0, False)
    assert sorted((each.kind, each.row_count) for each in report.tables) == [
        ("triage", 1),
        ("triage", 2),
        ("triage", 2),
        ("watcher", 6),
    ]


def test_what_triage_and_watcher_saw_both_counts_once(tmp_path):
    """So does what two state files, or two tables, tell."""
    write_state(tmp_path / "one.db").close()
    write_state(tmp_path / "two.db").close()
    seen = [fleet_row(number, worker=f"tcp://10.0.0.{number}:4000", died_at=NOW + number + 3) for number in (1, 2)]
    write_table(tmp_path / "deaths.csv", DeathRow, seen)
    report = workerdiag.fleet(tmp_path)
    assert (report.death_count, report.duplicate_count) == (4, 6 + 2)


def test_a_stop_that_only_a_rule_knows_is_no_loss(tmp_path):
    """A sure cause tells that somebody restarted the workers; a SIGTERM of the platform is a loss."""
    rows = [fleet_row(1, cause="exit.client-restart", probability=0.97)]
    rows += [fleet_row(2, cause="exit.client-restart", probability=0.6), fleet_row(3, cause="exit.sigterm")]
    write_table(tmp_path / "deaths.csv", DeathRow, rows)
    report = workerdiag.fleet(tmp_path)
    assert (report.death_count, report.requested_count) == (2, 1)


def test_broken_files_and_rows_are_gaps(tmp_path):
    """Each is named with what is wrong; all others are counted, and the report says "at least"."""
    write_table(tmp_path / "good.csv", DeathRow, [fleet_row(1)])
    half = write_table(tmp_path / "half.jsonl", DeathRow, [fleet_row(2), fleet_row(3)])
    half.write_bytes(half.read_bytes()[:-40])
    torn = write_table(tmp_path / "torn.parquet", DeathRow, [fleet_row(4)])
    torn.write_bytes(torn.read_bytes()[:100])
    (tmp_path / "other.csv").write_text("name,age\nAda,36\n")
    (tmp_path / "other.db").write_bytes(b"no database at all, " * 100)
    report = workerdiag.fleet(tmp_path)
    assert (report.death_count, report.is_partial) == (2, True)
    assert sorted((Path(each.path).name, each.part) for each in report.gaps) == [
        ("half.jsonl", "rows"),
        ("other.csv", "file"),
        ("other.db", "file"),
        ("torn.parquet", "file"),
    ]
    assert all(each.remedy for each in report.gaps)
    assert str(report).startswith("Losses    At least 2 workers were lost")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_five_broken_rows_in_a_hundred_cost_no_other(tmp_path, form):
    """Torn, binary, of another type, with a quotation mark too many: all others are counted, and the gap says how many."""
    path = write_table(tmp_path / f"deaths.{form}", DeathRow, [fleet_row(number) for number in range(200)])
    lines = path.read_bytes().splitlines(keepends=True)
    for number, broken in enumerate((b"", b'"', b"\xff\x00\xfe", b"[]", b'{"schema": 1}') * 2):
        place = 15 + 18 * number
        lines[place] = lines[place][:60] + broken + b"\n"
    path.write_bytes(b"".join(lines))
    report = workerdiag.fleet(path)
    (gap,) = report.gaps
    assert (report.death_count, gap.part) == (190, "rows")
    assert gap.detail.startswith("10 of 200 rows cannot be read, the first: row 1")


def test_an_input_that_triage_could_not_read_is_a_gap_unless_another_could(tmp_path):
    """A second run that reads the log closes the gap of the first."""
    write_table(tmp_path / "deaths.csv", DeathRow, [fleet_row(1)])
    write_table(tmp_path / "inputs.csv", InputRow, [INPUT, evolve(INPUT, url="s3://logs/b.log")])
    (gap,) = workerdiag.fleet(tmp_path).gaps
    assert gap.part == "input"
    assert gap.detail.startswith("2 of the logs")
    assert "s3://logs/a.log: access denied" in gap.detail
    again = [evolve(INPUT, status="done"), evolve(INPUT, url="s3://logs/b.log", status="done")]
    write_table(tmp_path / "again" / "inputs.csv", InputRow, again)
    report = workerdiag.fleet(tmp_path)
    assert not report.is_partial
    assert [(each.status, each.count) for each in report.inputs] == [("done", 2)]


def test_a_broken_row_of_a_state_is_a_gap(tmp_path):
    """The other deaths of the file count."""
    store = write_state(tmp_path / "watch.db")
    with store.file.transaction() as connection:
        connection.execute("UPDATE death SET identity = '{\"pid\": ' WHERE id = 'epoch-1'")
    store.close()
    report = workerdiag.fleet(tmp_path / "watch.db")
    assert report.death_count == 3
    assert [(each.part, "epoch-1" in each.detail) for each in report.gaps] == [("rows", True)]


def test_a_watcher_knows_what_its_recorder_saw_running(tmp_path):
    """The seconds of tasks that ran on a worker when it died, where the last diagnosis of its case has them."""
    dead = watched_death(2).identity
    tasks = (
        TaskSpan(key="load-1", started_at=NOW - 58.0),
        TaskSpan(key="load-2", started_at=NOW - 8.0),
        TaskSpan(key="ended", started_at=NOW - 90.0, ended_at=NOW),
    )
    histories = (ProcessHistory(identity=dead, tasks=tasks, when=NOW + 2),)
    diagnosis = workerdiag.Diagnosis(
        outcome="explained", summary="3 workers died", timeline=Timeline(histories=histories)
    )
    store = write_state(tmp_path / "watch.db")
    store.put_case(watched_case(cause="kernel.oom", probability=0.9, diagnosis_json=diagnosis.to_json()))
    store.close()
    report = workerdiag.fleet(tmp_path)
    assert (report.lost_compute_s, report.lost_known_count, report.death_count) == (70.0, 1, 4)


def test_a_watcher_that_was_blind_saw_at_least_those(tmp_path):
    """What died while the scheduler did not answer is in no table."""
    store = write_state(tmp_path / "watch.db")
    store.put_case(watched_case("blind", key="blind", state="resolved", what="no answer for 2 minutes"))
    store.close()
    report = workerdiag.fleet(tmp_path)
    assert [each.part for each in report.gaps] == ["unseen"]
    assert "no answer for 2 minutes" in report.gaps[0].detail


def test_a_running_watcher_is_read_and_not_disturbed(tmp_path):
    """Its file is as it was, and what it has written so far is counted."""
    store = write_state(tmp_path / "watch.db")
    assert workerdiag.fleet(tmp_path).death_count == 4
    store.add_deaths("prod", [watched_death(70)])
    assert workerdiag.fleet(tmp_path).death_count == 5
    store.close()


def test_a_state_in_a_folder_that_nobody_may_write_to_is_read(tmp_path):
    """An archive needs no more than to be readable, and nothing is left in it."""
    folder = tmp_path / "archive"
    folder.mkdir()
    write_state(folder / "watch.db").close()
    before = sorted(folder.iterdir())
    folder.chmod(0o500)
    try:
        assert workerdiag.fleet(folder).death_count == 4
    finally:
        folder.chmod(0o700)
    assert sorted(folder.iterdir()) == before


def test_a_file_that_is_named_may_end_in_anything(tmp_path):
    """Only in folders the name says what may be a state."""
    write_state(tmp_path / "watch.db").close()
    shutil.move(tmp_path / "watch.db", tmp_path / "prod.state")
    report = workerdiag.fleet(tmp_path / "prod.state")
    assert (report.death_count, report.is_partial) == (4, False)


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_nothing_to_read_is_an_error_that_says_what_to_give(tmp_path, name):
    """An empty folder is not a fleet without deaths."""
    with pytest.raises(UnreadableInputError, match="workerdiag triage --output"):
        workerdiag.fleet(tmp_path / name)


def test_a_time_that_no_calendar_has_is_none(tmp_path):
    """The death counts, without a time; one in the far future is shown."""
    write_table(tmp_path / "deaths.jsonl", DeathRow, [fleet_row(1, died_at=9e10), fleet_row(2, died_at=-9e10)])
    report = workerdiag.fleet(tmp_path)
    assert (report.death_count, report.undated_count) == (2, 1)
    assert str(report)
