"""Thousands of ends at once: each is compared with few others."""

from __future__ import annotations

from workerdiag.correlation.assemble import ReportLimit, merge_ends
from workerdiag.correlation.process_ends import CandidateTable, EndBuilder, EndList
from workerdiag.deadline import GraceDeadline
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Lifetimes
from workerdiag.model.process_end import ProcessEnd


def ends(count, *, pids):
    """Ends in the same second, as one observer names them: by the pid or by the address."""
    return [
        ProcessEnd(identity=Identity(pid=n) if pids else Identity(worker=f"tcp://h:{n}"), when=1000.0)
        for n in range(count)
    ]


def test_ends_of_one_observer_are_not_held_against_each_other(monkeypatch):
    """Of ten thousand workers that a scheduler lost in one second no two are the same."""
    looked_at = 0
    near = CandidateTable._near

    def counting(table, span):
        nonlocal looked_at
        for each in near(table, span):
            looked_at += 1
            yield each

    monkeypatch.setattr(CandidateTable, "_near", counting)
    merged = merge_ends([ends(10_000, pids=False)], Lifetimes(()), ReportLimit(GraceDeadline()))
    assert (len(merged), looked_at) == (10_000, 0)


def test_ends_of_another_observer_are_found_by_their_time():
    """A nanny has the pid, the scheduler the address: at the same moment they are one death each."""
    groups = [ends(3, pids=False), ends(3, pids=True)]
    merged = merge_ends(groups, Lifetimes(()), ReportLimit(GraceDeadline()))
    assert [(each.identity.worker, each.identity.pid) for each in merged] == [
        ("tcp://h:0", 0),
        ("tcp://h:1", 1),
        ("tcp://h:2", 2),
    ]


def test_a_removal_is_of_the_latest_end_of_its_worker():
    """Of an address that was used again it is the later process, whichever learned its name first."""
    worker = Identity(worker="tcp://10.0.0.4:4002")
    named = Match(owner="worker.stopping", role="self-closed", origin="log", line=1, identity=worker)
    listed = EndList()
    first, second = EndBuilder(), EndBuilder()
    listed.add(first)
    listed.add(second)
    assert (listed.latest_of(worker.worker), listed.latest_of(None)) == (None, None)
    listed.learn(second, named)
    listed.learn(first, named)
    assert listed.latest_of(worker.worker) is second
    assert list(listed.latest(1)) == [second]
