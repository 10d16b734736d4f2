"""What is kept of a part: of each kind of message the first and the last, and all near ends."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest

from support.triage_work import triage_here
from workerdiag.triage import scan
from workerdiag.triage.outcome import unpack_found
from workerdiag.triage.parts import MIB, LogFile, Part
from workerdiag.triage.scan import ScanSettings, scan_part

CALM = "2026-05-04 10:{:02d}:{:02d},000 - distributed.scheduler - INFO - Register worker addr: tcp://10.0.0.4:{} name: w{}\n"
#: After 40,000 of them.
BEFORE, AFTER = 40_000, 20_000
DEATH = (
    "2026-05-04 10:33:21,000 - distributed.nanny.memory - WARNING - Worker tcp://10.0.0.4:49999 (pid=77) "
    "exceeded 95% memory budget. Restarting...\n"
    "2026-05-04 10:33:21,100 - distributed.nanny - INFO - Worker process 77 was killed by signal 15\n"
)


def calm(first, count):
    """So many workers that register."""
    return "".join(
        CALM.format(number // 20 // 60, number // 20 % 60, 10_000 + number, number)
        for number in range(first, first + count)
    )


def kept(text, tmp_path):
    """What is kept of a log that is many segments long: its outermost matches, and those near ends."""
    log = tmp_path / "a.log"
    log.write_text(text)
    file = LogFile(place=str(log), url="a.log", size_bytes=len(text))
    return unpack_found(scan_part(Part(file=file), ScanSettings()), "a.log")[:2]


@patch.object(scan, "_SEGMENT_BYTES", 2 * MIB)
def test_where_nobody_dies_the_first_and_the_last_of_the_part_are_kept(tmp_path):
    """However many segments it is long."""
    outermost, near_ends = kept(calm(0, BEFORE), tmp_path)
    lines = [each.line for each in outermost if each.owner == "scheduler.register-worker"]
    assert lines == [*range(1, 101), *range(BEFORE - 99, BEFORE + 1)]
    assert near_ends == []


@pytest.mark.slow
@patch.object(scan, "_SEGMENT_BYTES", 2 * MIB)
def test_near_a_death_all_is_kept(tmp_path):
    """All of it, for a while, however much of one kind it is; each match once."""
    text = calm(0, BEFORE) + DEATH + calm(BEFORE, AFTER)
    outermost, near_ends = kept(text, tmp_path)
    lines = [each.line for each in near_ends if each.owner == "scheduler.register-worker"]
    assert set(range(BEFORE - 3000, BEFORE + 1)) < set(lines)
    assert len(lines) < BEFORE
    assert {(each.owner, each.line) for each in near_ends} >= {
        ("nanny.memory-budget", BEFORE + 1),
        ("nanny.killed-by-signal", BEFORE + 2),
    }
    places = [(each.owner, each.sign, each.offset) for each in (*outermost, *near_ends)]
    assert len(places) == len(set(places))


@pytest.mark.slow
def test_a_death_in_the_middle_of_a_long_part_is_as_well_known(tmp_path):
    """In parts and segments of any size."""
    log = tmp_path / "a.log"
    log.write_text(calm(0, BEFORE) + DEATH + calm(BEFORE, AFTER))
    whole, _, _ = triage_here([log], tmp_path / "whole")
    with patch.object(scan, "_SEGMENT_BYTES", 2 * MIB):
        long, _, _ = triage_here([log], tmp_path / "long")
        parts, inputs, _ = triage_here([log], tmp_path / "parts", part_bytes=3 * MIB)
    assert [(each.cause, each.pid) for each in whole] == [("nanny.memory-terminate", 77)]
    assert (whole, whole) == (long, parts)
    assert len(inputs) > 1


def crash_loop(deaths):
    """The log of a nanny whose workers die; between two deaths a few workers register elsewhere."""
    death = "2026-05-04 10:33:21,100 - distributed.nanny - INFO - Worker process {} was killed by signal 11\n"
    return "".join(death.format(10_000 + pid) + calm(pid, 2) for pid in range(deaths))


@pytest.mark.slow
@patch.object(scan, "_SEGMENT_BYTES", MIB // 16)
def test_a_part_full_of_ends_is_read_and_says_what_is_left_out(tmp_path, monkeypatch):
    """First the messages near ends are left out, then ends; the first and the last are kept, each once."""
    log = tmp_path / "a.log"
    log.write_text(crash_loop(2000))
    monkeypatch.setattr(scan, "_MAX_NEAR_ENDS", 300)
    thinned, inputs, notes = triage_here([log], tmp_path / "thinned")
    assert [each.pid for each in thinned] == [*range(10_000, 12_000)]
    assert (inputs[0].status, "messages near ends" in inputs[0].reason, notes) == ("done", True, ())
    monkeypatch.setattr(scan, "_MAX_ENDS", 1000)
    deaths, inputs, notes = triage_here([log], tmp_path / "out")
    pids = [each.pid for each in deaths]
    assert pids == sorted(set(pids))
    assert set(pids) > {*range(10_000, 11_000), *range(11_900, 12_000)}
    assert (inputs[0].status, "reports of ends" in inputs[0].reason) == ("done", True)
    left_out = int(re.search(r"at least.* ([\d,]+) more reports", notes[0])[1].replace(",", ""))
    assert 2000 - len(pids) <= left_out <= 2000 - len(pids) + 200  # of these the last are listed
