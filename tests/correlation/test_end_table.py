"""
Many thousands of deaths: each is compared with few others, and no time is taken that there is not.
"""

from __future__ import annotations

from collections import Counter

import pytest

from support.deadlines import LooksDeadline
from workerdiag.correlation.end_table import EndsByTime
from workerdiag.correlation.incident import assemble
from workerdiag.matching.match import match
from workerdiag.model.evidence import Event, Evidence, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import Rulebook
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook

BOOK = load_rulebook()
NONE = Rulebook(schema=1, release="test", landmarks=(), causes=())


def removals(count: int) -> list[Evidence]:
    """
    What a scheduler's events tell of so many workers, a second apart.
    """
    return [
        Event(topic="all", when=1.7e9 + each, fields={"action": "remove-worker", "worker": worker(each)})
        for each in range(count)
    ]


def exits(count: int) -> list[Evidence]:
    """
    How so many processes ended.
    """
    return [
        ProcessExit(
            identity=Identity(worker=worker(each), pid=each + 2), when=1.7e9 + each, signal=9, reporter="n"
        )
        for each in range(count)
    ]


def nannies(count: int) -> list[Evidence]:
    """
    What the logs of nannies tell of so many, a hundred each, all within few minutes.
    """
    line = "2026-05-04 11:{:02}:{:02},444 - distributed.nanny - INFO - Worker process {} was killed by signal 9\n"
    texts = [line.format(each // 60 % 60, each % 60, each + 2).encode() for each in range(count)]
    return [LogChunk(origin=f"{at}.log", data=b"".join(texts[at : at + 100])) for at in range(0, count, 100)]


def worker(number: int) -> str:
    """
    The address of one of them.
    """
    return f"tcp://10.0.{number // 250}.{number % 250}:4000"


@pytest.mark.parametrize("told", [[removals], [exits], [removals, exits], [nannies], [nannies, exits]])
def test_comparisons_grow_with_the_number_of_ends_and_no_faster(told, monkeypatch):
    """
    Twice the deaths are twice the work, not four times.
    """
    compared: Counter[str] = Counter()

    def counted(name):
        plain = getattr(Identity, name)

        def asked(self, other):
            compared[name] += 1
            return plain(self, other)

        monkeypatch.setattr(Identity, name, asked)

    counted("same_process")
    counted("conflicts_with")
    counts = []
    for count in (400, 800):
        evidence = [piece for tell in told for piece in tell(count)]
        matches = match(evidence, BOOK)
        compared.clear()
        incident = assemble(matches, evidence)
        counts.append(compared.total())
        assert len(incident.cases) == count

    assert counts[1] < 2.5 * counts[0] + 1000


def test_when_time_is_up_the_reports_left_are_counted():
    """
    What was joined until then is judged, and a gap says how many were not.
    """
    findings = diagnose([*removals(200), *exits(200)], NONE, deadline=LooksDeadline(looks=40))
    [gap] = [each for each in findings.gaps if each.source == "workerdiag"]

    assert gap.reason == "timed-out"
    assert len(findings.deaths) + int(gap.detail.split()[0]) == 400
    assert findings.deaths


def test_a_sign_is_compared_with_few_of_the_many_ends_of_one_pid_the_nearest_in_time():
    """
    Thousands of ends of one pid do not cost each sign thousands of comparisons, and the right one is among them.
    """
    ends = EndsByTime(ProcessEnd(identity=Identity(pid=7), when=float(each)) for each in range(3000))
    near = [end.when for end in ends.near(Identity(pid=7), 2000.5)]
    assert len(near) <= 400
    assert {2000.0, 2001.0} <= set(near)
