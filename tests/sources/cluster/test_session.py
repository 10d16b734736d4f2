"""What `ClusterSource` promises, with a client that answers from memory; tests/lab asks real ones."""

from __future__ import annotations

import asyncio
import pickle
import sys
from types import SimpleNamespace

import pytest

from support.hanging_peers import gives_up
from workerdiag import explain, load_rulebook
from workerdiag.model.evidence import Event, Gap, Inspected, LogChunk, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.model.rules import SOURCE_TOPICS, EventSign, scheduler_topics
from workerdiag.model.scene import Victim
from workerdiag.sources.cluster import ClusterSource
from workerdiag.sources.cluster.event_evidence import event_evidence, flatten_fields, worker_state_events
from workerdiag.sources.cluster.losses import find_removals, recently_dead, select_nannies
from workerdiag.sources.cluster.queries import ClusterQuestion, ServerLogRecord
from workerdiag.sources.cluster.session import records_chunk, shares_log
from workerdiag.sources.cluster.state import ClusterState, task_state_events
from workerdiag.sources.cluster.workers import setting_events, version_conflict_events, version_events
from workerdiag.sources.scene import without_unknown_nannies

NOW = 1_795_281_103.0
DEAD, ALIVE, NANNY = "tcp://10.0.0.4:1001", "tcp://10.0.0.4:1002", "tcp://10.0.0.4:9001"
WELL = {
    "status": "running",
    "memory_limit": 100,
    "metrics": {"memory": 10, "task_counts": {"executing": 1}},
    "last_seen": NOW,
    "nanny": NANNY,
    "name": "w",
    "nthreads": 2,
}


def gone(worker=DEAD, when=NOW, *, expected=False, tasks=("load-1",)):
    """The scheduler's event of a removal, as in the topic ``all``."""
    message = {
        "action": "remove-worker",
        "worker": worker,
        "expected": expected,
        "processing-tasks": set(tasks),
    }
    return when, message


def standing(workers, *, now=NOW, **counts):
    """A cluster of these workers."""
    return ClusterState(workers=workers, counts=counts, now=now)


class Scheduler:
    """Answers like a scheduler's handlers, and counts what it was asked."""

    address = "tcp://10.0.0.1:8786"

    def __init__(self, **replies):
        self.replies = replies
        self.asked = []

    def __getattr__(self, name):
        async def handler(**arguments):
            self.asked.append((name, arguments.get("topic") or arguments.get("workers")))
            reply = self.replies.get(name, ())
            if isinstance(reply, Exception):
                raise reply
            return reply(**arguments) if callable(reply) else reply

        return handler


class Client:
    """A client that is asked in the event loop of the test."""

    asynchronous = False
    status = "running"

    def __init__(self, **replies):
        replies = {
            "events": lambda topic: (
                ((NOW, {"action": "add-worker", "worker": ALIVE}), gone()) if topic == "all" else ()
            ),
            "identity": {"workers": {ALIVE: WELL}},
            "logs": ((NOW, "INFO", "2026-11-21 17:11:43,105 - distributed.scheduler - INFO - newest"),),
            "broadcast": lambda workers, **_: {workers[0]: ((NOW, "INFO", "x - distributed.nanny - INFO - died"),)},
            "versions": {"host": {"python": "2.7.1.final.0"}},
            "get_task_prefix_states": {"inc": {"memory": 2, "waiting": 0}, "dec": {"memory": 1}},
            **replies,
        }
        self.scheduler = Scheduler(**replies)

    def sync(self, function, callback_timeout):
        """As `distributed.Client.sync` of a synchronous client."""
        return asyncio.run(asyncio.wait_for(function(), callback_timeout))


def collect(client, *about, budget_s=30.0):
    """The evidence of one round."""
    return list(ClusterSource(client, ClusterQuestion(about=about)).collect(budget_s=budget_s))


def of_kind(kind, evidence):
    """The evidence of one kind."""
    return [each for each in evidence if isinstance(each, kind)]


def test_only_what_is_needed_is_asked():
    """One nanny of many workers, a handful of topics, no logs of workers, nothing that changes anything."""
    client = Client(
        identity={"workers": {f"tcp://10.0.1.{n}:1": WELL | {"nanny": f"tcp://10.0.1.{n}:2"} for n in range(200)}}
    )
    collect(client, Identity(worker=DEAD, nanny=NANNY))
    names = [name for name, _ in client.scheduler.asked]
    assert set(names) <= {"events", "identity", "broadcast", "logs", "versions", "get_task_prefix_states"}
    nannies, versions = (workers for name, workers in client.scheduler.asked if name == "broadcast")
    assert (nannies, len(versions)) == ([NANNY], 5)
    assert names.count("events") == 5


def test_the_topics_that_rules_refer_to_are_asked_for():
    """An event sign of a topic for which nobody asks could never show."""
    book = load_rulebook(packs=False)
    signs = [sign for cause in book.causes for sign in (*cause.signs, *cause.against)]
    topics = {topic for sign in signs if isinstance(sign, EventSign) for topic in sign.topic.split("|")}
    anyhow = SOURCE_TOPICS | {"all", "worker", ".*"}
    client = Client()
    explain(client=client, rulebook=book)
    assert topics - anyhow <= set(scheduler_topics(book))
    assert {"invalid-worker-transition", "worker-restart-memory"} <= set(scheduler_topics(book))
    assert set(scheduler_topics(book)) <= {topic for name, topic in client.scheduler.asked if name == "events"}


def test_without_a_python_like_ours_no_code_is_sent():
    """Byte code of another release can crash a scheduler, so the tasks are only counted there."""
    client = Client()
    client.run_on_scheduler = lambda *_: pytest.fail("sent code")
    states = [each.fields for each in of_kind(Event, collect(client)) if each.topic == "task-state"]
    assert states == [{"state": "memory", "count": 3}]


@pytest.mark.parametrize("kind", [ValueError, PermissionError], ids=["of Dask", "of the watcher's connection"])
def test_each_refusal_is_a_gap_and_the_rest_is_still_asked(kind):
    """One handler that is forbidden, or fails, costs its own answer only."""
    forbidden = kind("The 'logs' handler has been explicitly disallowed in Scheduler")
    evidence = collect(Client(logs=forbidden, get_task_prefix_states=KeyError("x"), broadcast=OSError("gone")))
    assert [(each.source, each.reason) for each in of_kind(Gap, evidence)] == [
        ("scheduler events", "expired"),
        ("scheduler log", "forbidden"),
        ("task states", "unreachable"),
        ("scheduler: versions", "unreachable"),
        (f"nanny log of {NANNY}", "unreachable"),
    ]
    assert all(each.detail and each.remedy for each in of_kind(Gap, evidence))
    assert {each.place for each in of_kind(Inspected, evidence)} == {"scheduler events", "worker states"}


def test_versions_that_went_with_the_last_worker_are_a_gap():
    """Whether the workers had other packages than the scheduler can then not be known; with one of them it can."""
    lost = collect(Client(identity={"workers": {}}))
    assert ("versions", "expired") in [(each.place, each.reason) for each in of_kind(Gap, lost)]
    assert "versions" not in [each.place for each in of_kind(Gap, collect(Client()))]


@gives_up
def test_a_scheduler_that_does_not_answer_is_left_alone():
    """It is not waited for, and after one silence nothing more is asked."""

    async def never(**_):
        await asyncio.Event().wait()

    client = Client()
    client.scheduler = SimpleNamespace(versions=never)
    evidence = collect(client, budget_s=0.5)
    assert [(each.source, each.reason) for each in evidence] == [("scheduler: versions", "timed-out")]


def gap_reasons(client):
    """Why the cluster could not be asked."""
    return [each.reason for each in collect(client) if isinstance(each, Gap)]


def test_a_broken_client_is_a_gap_whatever_it_raises():
    """Nothing that a dying client does comes out as an exception."""
    client = Client()
    client.sync = lambda *_, **__: 1 / 0
    assert gap_reasons(client) == ["malformed"]
    client.status = "closed"
    assert gap_reasons(client) == ["unreachable"]
    assert gap_reasons(object()) == ["unreachable"]


def test_a_silent_scheduler_s_local_servers_are_read_in_this_process():
    """A LocalCluster's logs are at hand although the client is closed, each record once."""
    records = ((2.0, "INFO", "second"), (1.0, "INFO", "first"))
    nanny = type("Nanny", (), {"address_safe": NANNY, "get_logs": lambda *_, **__: records})
    client = Client()
    client.status = "closed"
    client.cluster = SimpleNamespace(workers={0: nanny(), 1: nanny()}, scheduler=object())
    (chunk,) = of_kind(LogChunk, collect(client))
    assert chunk.data.decode() == (
        "1970-01-01 00:00:01,000 - distributed.nanny - INFO - first\n"
        "1970-01-01 00:00:02,000 - distributed.nanny - INFO - second\n"
    )


def test_a_nanny_that_left_a_local_cluster_still_tells(monkeypatch):
    """One whose worker dies as it comes gives up and leaves; one of another cluster says nothing of this one."""
    nannies = [
        SimpleNamespace(
            address_safe=f"tcp://127.0.0.1:{port}",
            scheduler_addr=f"tcp://127.0.0.1:{port}",
            get_logs=lambda port=port, **_: ((1.0, "INFO", f"of {port}"),),
        )
        for port in (1, 2)
    ]
    fake = SimpleNamespace(Nanny=SimpleNamespace(_instances=nannies))
    monkeypatch.setitem(sys.modules, "distributed.nanny", fake)
    client = Client()
    client.cluster = SimpleNamespace(workers={}, scheduler=object(), scheduler_address="tcp://127.0.0.1:2")
    (chunk,) = [each for each in of_kind(LogChunk, collect(client)) if each.stream == "nanny"]
    assert chunk.data.decode().endswith("of 2\n")


def test_a_nanny_log_without_its_usual_level_shows_nothing_by_silence():
    """Where INFO is left out, or older records are, what is absent was not looked for."""
    quiet = Client(broadcast=lambda workers, **_: {workers[0]: ((NOW, "WARNING", "x"),)})
    full = Client(broadcast=lambda msg, workers, **_: {workers[0]: ((NOW, "INFO", "x"),) * msg["n"]})
    for client, reason in ((quiet, "never-recorded"), (full, "expired")):
        evidence = collect(client)
        assert "nanny log" not in {each.place for each in of_kind(Inspected, evidence)}
        assert reason in [each.reason for each in of_kind(Gap, evidence) if each.source.startswith("nanny")]


def test_times_in_logs_are_told_in_utc():
    """Whatever the time zone of the server and the format of its log, the same clock as events."""
    lines = [
        "2026-11-21 12:11:43,105 - distributed.nanny.memory - INFO - local time\nsecond line",
        "distributed.nanny - INFO - no time",
        "INFO of my own format",
    ]
    chunk = records_chunk(
        "n", [ServerLogRecord(NOW, "INFO", line) for line in lines], stream="nanny", identity=Identity()
    )
    assert chunk.data.decode().splitlines() == [
        "2026-11-21 17:11:43,000 - distributed.nanny.memory - INFO - local time",
        "second line",
        "2026-11-21 17:11:43,000 - distributed.nanny - INFO - no time",
        "2026-11-21 17:11:43,000 - distributed.nanny - INFO - INFO of my own format",
    ]
    assert records_chunk("n", [], stream="nanny", identity=Identity()) is None


def test_events_are_flat_and_bounded():
    """Collections become text with a count; pickled bytes are left out."""
    fields = flatten_fields(
        {
            "processing-tasks": {f"t-{n:04}" for n in range(500)},
            "keys": ("a", 1),
            "n": 1,
            "b": b"x",
            "o": object,
        }
    )
    assert fields["processing"].split(", ") == [f"t-{n:04}" for n in range(20)]
    assert fields["processing_count"] == 500
    assert (fields["keys"], fields["keys_count"], fields["n"], "b" in fields) == ("a, 1", 2, 1, False)
    assert flatten_fields({"text": "x" * 10**6}).keys() == {"text"}


def test_events_carry_whose_they_are():
    """By topic, by field, one for each worker of a list; with what else is known of that worker."""
    known = {DEAD: Identity(worker=DEAD, nanny=NANNY)}
    (event, reading) = event_evidence(
        "worker-restart-memory", [(NOW, {"worker": DEAD, "pid": 7, "rss": 99})], known
    )
    assert isinstance(reading, MemoryReading)
    assert (event.identity.pid, event.identity.nanny, reading.rss_bytes) == (7, NANNY, 99)
    late = {"action": "worker-ttl-timed-out", "workers": {DEAD, ALIVE}, "ttl": 300}
    assert {each.identity.worker for each in event_evidence("scheduler", [(NOW, late)], {})} == {DEAD, ALIVE}
    hard = {
        "worker": DEAD,
        "traceback_text": "  File x\n",
        "exception_text": "InvalidTaskState",
        "exception": b"x",
    }
    (event, chunk) = event_evidence("worker-fail-hard", [(NOW, hard)], {})
    assert (chunk.stream, chunk.identity.worker, b"InvalidTaskState" in chunk.data) == ("worker", DEAD, True)
    (event,) = event_evidence("mine", [(NOW, "any message")], {})
    assert event.fields == {"message": "any message"}


def test_workers_that_are_well_are_only_told_of_in_small_clusters():
    """Of a thousand workers only the paused, the full and the silent ones are evidence."""
    workers = {f"tcp://10.0.{n // 250}.{n % 250}:1": dict(WELL) for n in range(1000)}
    addresses = list(workers)
    workers[addresses[0]]["status"] = "paused"
    workers[addresses[1]]["metrics"] = {"memory": 90}
    workers[addresses[2]]["last_seen"] = NOW - 400
    told = list(worker_state_events(standing(workers), known={}))
    assert [each.identity.worker for each in told] == addresses[:3]
    assert told[0].fields["status"] == "paused"
    assert told[1].fields["memory_bytes"] == 90
    assert told[2].fields["seconds_since_heartbeat"] == 400
    assert len(list(worker_state_events(standing({ALIVE: WELL}, now=None), known={}))) == 1


def test_the_dead_are_those_in_question_then_those_lost_lately():
    """Unexpected ones before expected ones, old ones only if they had the same task."""
    entries = [
        gone("tcp://h:1", NOW - 9000, tasks=("load-1",)),
        gone("tcp://h:2", NOW - 9000, tasks=("other",)),
        gone("tcp://h:3", NOW - 5, expected=True, tasks=()),
        gone("tcp://h:4", NOW - 60, tasks=()),
        gone(),
    ]
    found = recently_dead(find_removals(entries), [Identity(worker=DEAD, pid=1)], now=NOW)
    assert [each.worker for each in found] == [DEAD, "tcp://h:4", "tcp://h:1", "tcp://h:3"]
    assert found[0].pid == 1
    assert [each.worker for each in recently_dead(find_removals(entries), [], now=NOW)] == [
        DEAD,
        "tcp://h:4",
        "tcp://h:3",
    ]


def test_nannies_near_the_dead_are_asked_first():
    """The one that is known; else that of the host's newest worker, then others, four at most."""
    workers = {f"tcp://10.0.0.{n}:1": WELL | {"nanny": f"tcp://10.0.0.{n}:9"} for n in range(1, 9)}
    workers["tcp://10.0.0.4:2"] = WELL | {"nanny": "tcp://10.0.0.4:8"}
    entries = [gone(), (NOW + 1, {"action": "add-worker", "worker": "tcp://10.0.0.4:2"})]
    found = select_nannies([Identity(worker=DEAD)], workers, entries)
    assert (found[:2], len(found)) == (["tcp://10.0.0.4:8", "tcp://10.0.0.4:9"], 4)
    assert select_nannies([Identity(worker=DEAD, nanny=NANNY)], workers, entries) == [NANNY]


def test_only_nannies_on_hosts_of_workers_are_asked():
    """An exception may name any address; the scheduler connects to none that it has no worker near."""
    workers = {ALIVE: WELL}
    anywhere = Identity(worker="tcp://10.9.9.9:1", nanny="tcp://10.9.9.9:22")
    hidden = Identity(worker=DEAD, nanny="tcp://169.254.169.254:80")

    assert select_nannies([anywhere, hidden], workers, [gone()]) == [NANNY]
    assert select_nannies([anywhere], {}, [gone()]) == []
    assert select_nannies([Identity(worker=DEAD, nanny=NANNY)], {}, [gone()]) == [NANNY]


def test_a_nanny_counts_only_where_the_scheduler_tells_of_its_host():
    """Platforms are asked through nannies as well."""
    told = event_evidence("all", [gone()], {})
    known = Victim(identity=Identity(worker=DEAD, nanny=NANNY, host="10.0.0.4"))
    strange = Victim(identity=Identity(worker="tcp://10.9.9.9:1", nanny="tcp://10.9.9.9:22", host="10.9.9.9"))

    assert without_unknown_nannies([known, strange], told) == (
        known,
        Victim(identity=Identity(worker="tcp://10.9.9.9:1", host="10.9.9.9")),
    )


def test_a_log_of_several_nannies_is_nobody_s():
    """Nannies of one process write to one log, so its lines are told apart by pid alone."""
    assert shares_log(NANNY, [], {"tcp://10.0.0.4:9002"})
    assert not shares_log(NANNY, [], {NANNY, "tcp://10.0.0.5:9002", None})
    assert shares_log(NANNY, [ServerLogRecord(NOW, "INFO", "Start Nanny at: 'tcp://10.0.0.4:9003'")], {NANNY})


def test_the_states_of_tasks_are_told_with_the_most_suspicious_example():
    """One event for each state, with what the waiting tasks ask for."""
    task = {
        "key": "a",
        "state": "no-worker",
        "suspicious": 0,
        "restrictions": "resource GPU=1",
        "exception_blame": None,
    }
    reply = {
        "states": {"no-worker": 3, "memory": 0, "forgotten": 9},
        "tasks": [task, task | {"key": "b", "suspicious": 2}],
    }
    (event,) = task_state_events(reply)
    assert event.fields == {
        "state": "no-worker",
        "count": 3,
        "key": "b",
        "suspicious": 2,
        "restrictions": "resource GPU=1",
        "exception_blame": None,
    }


PACKAGES = {"python": "3.12.1.final.0", "dask": "2026.8.0", "cloudpickle": "3.1.2", "numpy": "2.4.0"}


def test_versions_and_settings_of_the_scheduler_come_without_another_question():
    """They are in answers that are asked for anyway, and of settings nothing else leaves."""
    inside = {
        "states": {},
        "events": {},
        "log": None,
        "workers": b"",
        "worker_count": 0,
        "settings": {"distributed.scheduler.allowed-failures": 3, "distributed.comm.password": "x"},
        "worker_versions": [(2, PACKAGES)],
        "client_versions": [(1, PACKAGES)],
    }
    client = Client(versions={"host": {"python": sys.version}, "packages": PACKAGES})

    async def run_on_scheduler(*_):
        return pickle.dumps(inside)

    client.run_on_scheduler = run_on_scheduler
    events = {each.topic: each.fields for each in of_kind(Event, collect(client))}
    assert events["versions"] == {"of": "scheduler", "address": Scheduler.address, **PACKAGES}
    assert events["configuration"] == {
        "of": "scheduler",
        "address": Scheduler.address,
        "distributed.scheduler.allowed-failures": 3,
    }
    assert [name for name, _ in client.scheduler.asked].count("versions") == 1


def test_versions_that_differ_are_told_with_who_has_which():
    """As Dask compares them: a scheduler may have another numpy, or none."""
    other = PACKAGES | {"cloudpickle": "3.0.0", "numpy": "1.26.0"}
    inside = {"worker_versions": [(2, PACKAGES), (1, other)], "client_versions": [(1, PACKAGES)]}
    (event,) = version_conflict_events({"packages": PACKAGES | {"numpy": None}}, inside)
    assert event.fields == {
        "of": "differing",
        "packages": "cloudpickle, numpy",
        "cloudpickle": "scheduler 3.1.2, client 3.1.2, 2 workers 3.1.2, worker 3.0.0",
        "numpy": "client 2.4.0, 2 workers 2.4.0, worker 1.26.0",
        "in_trouble": False,
        "months_apart": 0,
    }
    assert not list(
        version_conflict_events({"packages": PACKAGES | {"numpy": "9"}}, {"worker_versions": [(2, PACKAGES)]})
    )


@pytest.mark.parametrize("inside", [{}, {"worker_versions": None, "settings": 3}, {"worker_versions": [[1], 5]}])
def test_a_scheduler_that_tells_no_versions_is_no_problem(inside):
    """There is nothing to tell then."""
    assert not [
        *version_conflict_events({}, inside),
        *setting_events(inside, "x"),
        *version_events({"packages": 1}, "x"),
    ]
