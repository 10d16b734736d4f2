"""A triage from files to tables: what it finds, what it says of broken files, and what it reads again."""

from __future__ import annotations

import gzip
import io
import os
import zipfile

import pytest
from attrs import evolve

from support.triage_work import nanny_log, triage_here
from workerdiag.triage.outcome import TriageFolder
from workerdiag.triage.parts import ALIGNMENT, LogFile, Part
from workerdiag.triage.work import TriageWork


def causes(deaths):
    """How each death is explained."""
    return [each.cause for each in deaths]


def test_each_death_is_a_row_with_its_cause_and_place(tmp_path):
    """A row says who died, how, why, and where that stands: a byte of the line that reports it."""
    log = tmp_path / "nanny.log"
    log.write_text(nanny_log(3, seed=1))
    deaths, inputs, notes = triage_here([log], tmp_path / "out")
    assert (causes(deaths), notes) == (["signal.segfault"] * 3, ())
    assert {(each.signal, each.host, each.scheduler) for each in deaths} == {
        (11, "10.0.1.1", "tcp://10.0.0.1:8786")
    }
    assert [each.status for each in inputs] == ["done"]
    for row in deaths:
        assert (
            log.read_bytes()[row.offset :]
            .partition(b"\n")[0]
            .endswith(f"Worker process {row.pid} was killed by signal 11".encode())
        )


@pytest.mark.parametrize("packed", [False, True])
def test_parts_find_what_the_whole_file_shows(tmp_path, packed):
    """However a file is cut, each death is found once, at the same place and with the same cause."""
    text = nanny_log(20, seed=2, calm=150).encode()
    log = tmp_path / ("nanny.log.gz" if packed else "nanny.log")
    log.write_bytes(gzip.compress(text) if packed else text)
    whole, _, _ = triage_here([log], tmp_path / "whole")
    parts, inputs, _ = triage_here([log], tmp_path / "parts", part_bytes=ALIGNMENT)
    assert len(text) > 2 * ALIGNMENT
    assert len(inputs) == (1 if packed else len(text) // ALIGNMENT)  # and a small rest
    assert (len(whole), whole) == (20, parts)


@pytest.mark.slow
def test_more_deaths_than_the_matcher_keeps_of_a_text_are_all_rows(tmp_path):
    """Each of thousands of deaths near each other is a row with its cause, however the file is cut."""
    log = tmp_path / "nanny.log"
    log.write_text(nanny_log(3000, seed=1, calm=0))
    whole, inputs, _ = triage_here([log], tmp_path / "whole")
    parts, _, _ = triage_here([log], tmp_path / "parts", part_bytes=ALIGNMENT)
    assert [each.status for each in inputs] == ["done"]
    assert (causes(whole), whole) == (["signal.segfault"] * 3000, parts)


@pytest.mark.slow
def test_deaths_as_near_each_other_as_lines_are_all_rows(tmp_path):
    """More of them than the matcher keeps of a text stand within the reach of one message."""
    log = tmp_path / "nanny.log"
    lines = (f"distributed.nanny - INFO - Worker process {pid} was killed by signal 11\n" for pid in range(1500))
    log.write_text("".join(lines))
    deaths, inputs, _ = triage_here([log], tmp_path / "out")
    assert [each.status for each in inputs] == ["done"]
    assert [each.pid for each in deaths] == list(range(1500))


def test_results_can_be_read_while_it_runs(tmp_path):
    """After each part the progress has what is known by then, judged; the inputs that are not read are not there."""
    for seed in range(2):
        (tmp_path / f"{seed}.log").write_text(nanny_log(2, seed=seed))
    seen = []
    triage_here([tmp_path], tmp_path.with_name("out"), on_progress=lambda now: seen.append(now.result()))
    assert [causes(each.deaths) for each in seen] == [["signal.segfault"] * 2, ["signal.segfault"] * 4]
    assert [len(each.inputs) for each in seen] == [1, 2]
    assert str(seen[0]).startswith("Losses    2 workers were lost on 1 host in 1 cluster run\n")


def test_two_runs_write_equal_tables(tmp_path):
    """The same logs make the same bytes, in whatever order they are given."""
    logs = [tmp_path / f"{seed}.log" for seed in range(3)]
    for seed, log in enumerate(logs):
        log.write_text(nanny_log(2, seed=seed))
    triage_here(logs, tmp_path / "one")
    triage_here(logs[::-1], tmp_path / "two")
    for table in ("deaths.jsonl", "inputs.jsonl"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "two" / table).read_bytes()


def test_logs_of_one_scheduler_are_judged_together(tmp_path):
    """The scheduler's log and the nanny's tell of one run; another scheduler's logs are another run."""
    (tmp_path / "a.log").write_text(nanny_log(1, seed=1))
    (tmp_path / "b.log").write_text(nanny_log(1, seed=1).replace("pid", "pid"))
    (tmp_path / "c.log").write_text(nanny_log(1, seed=7))
    _, inputs, _ = triage_here([tmp_path / f"{name}.log" for name in "abc"], tmp_path / "out")
    one, two, other = (each.run for each in inputs)
    assert one == two != other


def foreign_zip():
    """A zip archive that is no death bundle."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("letter.txt", "Dear Sir")
    return content.getvalue()


def test_broken_inputs_are_rows_and_change_no_other(tmp_path):
    """Torn, binary, empty, vanished and foreign files each have a row with a reason."""
    good = tmp_path / "good.log"
    good.write_text(nanny_log(2, seed=3))
    alone, _, _ = triage_here([good], tmp_path / "alone")
    packed = gzip.compress(os.urandom(3000) + nanny_log(2, seed=4).encode())
    broken = {
        "torn.log.gz": (gzip.compress(nanny_log(2, seed=4).encode())[:-20], "failed"),
        "binary.log": (os.urandom(4096), "not-a-log"),
        "binary.log.gz": (packed, "not-a-log"),
        "empty.log": (b"", "empty"),
        "letter.txt": (b"Dear Sir,\n" * 100, "not-a-log"),
        "torn-bundle.zip": (b"PK\x03\x04" + bytes(100), "failed"),
        "other.zip": (foreign_zip(), "not-a-log"),
    }
    for name, (content, _) in broken.items():
        (tmp_path / name).write_bytes(content)
    given = [good, *(tmp_path / name for name in broken), tmp_path / "vanished.log", "nowhere://a/b.log"]
    deaths, inputs, _ = triage_here(given, tmp_path / "all")
    statuses = {each.url.rpartition("/")[2]: each for each in inputs}
    assert {name: statuses[name].status for name in broken} == {
        name: status for name, (_, status) in broken.items()
    }
    assert statuses["vanished.log"].status == statuses["b.log"].status == "failed"
    assert all(each.reason for each in inputs if each.status != "done")
    assert [each for each in deaths if each.url == str(good)] == list(alone)


def test_no_secret_of_an_error_stands_in_a_table():
    """Errors of stores quote signed URLs; the manifest has them without the signature."""
    part = Part(file=LogFile(place="x", url="x"))
    row = part.row(status="failed", knowledge="1", reason="403 https://h/a?X-Amz-Signature=0123456789abcdef0123")
    assert "403 https://h/a" in row.reason
    assert "0123456789abcdef" not in row.reason


def test_a_torn_file_tells_what_was_read_of_it(tmp_path):
    """The deaths before the place where a packed file is cut are found."""
    log = tmp_path / "torn.log.gz"
    log.write_bytes(gzip.compress(nanny_log(20, seed=4, calm=500).encode())[:-20_000])
    deaths, inputs, _ = triage_here([log], tmp_path / "out")
    assert (inputs[0].status, len(deaths) > 10) == ("failed", True)


def test_only_what_failed_or_changed_is_read_again(tmp_path):
    """What is kept of a part serves until its file changes."""
    logs = [tmp_path / name for name in ("a.log", "b.log", "torn.log.gz")]
    for seed, log in enumerate(logs[:2]):
        log.write_text(nanny_log(1, seed=seed))
    logs[2].write_bytes(gzip.compress(nanny_log(2, seed=4).encode())[:-20])
    triage_here(logs, tmp_path / "out")
    again = TriageWork(given=tuple(logs), memory_bytes=2**31, folder=TriageFolder(tmp_path / "out", "jsonl"))
    assert [part.file.url for _, part in again.jobs()] == [str(logs[2])]
    logs[0].write_text(nanny_log(2, seed=0))
    again = TriageWork(given=tuple(logs), memory_bytes=2**31, folder=TriageFolder(tmp_path / "out", "jsonl"))
    assert [part.file.url for _, part in again.jobs()] == [str(logs[0]), str(logs[2])]


def test_what_is_kept_and_broken_is_read_again(tmp_path):
    """A file of an outcome that something has damaged is no outcome."""
    log = tmp_path / "a.log"
    log.write_text(nanny_log(1, seed=1))
    triage_here([log], tmp_path / "out")
    for kept in (tmp_path / "out" / "parts").iterdir():
        kept.write_bytes(b"{}\n")
    again = TriageWork(given=(log,), memory_bytes=2**31, folder=TriageFolder(tmp_path / "out", "jsonl"))
    assert len(again.jobs()) == 1


def test_more_deaths_than_a_report_lists(tmp_path):
    """A table has every death of a long log, each judged."""
    log = tmp_path / "nanny.log"
    log.write_text(nanny_log(450, seed=1, calm=0))
    deaths, _, _ = triage_here([log], tmp_path / "out")
    assert causes(deaths) == ["signal.segfault"] * 450
    assert len({evolve(each, offset=0) for each in deaths}) == 450


def test_what_all_marks_tell_is_gathered_once_for_all_deaths(tmp_path, monkeypatch):
    """Deaths by the hundred are each judged against what is prepared once, not for each few hundred of them."""
    from workerdiag.scoring.relevance import Relevance

    prepared = []
    prepare = Relevance.__init__
    monkeypatch.setattr(Relevance, "__init__", lambda self, *given: prepared.append(prepare(self, *given)))
    log = tmp_path / "nanny.log"
    log.write_text(nanny_log(450, seed=1, calm=0))
    deaths, _, _ = triage_here([log], tmp_path / "out")
    assert (len(deaths), len(prepared)) == (450, 1)


def test_logs_in_different_zones_are_one_run_if_the_folders_say_so(tmp_path):
    """Without a hint the death is two rows; with the folders of runs it is one."""
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
    deaths, _, _ = triage_here([folder], tmp_path / "out")
    assert len(deaths) == 2
    deaths, _, notes = triage_here([folder], tmp_path / "told", folders=f"{tmp_path}/*/")
    assert ([each.cause for each in deaths], notes) == (["signal.segfault"], ())
