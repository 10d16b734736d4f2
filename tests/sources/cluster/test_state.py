"""What a look inside a scheduler costs and brings, and how a cluster stands: by schedulers made of plain objects."""

from __future__ import annotations

import asyncio
import logging
import pickle
import pickletools
import threading
from collections import deque
from inspect import isawaitable
from itertools import count
from types import SimpleNamespace

import cloudpickle
import pytest
from distributed.scheduler import Transition

from workerdiag import load_rulebook
from workerdiag.model.evidence import Event, ExceptionFacts, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.pipeline import diagnose
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.event_evidence import event_evidence, worker_state_events
from workerdiag.sources.cluster.losses import (
    Losses,
    Removal,
    count_left_at_once,
    count_losses,
    losses_in_events,
    was_asked_to_close,
)
from workerdiag.sources.cluster.queries import (
    count_recent_losses,
    early_removals,
    look_at_topic,
    snapshot_events,
    take_snapshot,
)
from workerdiag.sources.cluster.scheduler_functions import (
    MAX_MEMBERS,
    SnapshotRequest,
    by_value,
    cut,
    fate,
    workerdiag_looks_at_all,
)
from workerdiag.sources.cluster.state import ClusterState, state_events, task_state_events, undelivered_errors
from workerdiag.sources.cluster.workers import (
    SETTINGS,
    cluster_object_events,
    version_conflict_events,
    with_worker_versions,
    workers_wanted,
)

NOW = 1_795_281_103.0
ONE, TWO = "tcp://10.0.0.4:1001", "tcp://10.0.0.5:1001"
BOOK = load_rulebook()
GAVE_UP = ExceptionFacts(type="TimeoutError", text="timed out after 8 s.")


def worker(*, silent_s=0.0, running=(), status="running"):
    """One worker as a look inside tells of it."""
    return {
        "status": status,
        "last_seen": NOW - silent_s,
        "metrics": {"memory": 10},
        "memory_limit": 100,
        "name": "w",
        "nanny": None,
        "nthreads": 1,
        "pid": 7,
        "processing_count": 1,
        "processing": ["load"],
        "executing": list(running),
    }


def awaited(state="processing", *, on=ONE, running_s=None):
    """A task that the client waits for."""
    return {"key": "load", "state": state, "worker": on, "running_s": running_s, "awaited": True}


def judged(standing, *, silent=(), others=()):
    """What is said of a cluster that stands so."""
    evidence = [
        *others,
        *state_events(standing, silent=silent, known={}),
        *worker_state_events(standing, silent=silent, known={}),
        Inspected(place="worker states"),
        Inspected(place="task states"),
        Inspected(place="scheduler events"),
    ]
    return diagnose(evidence, BOOK)


def losses(lost):
    """As the events tell of them."""
    return losses_in_events(lost, (), is_lower_bound=False)


def test_work_without_any_worker_is_a_standstill_for_sure():
    """Tasks wait, nobody is there to run them, nobody died: nothing else has to be seen."""
    found = judged(ClusterState(workers={}, counts={"states": {"queued": 3}}, now=NOW))
    assert (found.outcome, found.top.id) == ("explained", "standstill.no-workers")
    assert found.top.probability > 0.95


@pytest.mark.parametrize("lost", [0, 1])
def test_work_on_a_cluster_that_was_scaled_to_none_waits_for_nothing_but_workers(lost):
    """The cluster object itself wants none: then it is known why they are missing, whoever died before."""
    state = ClusterState(
        workers={}, counts={"states": {"queued": 3}}, now=NOW, workers_wanted=0, losses=Losses(count=lost)
    )
    found = judged(state)
    assert found.top.id == "standstill.none-wanted"
    assert found.top.probability > 0.9
    assert judged(ClusterState(workers={}, counts={"states": {"queued": 3}}, now=NOW, workers_wanted=2)).top.id == (
        "standstill.no-workers"
    )


@pytest.mark.parametrize(("reason", "ordered"), [("nanny-close", True), ("signal-15", False), (None, False)])
def test_a_worker_that_closed_on_an_order_is_not_lost(reason, ordered):
    """It announced why it closes; the scheduler alone calls that removal unexpected."""
    entries = [(NOW, {"action": "closing-worker", "reason": reason}), (NOW, {"action": "remove-worker"})]
    assert was_asked_to_close(entries) is ordered


def test_a_worker_that_left_as_soon_as_it_came_is_counted():
    """It may not have understood what it was sent; one that stayed for a while, or was told to go, did."""
    entries = [(NOW + n, {"action": "add-worker", "worker": f"tcp://h:{n}"}) for n in range(3)]
    lost = [
        Removal(worker="tcp://h:0", when=NOW + 0.1, expected=False, tasks=frozenset()),
        Removal(worker="tcp://h:1", when=NOW + 60, expected=False, tasks=frozenset()),
        Removal(worker="tcp://h:2", when=NOW + 2.1, expected=True, tasks=frozenset()),
    ]
    assert count_left_at_once(entries, lost) == 1


def test_no_worker_and_no_work_is_none():
    """An idle cluster that scaled down to nothing is well."""
    found = judged(ClusterState(workers={}, counts={"states": {"memory": 3}}, now=NOW))
    assert not found.causes


@pytest.mark.parametrize("gave_up", [True, False])
def test_a_slow_task_is_told_as_what_it_is(gave_up):
    """It runs, its worker answers: where somebody gave up waiting that is the answer, else there is no question."""
    standing = ClusterState(
        workers={ONE: worker(running=[("load", 12.0)])},
        counts={"states": {"processing": 1}, "tasks": [awaited(running_s=12.0)]},
        now=NOW,
        gave_up=gave_up,
    )
    found = judged(standing, others=[GAVE_UP] if gave_up else [])
    assert (found.top.id if found.top else None) == ("standstill.still-running" if gave_up else None)
    assert not any("kernel" in step.inspect for step in found.next_steps)
    assert found.deaths == ()


def test_a_task_behind_others_waits_for_its_turn():
    """It does not run yet, others do, and nobody is to blame."""
    standing = ClusterState(
        workers={ONE: worker(running=[("first", 3.0)])},
        counts={"states": {"queued": 1}, "tasks": [awaited("queued", on=None)]},
        now=NOW,
        gave_up=True,
    )
    found = judged(standing, others=[GAVE_UP])
    assert (found.top.id, found.blame.verdict) == ("standstill.still-running", "nobody")


@pytest.mark.parametrize(("status", "told"), [("pending", 1), ("error", 0)])
def test_an_error_that_the_client_could_not_read_is_told(status, told):
    """The scheduler says that the task failed, and its future still waits: the client failed to restore the error."""
    counts = {
        "tasks": [{"key": "('f', 0)", "state": "erred", "awaited": True, "error": "RecursionError('too deep')"}]
    }
    client = SimpleNamespace(futures={("f", 0): SimpleNamespace(status=status)})
    events = list(undelivered_errors(counts, client))
    assert len(events) == told
    if told:
        found = diagnose([*events, GAVE_UP], BOOK)
        assert found.top is not None
        assert found.top.id == "exception.deserialization"
        assert "RecursionError('too deep')" in found.top.mitigations[0].do


@pytest.mark.parametrize(("awaited", "cause"), [(5, "standstill.none-wanted"), (2, None), (None, None)])
def test_a_cluster_that_wants_fewer_workers_than_are_awaited_is_told(awaited, cause):
    """The cluster object of this program starts no more by itself."""
    state = ClusterState(workers={}, worker_count=2, counts={}, now=NOW, workers_wanted=2, workers_awaited=awaited)
    gave_up = ExceptionFacts(type="WorkerStartTimeoutError", text="Only 2/5 workers arrived after 8")
    found = diagnose([gave_up, *state_events(state, silent=(), known={})], BOOK)
    assert cause in (None, found.top and found.top.id)
    assert (awaited == 5) == ("cluster.scale(5)" in [each.example for each in found.top.mitigations])


def test_a_silent_worker_beside_one_that_is_heard_of_lives():
    """It is suspected by its heartbeat against the others', told with what is on it, and nobody is said to be dead."""
    workers = {ONE: worker(silent_s=15.7), TWO: worker(silent_s=0.2)}
    standing = ClusterState(workers=workers, counts={"states": {"processing": 1}, "tasks": [awaited()]}, now=NOW)
    assert standing.maybe_silent() == [ONE]
    found = judged(standing, silent={ONE}, others=[GAVE_UP])
    assert (found.top.id, found.deaths) == ("standstill.unresponsive", ())
    (said,) = (
        each.fields for each in worker_state_events(standing, silent={ONE}, known={}) if each.fields.get("silent")
    )
    assert (said["seconds_since_heartbeat"], said["others_heard_s"], said["assigned"]) == (15.7, 0.2, "load")


@pytest.mark.parametrize(("count", "suspected"), [(2, 2), (60, 0)])
def test_if_all_are_silent_a_second_look_decides(count, suspected):
    """A scheduler that did not listen hears them then; in a large cluster heartbeats are too rare for that."""
    workers = {f"tcp://10.0.0.4:{port}": worker(silent_s=15.2) for port in range(count)}
    assert len(ClusterState(workers=workers, counts={}, now=NOW).maybe_silent()) == suspected


def test_a_removed_worker_is_no_silent_one():
    """Without the scheduler's clock, or with fresh heartbeats, there is no suspicion."""
    assert ClusterState(workers={ONE: worker(silent_s=99)}, counts={}, now=None).maybe_silent() == []
    assert ClusterState(workers={ONE: worker(silent_s=2)}, counts={}, now=NOW).maybe_silent() == []


PACKAGES = {"python": "3.12.1.final.0", "dask": "2026.8.0", "distributed": "2026.8.0"}
OLD = PACKAGES | {"dask": "2024.8.1", "distributed": "2024.8.1"}


@pytest.mark.parametrize(("in_trouble", "sure"), [(True, True), (False, False)])
def test_releases_far_apart_are_the_answer_where_something_is_wrong(in_trouble, sure):
    """Two years between worker and scheduler explain a failure; without one they are no trouble."""
    inside = {"worker_versions": [(1, OLD)], "client_versions": [(1, PACKAGES)]}
    events = list(version_conflict_events({"packages": PACKAGES}, inside, in_trouble=in_trouble))
    assert events[0].fields["months_apart"] == 24
    found = diagnose(events, BOOK)
    assert (bool(found.top) and found.top.id == "exception.version-mismatch") is sure


def test_without_a_look_inside_workers_and_we_ourselves_are_compared():
    """What workers told of their packages, and the client's own."""
    said = with_worker_versions({}, {ONE: {"packages": OLD}, TWO: None})
    assert said["worker_versions"] == [(1, OLD)]
    assert said["client_versions"][0][1]["distributed"]


def test_the_cluster_object_says_whether_it_scales_by_itself():
    """Advice on adaptive scaling is for adaptive clusters."""
    cluster = SimpleNamespace(_adaptive=None, worker_spec={})
    (said,) = cluster_object_events(SimpleNamespace(cluster=cluster))
    assert (said.fields["adaptive"], said.fields["workers_wanted"]) == (False, 0)
    assert list(cluster_object_events(SimpleNamespace())) == []


def test_a_job_of_several_workers_counts_as_those():
    """dask-jobqueue has one entry for each job, and in it the suffixes of its workers' names."""
    cluster = SimpleNamespace(_adaptive=None, worker_spec={"0": {"group": ["-0", "-1"]}, "1": {"options": {}}})
    assert workers_wanted(SimpleNamespace(cluster=cluster)) == 3


@pytest.mark.parametrize(
    ("change", "given_up"),
    [({}, 1), ({"_lock": SimpleNamespace(locked=lambda: True)}, None), ({"_adaptive": object()}, None)],
)
def test_workers_that_a_cluster_wants_and_has_none_for_are_given_up(change, given_up):
    """Unless it starts them at this moment, or scales by itself."""
    idle = SimpleNamespace(locked=lambda: False)
    made = {"_adaptive": None, "_lock": idle, "worker_spec": {0: {}, 1: {}}, "workers": {1: object()}}
    (said,) = cluster_object_events(SimpleNamespace(cluster=SimpleNamespace(**{**made, **change})))
    assert said.fields["workers_given_up"] == given_up


class Scheduler:
    """As much of a scheduler as a look inside touches, with many of everything."""

    def __init__(self, *, events=(), prefixes=0, workers=0, records=0):
        self.topics = {"all": SimpleNamespace(events=deque(events, maxlen=1000))}
        self._broker = SimpleNamespace(_topics=self.topics)
        line = logging.LogRecord("distributed.scheduler", logging.INFO, "", 0, "said", (), None)
        self._deque_handler = SimpleNamespace(
            deque=deque([line] * records), format=lambda record: record.getMessage()
        )
        self.task_prefixes = {n: SimpleNamespace(states={"queued": 1}) for n in range(prefixes)}
        self.tasks = {}
        self.clients = {}
        self.workers = {
            n: SimpleNamespace(
                address=f"tcp://10.0.0.4:{n}",
                status=SimpleNamespace(name="running"),
                nanny=None,
                name=n,
                pid=n,
                nthreads=1,
                memory_limit=1,
                last_seen=NOW,
                metrics={"memory": 1},
                processing={},
                executing={},
                versions={"packages": PACKAGES},
            )
            for n in range(workers)
        }

    def get_events(self, topic):
        return tuple(self.topics[topic].events)


class Client:
    """Runs what it is given, as a scheduler does: from its pickle."""

    def __init__(self, scheduler):
        self.scheduler = scheduler

    async def run_on_scheduler(self, function, *wanted):
        found = pickle.loads(cloudpickle.dumps(function))(*wanted, dask_scheduler=self.scheduler)
        return await found if isawaitable(found) else found


def request(*, keys=(), addresses=(), topics=("all",)):
    return SnapshotRequest(
        keys=keys,
        executing=[],
        tasks=[],
        addresses=addresses,
        recent_s=900.0,
        topics=topics,
        records=1000,
        settings=SETTINGS,
    )


def take_look(scheduler, *, keys=(), addresses=()):
    """What a look brings, and how many other things the loop could do meanwhile."""
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def look():
        beside = asyncio.ensure_future(others())
        wanted = request(keys=list(keys), addresses=list(addresses), topics=["scheduler", *addresses])
        found = await take_snapshot(Client(scheduler), wanted)
        beside.cancel()
        return found

    return asyncio.run(look()), turns


@pytest.mark.slow
def test_a_big_scheduler_s_loop_goes_on_while_we_look(monkeypatch):
    """After each 2 ms of work others have their turn: here each look at the clock takes a tenth of that."""
    clock = count()
    monkeypatch.setattr("time.perf_counter", lambda: next(clock) * 2e-4)
    events = [(NOW, {"action": "x"})] * 1000
    found, turns = take_look(Scheduler(events=events, prefixes=20_000, workers=1000, records=1000))
    steps = 20_000 + 2 * (1000 + 1000 + 1000)
    assert turns >= steps / 15
    assert (found["states"], found["whole"], found["worker_count"]) == ({"queued": 20_000}, True, 1000)
    assert len(found["log"]) == 1000


def test_of_ten_thousand_workers_those_that_matter_are_told():
    """In question, silent for longest, on the hosts in question: a few hundred, and how many there are."""
    scheduler = Scheduler(workers=10_000)
    for number, each in enumerate(scheduler.workers.values()):
        each.address = f"tcp://10.0.{number // 100}.1:{number}"
        each.memory_limit = 100
    asked, silent, beside = (scheduler.workers[number] for number in (9_000, 5_000, 7_001))
    silent.last_seen, host = NOW - 1000, "tcp://10.0.70.1:1"
    found, _ = take_look(scheduler, addresses=[asked.address, host])
    assert {asked.address, silent.address, beside.address} <= found["workers"].keys()
    assert (len(found["workers"]), found["worker_count"], found["running_count"]) == (500, 10_000, 10_000)


def test_ten_thousand_losses_are_counted_where_they_are_known():
    """Of the thousand events that the scheduler keeps in one topic only the last tell of them."""
    scheduler = Scheduler()
    for number in range(10_000):
        worker = f"tcp://10.0.0.4:{number}"
        came = (NOW + number - 500.0, {"action": "add-worker"})
        went = {"action": "remove-worker", "expected": number % 10 == 0, "processing-tasks": set()}
        closing = [(NOW, {"action": "closing-worker", "reason": "nanny-close"})] if number == 1 else []
        scheduler.topics[worker] = SimpleNamespace(events=deque([came, *closing, (NOW + number / 100, went)]))
        scheduler.topics["all"].events.append((NOW + number / 100, went | {"worker": worker}))
    found, _ = take_look(scheduler)
    losses = count_losses(found, (), since=0.0, asked_to_close=())
    early = early_removals(found)
    assert (losses.count, losses.is_lower_bound, losses.within_s) == (8_999, False, 100.0)
    assert [message["worker"] for _, message in early[:2]] == ["tcp://10.0.0.4:1", "tcp://10.0.0.4:2"]
    assert len(early) == 50


def test_losses_beyond_what_is_read_are_at_least_so_many():
    """Without a look inside, a full topic may have let go of earlier removals."""
    went = {"action": "remove-worker", "expected": False}
    entries = [(NOW + n / 100, went | {"worker": f"tcp://10.0.0.4:{n}"}) for n in range(1000)]
    losses = count_losses({}, entries, since=NOW - 900, asked_to_close=())
    assert (losses.count, losses.is_lower_bound) == (1000, True)


def test_what_is_counted_in_part_says_at_least():
    """More prefixes than are counted leave the count a lower bound, and the event says so."""
    found, _ = take_look(Scheduler(prefixes=20_001))
    (event,) = task_state_events(found)
    assert (event.fields["count"], event.fields["counted"]) == (20_000, "at least")


def test_a_worker_lost_with_many_tasks_is_not_told_with_all_of_them():
    """Of 100,000 keys a hundred come, those in question first, and the count is that of all."""
    keys = {f"load-{n}" for n in range(100_000)}
    lost = {"action": "remove-worker", "worker": ONE, "processing-tasks": keys, "expected": False}
    found, _ = take_look(Scheduler(events=[(NOW, lost)]), keys=["load-99999", "other"])
    ((_, message),) = snapshot_events(found, "all")
    assert len(message["processing-tasks"]) == MAX_MEMBERS
    assert message["processing-tasks"][0] == "load-99999"
    (event, *_) = event_evidence("all", snapshot_events(found, "all"), {})
    assert event.fields["processing_count"] == 100_000


def test_what_only_the_scheduler_has_is_brought_by_its_address():
    """States of workers, which ``scatter(broadcast=True)`` puts into events, cannot be pickled."""
    state = SimpleNamespace(address=ONE, lock=threading.Lock())
    replicated = {"action": "replicate", "workers": [state], "nested": {"tasks": {state.lock}}}
    found, _ = take_look(Scheduler(events=[(NOW, replicated)]))
    ((_, message),) = snapshot_events(pickle.loads(pickle.dumps(found)), "all")
    assert (message["action"], message["workers"]) == ("replicate", [ONE])


def test_a_look_makes_no_topic():
    """Asking a scheduler for the events of a topic that it does not have would create it."""
    scheduler = Scheduler()
    found, _ = take_look(scheduler)
    assert (list(scheduler.topics), found["events"]["scheduler"]) == (["all"], [])
    assert snapshot_events(found, "never-asked") is None


def test_the_snapshot_leaves_the_scheduler_as_bytes():
    """Dask serializes a dictionary value by value on the scheduler's loop, and bytes as they are."""
    reply = asyncio.run(workerdiag_looks_at_all(request(), dask_scheduler=Scheduler(workers=3)))
    assert isinstance(reply, bytes)


def test_the_look_needs_no_workerdiag_where_it_runs():
    """All of it travels by value: what is pickled names no module of ours to import."""
    globals_ = [
        argument
        for opcode, argument, _ in pickletools.genops(
            cloudpickle.dumps(by_value(workerdiag_looks_at_all), protocol=2)
        )
        if opcode.name == "GLOBAL"
    ]
    assert globals_
    assert not [each for each in globals_ if str(each).startswith("workerdiag")]


class Answers:
    """A scheduler whose handlers answer, but for those that are busy the first time."""

    address = "tcp://10.0.0.1:8786"

    def __init__(self, *busy):
        self.busy = set(busy)
        self.asked = []

    def __getattr__(self, name):
        async def handler(**_):
            self.asked.append(name)
            if name in self.busy:
                self.busy.discard(name)
                await asyncio.Event().wait()
            return {
                "versions": {"host": {"python": "2.7.1"}, "packages": {}},
                "identity": {"workers": {ONE: worker()}},
                "get_task_prefix_states": {},
            }.get(name, ())

        return handler


def source(scheduler):
    """A cluster source with a client of that scheduler."""

    def sync(function, callback_timeout):
        return asyncio.run(asyncio.wait_for(function(), callback_timeout))

    client = SimpleNamespace(asynchronous=False, status="running", scheduler=scheduler, sync=sync, futures={})
    return ClusterSource(client)


def test_asked_again_it_asks_for_what_was_cut_alone():
    """What was answered is not asked twice, and the second round brings what the first one lacked."""
    scheduler = Answers("identity")
    first = source(scheduler)
    cut = list(first.collect(budget_s=0.3))
    assert "timed-out" in {each.reason for each in cut if isinstance(each, Gap)}
    before = list(scheduler.asked)
    whole = list(first.next_round().collect(budget_s=5.0))
    assert "timed-out" not in {each.reason for each in whole if isinstance(each, Gap)}
    assert {"worker states", "task states"} <= {each.place for each in whole if isinstance(each, Inspected)}
    assert "versions" not in scheduler.asked[len(before) :]


@pytest.mark.parametrize("status", ["closed", "closing"])
def test_who_could_not_look_has_not_looked(status):
    """A closed client yields a gap and its own state, and no place counts as looked at."""
    asked = source(Answers())
    asked._client.status = status
    gap, state = asked.collect(budget_s=30)
    assert isinstance(gap, Gap)
    assert (state.topic, state.fields["status"]) == ("client-state", status)


@pytest.mark.parametrize("silent", ["versions", "events", "identity"])
def test_a_place_that_did_not_answer_is_not_looked_at(silent):
    """From where the scheduler falls silent on, nothing counts as looked at."""
    found = list(source(Answers(silent)).collect(budget_s=0.3))
    looked = {each.place for each in found if isinstance(each, Inspected)}
    assert looked <= {"worker states"}
    assert silent == "events" or not looked


def test_an_empty_topic_was_looked_at():
    """A scheduler that tells of no event was asked all the same."""
    found = list(source(Answers()).collect(budget_s=5.0))
    assert "scheduler events" in {each.place for each in found if isinstance(each, Inspected)}
    assert [each for each in found if isinstance(each, Event) and each.topic == "scheduler-state"]


def test_asking_leaves_no_event_and_no_topic_behind():
    """The scheduler notes what it runs for us, in a topic of a thousand: we take that out, and make no topics."""
    ours = [{"action": "run-function", "function": name} for name in (b"asyncio.threads", b"workerdiag_looks")]
    others = {"action": "run-function", "function": b"of a user, before asyncio.threads" + bytes(200)}
    scheduler = Scheduler(events=[(NOW, others), (NOW, ours[0]), (NOW, {"action": "x"}), (NOW, ours[1])])
    found, _ = take_look(scheduler)
    told = asyncio.run(look_at_topic(Client(scheduler), "workerdiag-death"))
    assert [message for _, message in scheduler.get_events("all")] == [others, {"action": "x"}]
    assert [message["action"] for _, message, _ in found["events"]["all"]] == ["run-function", "x"]
    assert (told, "workerdiag-death" in scheduler.topics) == ([], False)


@pytest.mark.parametrize(("nannies", "sure"), [(0, True), (1, False)])
def test_all_workers_lost_is_certain_only_where_no_nanny_is_left_to_ask(nannies, sure):
    """With a nanny how they ended is the first question; without one only others can say it."""
    lost = [Removal(worker=each, when=NOW, expected=False, tasks=frozenset()) for each in (ONE, TWO)]
    stand = ClusterState(
        workers={}, counts={"states": {"no-worker": 1}}, now=NOW, losses=losses(lost), nannies=nannies
    )
    (event,) = state_events(stand, silent=(), known={})
    found = diagnose([event, Inspected(place="worker states")], load_rulebook(packs=False))
    assert (event.fields["lost_unasked"], event.fields["lost_within_s"]) == (2, 0.0)
    assert found.causes[0].id == "standstill.no-workers"
    assert (found.causes[0].probability > 0.9) is sure


def test_a_scheduler_that_lives_and_missed_its_workers_was_not_lost():
    """What a nanny notes of a broken connection is held against the scheduler that answers, for every death."""
    note = (
        b"2026-11-21 17:11:43,000 - distributed.nanny - INFO - Closing Nanny gracefully at 'tcp://10.0.0.4:4001'."
    )
    note += b" Reason: worker-handle-scheduler-connection-broken\n"
    identity = Identity(worker=ONE, nanny="tcp://10.0.0.4:4001")
    log = LogChunk(origin="nanny log", data=note, stream="nanny", identity=identity)
    lost = [
        Removal(worker=each, when=NOW + after, expected=False, tasks=frozenset())
        for each, after in ((ONE, 0.0), (TWO, 1.0))
    ]
    gone = [(each.when, {"action": "remove-worker", "worker": each.worker, "expected": False}) for each in lost]
    stand = ClusterState(
        workers={}, counts={"states": {"no-worker": 1}}, now=NOW + 3, losses=losses(lost), nannies=1
    )
    evidence = [log, *event_evidence("all", gone, {ONE: identity}), *state_events(stand, silent=(), known={})]
    found = diagnose(evidence, load_rulebook(packs=False))
    assert {each.id: each.probability for each in found.causes}.get("exit.scheduler-lost", 0.0) < 0.1


@pytest.mark.parametrize(
    ("states", "unfinished"),
    [
        ({"a": "memory", "b": None}, 0),
        ({"a": "released"}, 0),
        ({"a": "memory", "b": "processing", "c": "erred", "d": "waiting"}, 3),
        ({}, 0),
        (dict.fromkeys(map(str, range(2000)), "memory"), None),
    ],
    ids=["done or forgotten", "dropped", "still to be done", "no tasks", "too many to ask about"],
)
def test_of_a_lost_worker_the_scheduler_says_which_tasks_are_still_to_be_done(states, unfinished):
    """A death whose tasks others did is over; of very many it is not known."""
    tasks = {key: SimpleNamespace(state=state, waiters=(), who_wants=()) for key, state in states.items() if state}
    removed = {"processing-tasks": dict.fromkeys(states, 1.0)}
    scheduler = SimpleNamespace(tasks=tasks)
    assert asyncio.run(fate(scheduler, removed)) == (len(states), unfinished)
    assert asyncio.run(fate(scheduler, {})) == (0, None)


def test_an_event_with_a_transition_log_is_sent():
    """Its tuples have names and take their members one by one; of other collections only the size is bounded."""
    transition = Transition("load", "waiting", "processing", {}, "compute-1", 1.0)
    message, counts = cut({"action": "invalid-transition", "story": [transition]}, [], 20)
    assert message["story"] == [("load", "waiting", "processing", {}, "compute-1", 1.0)]
    assert counts == {}


def test_workers_that_were_lost_in_the_place_of_others_are_counted():
    """Both ways: inside the scheduler, with the results that went and the threads, and by the topic ``all``."""
    events = []
    for number, (came, gone) in enumerate(((-90, -60), (-90, -50), (-48, -30), (-45, -10))):
        worker = f"tcp://10.0.0.4:{2000 + number}"
        lost = {"load-1", "load-2"} if number else set()
        removed = {
            "action": "remove-worker",
            "expected": False,
            "lost-computed-tasks": lost,
            "processing-tasks": {},
        }
        events += [
            (NOW + came, {"action": "add-worker", "worker": worker}),
            (NOW + gone, {**removed, "worker": worker}),
        ]
    events.sort(key=lambda each: each[0])
    scheduler = Scheduler(events=events)
    for worker in {message["worker"] for _, message in events}:
        own = [each for each in events if each[1]["worker"] == worker]
        scheduler.topics[worker] = SimpleNamespace(events=deque(own))
    scheduler.total_nthreads_history = [(NOW, 0), (NOW, 2), (NOW, 4), (NOW, 2), (NOW, 0)]
    found, _ = take_look(scheduler)
    inside = count_losses(found, (), since=0.0, asked_to_close=())
    outside = count_losses({}, events, since=0.0, asked_to_close=())
    for each in (inside, outside):
        assert (each.count, each.replacements, each.results, each.last_when) == (4, 2, 6, NOW - 10)
    assert (inside.threads, outside.threads) == (2, None)
    assert asyncio.run(count_recent_losses(Client(scheduler))) == 4
