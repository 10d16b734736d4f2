"""The process that judges: real deaths in, cases with reports out, and whatever it does the scheduler lives."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib

import pytest

from support.dashboard_deaths import recorded_line
from workerdiag.integrations.dashboard import judge_process
from workerdiag.integrations.dashboard.judge_process import (
    MAX_POINTS,
    JudgingError,
    JudgingProcess,
    ids_of,
    parse_judgement,
    victim_of,
)
from workerdiag.wire.plain import from_plain
from workerdiag.wire.recorded_death import RecordedDeath

#: A process of low priority gets its turn late on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def judged():
    """What a process of its own says of two crashes."""
    lines = [recorded_line(1, worker_name="<script>"), recorded_line(2), b"no JSON", b"[]"]
    return JudgingProcess().judge(lines)


@pytest.mark.slow
def test_deaths_come_back_as_a_case(judged):
    """Two crashes of one kind are one case, with its cause and both victims."""
    (case,) = judged.cases
    assert (case.cause, case.family, case.is_likely) == ("signal.segfault", "signal", True)
    assert [each.worker for each in case.victims] == ["tcp://10.0.0.4:1001", "tcp://10.0.0.4:1002"]
    assert judged.death_ids == ids_of(case.victims)


def test_the_report_is_a_page(judged):
    """The HTML of the diagnosis comes along, so that the scheduler need not make it."""
    html = zlib.decompress(base64.b64decode(judged.cases[0].report)).decode()
    assert html.lower().startswith("<!doctype html>")
    assert "Segmentation fault" in html


def test_all_known_causes_are_listed(judged):
    """Each cause of the shipped rules comes with its family and blame."""
    assert len(judged.causes) > 50
    assert ("signal.segfault", "signal", "task") in judged.causes


def test_a_process_that_fails_says_why(monkeypatch):
    """A release of Python that cannot run our module is a sentence, no exception of its own kind."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(JudgingError, match="ended with status"):
        JudgingProcess().judge([])
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        JudgingProcess().judge([])


def test_a_frozen_program_starts_no_copy_of_itself(monkeypatch):
    """Where ``sys.executable`` is the user's program, nothing is started."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(JudgingError, match="frozen"):
        JudgingProcess().judge([])


def test_a_process_that_takes_too_long_is_killed(monkeypatch):
    """Nothing runs on for ever beside a scheduler."""
    monkeypatch.setattr(judge_process, "KILL_S", 0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        JudgingProcess().judge([recorded_line(1)])


def test_a_stopped_judge_judges_no_more():
    """After the scheduler closes no process is left behind."""
    judge = JudgingProcess()
    judge.stop()
    with pytest.raises(JudgingError):
        judge.judge([recorded_line(1)])


@pytest.mark.parametrize(
    "output", [b"", b"{", b"[]", b'{"title": "x"}', b'{"cases": [{}], "death_ids": []}', b"\xff"]
)
def test_an_answer_that_is_not_whole_is_none(output):
    """Half an answer, as of a process that was killed, is not taken for the whole."""
    assert parse_judgement(output) is None


def test_the_scheduler_loads_nothing_that_reasons():
    """What runs in the scheduler imports neither the rules nor the search, nor what renders."""
    script = """
import sys
import workerdiag.integrations.dashboard.page
heavy = ("api", "matching", "pipeline", "rendering", "rulebook", "scoring", "sources", "correlation")
print([name for name in sys.modules if name.startswith("workerdiag.") and name.split(".")[1] in heavy])
print([name for name in ("bokeh", "prometheus_client", "hyperscan") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.split("\n")[:2] == ["[]", "[]"]


def test_a_curve_is_short_and_keeps_its_peak():
    """An hour of samples is a hundred points, among them the highest and the last."""
    samples = [{"at": 100.0 + at, "process_rss_bytes": 999 if at == 1234 else at % 7} for at in range(3600)]
    plain = json.loads(recorded_line(1))
    plain["report"]["box"]["samples"] = samples
    victim = victim_of(from_plain(RecordedDeath, plain, []))
    assert len(victim.memory.seconds) == len(victim.memory.rss_bytes) <= MAX_POINTS + 1
    assert max(victim.memory.rss_bytes) == 999
    assert victim.memory.seconds[-1] == round(100.0 + 3599 - victim.when, 2)


def test_a_worker_without_box_has_its_last_heartbeat():
    """Where nobody sampled, one point says what the scheduler was last told."""
    plain = json.loads(recorded_line(1))
    del plain["report"]
    victim = victim_of(from_plain(RecordedDeath, plain, []))
    assert victim.memory.rss_bytes == (60,)
    assert victim.memory.limit_bytes == 100
