"""Thousands of ends at once: each is compared with few others."""

from __future__ import annotations

from workerdiag import LogText, explain
from workerdiag.correlation.assemble import merge_ends
from workerdiag.correlation.process_ends import CandidateTable, LogReader
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
    merged = merge_ends([ends(10_000, pids=False)], Lifetimes(()), GraceDeadline())
    assert (len(merged), looked_at) == (10_000, 0)


def test_ends_of_another_observer_are_found_by_their_time():
    """A nanny has the pid, the scheduler the address: at the same moment they are one death each."""
    groups = [ends(3, pids=False), ends(3, pids=True)]
    merged = merge_ends(groups, Lifetimes(()), GraceDeadline())
    assert [(each.identity.worker, each.identity.pid) for each in merged] == [
        ("tcp://h:0", 0),
        ("tcp://h:1", 1),
        ("tcp://h:2", 2),
    ]


def test_a_removal_is_of_the_latest_end_of_its_worker():
    """Of an address that was used again it is the later process, whichever learned its name first."""
    worker = Identity(worker="tcp://10.0.0.4:4002")
    named = Match(owner="worker.stopping", role="self-closed", origin="log", line=1, identity=worker)
    reader = LogReader()
    first, second = (reader._new_end(Match(owner="nanny.killed", role="death")) for _ in range(2))
    reader._learn(second, named)
    reader._learn(first, named)
    (ended, removed) = reader.read([Match(owner="scheduler.removed", role="removal", identity=worker, line=2)])
    assert ([each.line for each in ended.marks], [each.line for each in removed.marks]) == ([1], [1, 2])


LINE = "2026-05-04 11:22:{:02},100 - distributed.nanny - {}\n"


def explained(*lines):
    """What is said of a nanny's lines, one a second."""
    return explain(logs=LogText("".join(LINE.format(second, line) for second, line in enumerate(lines))))


def test_a_warning_does_not_prove_that_a_nanny_says_how_workers_end():
    """Status 0 is passed over in silence, but only in a log that has what is said at level INFO."""
    restarted = "WARNING - Restarting worker"
    killed = "WARNING - Worker process still alive after 4.0 seconds, killing"
    assert {each.status for each in explained(killed, restarted, restarted).deaths} == {None}
    informed = explained("INFO - Worker process 7 exited with status 3", restarted, restarted)
    assert {each.status for each in informed.deaths} == {3, 0}


def test_two_ends_of_one_process_are_told_as_a_contradiction():
    """A process ends once: whoever reads of both must know that one line is of another process."""
    ends = ("INFO - Worker process 7 was killed by signal 11", "INFO - Worker process 7 exited with status 3")
    assert any("Two different ends of process 7" in each for each in explained(*ends).notes)
    assert not any("different ends" in each for each in explained(ends[0], ends[1].replace("7", "8")).notes)
