"""What of the cluster's answers becomes evidence of one death."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from attrs import evolve

from support.death_records import NOW
from workerdiag.incidents import WatchedDeath, judge
from workerdiag.model.evidence import Event, Gap, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.watch.feed import events
from workerdiag.watch.feed.events import PerishableEvidence

VICTIM = Identity(worker="tcp://10.0.0.4:1001", pid=7, nanny="tcp://10.0.0.4:9001", host="10.0.0.4")
OTHER = Identity(worker="tcp://10.0.0.5:1002", pid=8, nanny="tcp://10.0.0.5:9001", host="10.0.0.5")


def line(text, *, at=NOW):
    """A record as the source writes it."""
    return f"{datetime.fromtimestamp(at, tz=UTC):%Y-%m-%d %H:%M:%S},000 - distributed.nanny - INFO - {text}\n"


def evidence_of(monkeypatch, *pieces, victim=VICTIM, **more):
    """What the watcher keeps of the cluster's answer."""

    class Cluster:
        def __init__(self, client, *, known):
            assert (client, known) == (None, {})

        def next_round(self, *, about):
            assert about == (victim,)
            return self

        async def collect_async(self, *, budget_s):
            assert budget_s
            return list(pieces)

    monkeypatch.setattr(events, "ClusterSource", Cluster)
    death = WatchedDeath(id="1", when=NOW, identity=victim, **more)
    (told,) = asyncio.run(PerishableEvidence(None).ask([death]))
    return told.evidence


def test_facts_of_other_workers_are_left_out(monkeypatch):
    """What names nobody, or says what could not be looked at, stays."""
    own = [
        ProcessExit(identity=VICTIM, signal=9, reporter="nanny"),
        Event(topic="scheduler-state", fields={"workers": 3}),
        Gap(source="nanny log", reason="unreachable"),
    ]
    others = [ProcessExit(identity=OTHER, signal=11, reporter="nanny"), Event(topic="x", identity=OTHER)]
    assert evidence_of(monkeypatch, *own, *others) == tuple(own)


def test_logs_are_cut_to_the_time_of_the_death(monkeypatch):
    """With the lines that belong to a record, and what names the victim whenever it was."""
    kept = line("Worker process 7 was killed by signal 9") + "and so on\n"
    named = line(f"Start worker at: {VICTIM.worker}", at=NOW - 5000)
    text = line("long ago", at=NOW - 4000) + "  with more\n" + named + kept + line("later", at=NOW + 4000)
    chunk = LogChunk(origin="nanny log", data=text.encode(), stream="nanny")
    (found,) = evidence_of(monkeypatch, chunk)
    assert found.data.decode() == named + kept


@pytest.mark.parametrize(
    ("is_unannounced", "ordered_before_s", "is_kept"), [(True, 1, False), (True, 5, True), (False, 1, True)]
)
def test_an_order_that_the_worker_did_not_live_to_answer_is_left_out(
    monkeypatch, is_unannounced, ordered_before_s, is_kept
):
    """A worker killed as its cluster closes says no word; one that a nanny kills for not stopping lives for longer."""
    order = line("Retire worker addresses (stimulus_id='retire-workers-1') (0, 1)", at=NOW - ordered_before_s)
    log = LogChunk(origin="scheduler log", stream="scheduler", data=order.encode())
    assert bool(evidence_of(monkeypatch, log, is_unannounced=is_unannounced)) is is_kept


def test_records_of_other_deaths_are_left_out(monkeypatch):
    """Nannies of one host may write to one log: what names another process, or another lost worker, goes."""
    removal = Event(topic="all", fields={"action": "remove-worker", "worker": OTHER.worker}, identity=OTHER)
    own = line("Worker process 7 was killed by signal 9") + line(f"Remove worker addr: {VICTIM.worker}")
    shared = line("Restarting worker")
    others = line("Worker process 8 was killed by signal 11") + line(f"Remove worker addr: {OTHER.worker}")
    chunk = LogChunk(origin="nanny log", data=(others + own + shared).encode(), stream="nanny")
    (found,) = evidence_of(monkeypatch, removal, chunk)
    assert found.data.decode() == own + shared


SHARED = Identity(worker="tcp://10.0.0.4:1001", host="10.0.0.4")
ENDS = ("exited with status 3", "was killed by signal 9", "was killed by signal 11")
CAUSES = {"code.process-exit": 4, "external.sigkill": 4, "signal.segfault": 4}


def shared_log(count):
    """The log of nannies in one process whose workers died at once, with what names nobody after that."""
    ends = [line(f"Worker process {pid} {ENDS[pid % 3]}", at=NOW + pid / 10) for pid in range(1, count + 1)]
    follow = [line(text, at=NOW + count / 10) * count for text in ("Unregistering worker", "Restarting worker")]
    return "".join([line("Restarting worker"), *ends, *follow])


def test_what_a_nanny_does_after_the_end_of_another_process_is_left_out(monkeypatch):
    """In a log that several nannies share, as many such records stay as the victim has ends."""
    chunk = LogChunk(origin="nanny log", data=shared_log(12).encode(), stream="nanny")
    (found,) = evidence_of(monkeypatch, chunk)
    text = found.data.decode()
    assert "Worker process 7 was killed by signal 9" in text
    assert [text.count(each) for each in ("process", "Unregistering", "Restarting")] == [1, 1, 1]


def test_deaths_at_once_whose_nannies_share_a_log_are_told_by_what_they_died_of(monkeypatch):
    """Each was asked about by itself, and their excerpts of the log are judged together."""
    deaths = [
        WatchedDeath(
            id=str(pid),
            when=NOW + pid / 10,
            identity=evolve(SHARED, worker=f"tcp://10.0.0.4:{1000 + pid}", pid=pid),
        )
        for pid in range(1, 13)
    ]

    class Cluster:
        def __init__(self, client, *, known):
            assert (client, known) == (None, {})

        def next_round(self, *, about):
            assert about
            return self

        async def collect_async(self, *, budget_s):
            assert budget_s
            return [LogChunk(origin="nanny log", data=shared_log(12).encode(), stream="nanny")]

    monkeypatch.setattr(events, "ClusterSource", Cluster)
    told = asyncio.run(PerishableEvidence(None).ask(deaths))
    incidents = judge(told, timeout_s=120.0)
    assert {each.diagnosis.top.id: len(each.deaths) for each in incidents} == CAUSES


def test_the_log_of_another_nanny_is_left_out(monkeypatch):
    """Where the victim's own is known."""
    data = line("Worker process 8 was killed by signal 11").encode()
    other = LogChunk(origin="other", data=data, identity=Identity(nanny=OTHER.nanny, host=OTHER.host))
    assert evidence_of(monkeypatch, other) == ()
    assert evidence_of(monkeypatch, other, victim=Identity(worker="tcp://10.0.0.5:1003")) == (other,)
