"""One round of questions: the cluster first, then the platforms, and none of them can spoil the others."""

from __future__ import annotations

import threading
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from workerdiag import load_rulebook
from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.evidence import Event, ExceptionFacts, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.pipeline import diagnose
from workerdiag.sources import discovery
from workerdiag.sources import registry as room
from workerdiag.sources.discovery import Discovery, _is_callers_timeout
from workerdiag.sources.runner import drop_late_text
from workerdiag.sources.scene import find_victims

ME = Identity(worker="tcp://10.0.0.4:4002", pid=7012, host="10.0.0.4")
KILLED = ExceptionFacts(type="distributed.scheduler.KilledWorker", text="", identity=ME)
KERNEL = b"[ 99.1] Memory cgroup out of memory: Killed process 7012 (python) total-vm:1kB, anon-rss:1kB\n"


class Kernel:
    """A source that answers, among others that do not."""

    name = "kernel"

    def __init__(self, scene):
        self.victims = scene.victims

    def collect(self, *, budget_s):
        assert budget_s > 0
        yield LogChunk(origin="dmesg", data=KERNEL, stream="kernel", identity=self.victims[0].identity)


def asking(what):
    """A source that does *what* when it is asked."""

    class Source:
        name = "bad one"

        def __init__(self, scene):
            self.scene = scene

        def collect(self, *, budget_s):
            assert budget_s > 0
            yield from what()

    return Source


def floods():
    while True:
        yield LogChunk(origin="flood", data=b"x" * 2**20, identity=ME)


def raises():
    raise OSError("the database is down")


def garbage():
    return ["it was the rack"]


def hangs():
    threading.Event().wait()


@pytest.fixture
def sources(monkeypatch):
    """Only these apply."""

    def register(**kinds):
        monkeypatch.setattr(room, "factories", lambda: iter(kinds.items()))
        monkeypatch.setattr(discovery, "find_locations", lambda *_, **__: ([], []))

    return register


@pytest.mark.parametrize("what", [floods, raises, garbage, hangs])
def test_a_failing_source_is_named_and_costs_the_others_nothing(what, sources):
    """Time-out, error, garbage or a flood: the kernel's word is heard, and the report says who was not."""
    sources(kernel=Kernel, bad=asking(what))
    pieces = [KILLED, *Discovery(None, [KILLED], Deadline.after(1.0)).collect()]
    findings = diagnose(drop_late_text(pieces, NO_DEADLINE), load_rulebook())

    assert findings.top is not None
    assert findings.top.id == "kernel.oom-killer"
    assert [gap.source for gap in findings.gaps] == ["bad one"]


def test_a_package_that_cannot_be_loaded_is_named(monkeypatch):
    """A broken installation of somebody else's package is a gap."""
    monkeypatch.setattr(room, "SHIPPED", ())
    monkeypatch.setattr(room, "entry_points", lambda group: [EntryPoint("racks", "no_such:x", group)])

    found = Discovery(None, [KILLED], Deadline.after(1.0)).collect()
    assert [piece.source for piece in found if isinstance(piece, Gap)] == ["racks"]


def test_without_a_victim_no_platform_is_asked(sources):
    """A task that failed is not a reason to ask the kernel."""
    sources(bad=asking(raises))

    facts = [ExceptionFacts(type="ValueError", text="x", from_task=True)]
    assert Discovery(None, facts, Deadline.after(1.0)).collect() == []


def removed(worker: str, when: float, **fields: object) -> Event:
    return Event(
        topic=worker,
        fields={"action": "remove-worker", **fields},
        when=when,
        identity=Identity(worker=worker),
    )


def test_victims_are_the_named_then_the_unexpectedly_removed():
    """Few are asked about, so the order decides; who was retired is no victim."""
    pieces = [
        removed("tcp://a:1", 10.0),
        removed("tcp://b:1", 30.0, expected=True),
        removed("tcp://c:1", 20.0),
        ExceptionFacts(type="KilledWorker", text="", identity=Identity(worker="tcp://a:1", pid=7)),
    ]

    found = find_victims(pieces)
    assert [each.identity.worker for each in found] == ["tcp://a:1", "tcp://c:1"]
    assert (found[0].identity.pid, found[0].when) == (7, 10.0)


def test_who_was_restarted_is_no_victim():
    """The event of a restart lists the workers, and comes when they are gone."""
    fields = {"action": "restart-workers", "workers": "tcp://a:1, tcp://b:1", "workers_count": 2}
    restart = Event(topic="all", fields=fields, when=11.0)
    pieces = [removed("tcp://a:1", 10.0), removed("tcp://c:1", 10.0), restart]
    assert [each.identity.worker for each in find_victims(pieces)] == ["tcp://c:1"]


def test_a_victim_joined_when_the_scheduler_last_said_so_before_it_went():
    """With fixed ports an address joins again and again."""
    identity = Identity(worker="tcp://a:1")
    joined = [
        Event(topic="tcp://a:1", fields={"action": "add-worker"}, when=when, identity=identity)
        for when in (1.0, 11.0, 21.0)
    ]
    (found,) = find_victims(
        [joined[0], removed("tcp://a:1", 10.0), joined[1], removed("tcp://a:1", 20.0), joined[2]]
    )
    assert (found.since, found.when) == (11.0, 20.0)


def test_text_that_comes_too_late_becomes_a_gap():
    """Searching must not make up for time that asking has used."""
    chunk = LogChunk(origin="big", data=b"x" * 2**20, identity=ME)
    *first, gap = drop_late_text([chunk], Deadline.after(0))

    assert isinstance(gap, Gap)
    assert (gap.source, gap.reason) == ("big", "timed-out")
    assert sum(len(piece.data) for piece in first) == 2**18


def test_a_victim_is_known_by_the_name_that_the_scheduler_logged():
    """Pods and jobs are named after workers, and events of a removal do not name them."""
    line = b"2026-05-04 11:22:33,444 - distributed.scheduler - INFO - Remove worker addr: tcp://a:1 name: w-7 (stimulus_id='x')\n"
    log = LogChunk(origin="scheduler log", data=line, stream="scheduler")

    assert find_victims([removed("tcp://a:1", 10.0), log])[0].identity.name == "w-7"


class Busy:
    """A cluster source that is cut the first time, and answers when it is asked again."""

    name = "cluster"
    rounds = 0

    def __init__(self, *_, **__):
        self.is_again = False

    def next_round(self):
        source = Busy()
        source.is_again = True
        return source

    def collect(self, *, budget_s):
        assert budget_s > 0
        Busy.rounds += 1
        yield Inspected(place="worker states")
        if self.is_again:
            yield removed("tcp://10.0.0.4:4002", 10.0)
        else:
            yield Gap(source="scheduler log", place="scheduler log", reason="timed-out")


@pytest.fixture
def busy(monkeypatch):
    """A cluster that is busy at first, and no recorder."""
    monkeypatch.setattr(discovery, "ClusterSource", Busy)
    monkeypatch.setattr(Busy, "rounds", 0)
    monkeypatch.setattr(discovery, "RecorderSource", lambda *_, **__: SimpleNamespace(name="none", collect=nothing))
    return SimpleNamespace(asynchronous=False)


def nothing(*, budget_s):
    assert budget_s > 0
    return iter(())


def test_what_was_cut_is_asked_again_in_the_time_there_is(busy, sources):
    """The second answer takes the place of the first, and who is known to have died now is asked about as well."""

    class OfVictims(Kernel):
        def collect(self, *, budget_s):
            return super().collect(budget_s=budget_s) if self.victims else iter(())

    sources(kernel=OfVictims)
    found = Discovery(busy, [], Deadline.after(2.0)).collect()
    assert Busy.rounds == 2
    assert not [each for each in found if isinstance(each, Gap)]
    assert [each.place for each in found if isinstance(each, Inspected)] == ["worker states"]
    assert [each.identity.worker for each in found if isinstance(each, LogChunk)] == ["tcp://10.0.0.4:4002"]


def test_who_gave_up_waiting_is_known_by_the_exception():
    """A time-out that no task raised is the caller's own."""
    own = ExceptionFacts(type="TimeoutError", text="timed out after 8 s.")
    of_task = ExceptionFacts(type="TimeoutError", text="the database", from_task=True)
    assert _is_callers_timeout(own)
    assert not _is_callers_timeout(of_task)
