"""What the recorder on the scheduler promises, with a scheduler made of plain objects; tests/lab has real ones."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import time
from types import SimpleNamespace

import fsspec
import pytest

from workerdiag.recorder import journal
from workerdiag.recorder.death_report import json_size
from workerdiag.recorder.deaths import DeathRing
from workerdiag.recorder.journal import Journal, append_to_file
from workerdiag.recorder.scheduler import HANDLER, RecorderScheduler
from workerdiag.wire import DEATH_TOPIC, PLUGIN_NAME
from workerdiag.wire.messages import DeathReport, RemovalRecord, decode_message
from workerdiag.wire.plain import to_plain

WORKER, OTHER, NANNY = "tcp://10.0.0.4:1001", "tcp://10.0.0.4:1002", "tcp://10.0.0.4:9001"


class Task:
    """As the scheduler's TaskState, as far as it is looked at."""

    def __init__(self, key, suspicious=0, state="processing"):
        self.key, self.suspicious, self.state = key, suspicious, state
        self.prefix = SimpleNamespace(suspicious=suspicious)
        self.dependencies, self.nbytes = set(), -1


class Scheduler:
    """As the scheduler, as far as it is looked at; removes workers in the order in which Dask does."""

    allowed_failures = 3

    def __init__(self):
        self.workers, self.tasks, self.handlers, self.nanny_plugins = {}, {}, {}, {}
        self.plugins, self.events = [], []

    def log_event(self, topic, msg):
        self.events.append((topic, msg))
        for plugin in self.plugins:
            plugin.log_event(topic, msg)

    def join(self, address, *, pid=7, executing=(), nthreads=1):
        self.workers[address] = SimpleNamespace(
            address=address,
            name="w",
            pid=pid,
            nanny=NANNY,
            host=address.split("/")[2].split(":")[0],
            nthreads=nthreads,
            memory_limit=2**30,
            last_seen=0.0,
            metrics={"memory": 5_000_000, "num_fds": 20, "spilled_bytes": {"memory": 0, "disk": 9}},
            executing={self.tasks[key]: 1.5 for key in executing},
            long_running=set(),
            has_what={},
            processing={},
        )
        for plugin in self.plugins:
            plugin.add_worker(scheduler=self, worker=address)

    def remove(self, address, keys=(), *, expected=False, stimulus_id="handle-worker-cleanup-1"):
        del self.workers[address]
        for key in keys:
            if not expected:
                self.tasks[key].suspicious += 1
                self.tasks[key].prefix.suspicious += 1
        message = {
            "action": "remove-worker",
            "processing-tasks": set(keys),
            "lost-computed-tasks": set(),
            "lost-scattered-tasks": set(),
            "stimulus_id": stimulus_id,
            "expected": expected,
        }
        self.log_event(address, dict(message))
        self.log_event("all", {**message, "worker": address})
        for plugin in self.plugins:
            plugin.remove_worker(scheduler=self, worker=address, stimulus_id=stimulus_id)


def started(plugin):
    """A scheduler with this plugin and two tasks."""
    scheduler = Scheduler()
    scheduler.tasks = {key: Task(key) for key in ("load", "wait")}
    asyncio.run(plugin.start(scheduler))
    scheduler.plugins.append(plugin)
    return scheduler


def answer_of(plugin, **arguments):
    """What a client is answered."""
    return asyncio.run(plugin.deaths(**arguments))


def nanny_says(worker=WORKER, **facts):
    """A nanny's message about a death."""
    return {"schema": 1, "kind": "nanny-report", "worker_address": worker, "pid": 7, **facts}


def report(worker=WORKER, **facts):
    """The same as the ring has it."""
    return decode_message(nanny_says(worker, **facts))


def no_failure(part, why):
    """Takes what a journal lacks."""
    pytest.fail(f"{part}: {why}")


@pytest.fixture
def plugin():
    """A plugin as it is made by a client."""
    return RecorderScheduler()


def test_a_removal_is_recorded_with_who_ran_and_who_waited(plugin):
    """Running tasks, waiting ones, memory and counts are those of the moment of the removal."""
    scheduler = started(plugin)
    scheduler.join(WORKER, executing=["load"])
    scheduler.remove(WORKER, ["load", "wait"])
    (death,) = answer_of(plugin)["deaths"]
    record = death["record"]
    assert record["executing_at_heartbeat"] == [{"key": "load", "running_s": 1.5}]
    assert (record["assigned_keys"], record["assigned_count"]) == (["load", "wait"], 2)
    assert (record["pid"], record["nanny_address"], record["address_host"]) == (7, NANNY, "10.0.0.4")
    assert (record["last_heartbeat"]["rss_bytes"], record["memory_limit_bytes"]) == (5_000_000, 2**30)
    assert {"key": "wait", "suspicious_count": 1} in record["suspects"]
    assert record["given_up"] == []


def test_the_tasks_that_dask_gives_up_on_are_named(plugin):
    """With one loss more than is allowed, the record says which tasks were given up."""
    scheduler = started(plugin)
    scheduler.tasks["wait"].suspicious = 3
    scheduler.join(WORKER)
    scheduler.remove(WORKER, ["load", "wait"])
    record = answer_of(plugin)["deaths"][0]["record"]
    assert record["given_up"] == [{"key": "wait", "suspicious_count": 4}]
    assert record["allowed_failures"] == 3


def test_the_nanny_may_tell_before_or_after_the_scheduler_notices(plugin):
    """Both are one death, whoever comes first."""
    scheduler = started(plugin)
    now = 0.0
    for address, nanny_first in ((WORKER, True), (OTHER, False)):
        scheduler.join(address)
        now = answer_of(plugin)["now"]
        message = nanny_says(address, noticed_at=now, exit={"signal": 9})
        if nanny_first:
            scheduler.log_event(DEATH_TOPIC, message)
        scheduler.remove(address)
        if not nanny_first:
            scheduler.log_event(DEATH_TOPIC, message)
    deaths = answer_of(plugin)["deaths"]
    assert len(deaths) == 2
    assert all(death["record"] and death["report"]["exit"]["signal"] == 9 for death in deaths)


def test_what_is_asked_waits_for_the_nanny_that_will_tell(plugin):
    """The exit status is there, though the nanny tells it some milliseconds after the removal."""

    async def scene():
        scheduler = Scheduler()
        scheduler.nanny_plugins[PLUGIN_NAME] = object()
        await plugin.start(scheduler)
        scheduler.plugins.append(plugin)
        scheduler.join(WORKER)
        scheduler.remove(WORKER)
        message = nanny_says(noticed_at=(await plugin.deaths())["now"], exit={"status": 3})
        asyncio.get_running_loop().call_later(0.05, scheduler.log_event, DEATH_TOPIC, message)
        return await plugin.deaths(wait_s=2.0)

    assert asyncio.run(scene())["deaths"][0]["report"]["exit"]["status"] == 3


def test_a_worker_that_was_paused_is_known_to_have_been(plugin):
    """Changes of status and the reason that a worker gave outlive it."""
    scheduler = started(plugin)
    scheduler.join(WORKER)
    change = {"action": "worker-status-change", "prev-status": "running", "status": "paused"}
    scheduler.log_event(WORKER, change)
    scheduler.log_event(WORKER, {"action": "closing-worker", "reason": "worker-lifetime-reached"})
    scheduler.remove(WORKER)
    record = answer_of(plugin)["deaths"][0]["record"]
    assert [(each["before"], each["after"]) for each in record["status_changes"]] == [("running", "paused")]
    assert record["close_reason"] == "worker-lifetime-reached"


def test_an_answer_is_no_longer_than_asked_for(plugin):
    """Boxes are left out before deaths are, and the number of those left out is said."""
    scheduler = started(plugin)
    for number in range(30):
        scheduler.join(f"tcp://10.0.0.4:{number + 1}")
        scheduler.log_event(
            DEATH_TOPIC,
            nanny_says(f"tcp://10.0.0.4:{number + 1}", noticed_at=1e10, box={"last_output": "x" * 10_000}),
        )
        scheduler.remove(f"tcp://10.0.0.4:{number + 1}")
    reply = answer_of(plugin, most_bytes=60_000)
    assert len(json.dumps(reply)) < 70_000
    assert reply["omitted_count"] + len(reply["deaths"]) == 60  # at another time: each is a death of its own
    assert any("box" in death.get("report", {}) for death in reply["deaths"])


def test_asking_for_a_worker_tells_of_it_first(plugin):
    """A death in question is told, however many died since."""
    scheduler = started(plugin)
    for number in range(20):
        scheduler.join(f"tcp://10.0.0.4:{number + 1}")
        scheduler.remove(f"tcp://10.0.0.4:{number + 1}")
    reply = answer_of(plugin, about=["tcp://10.0.0.4:1"], most=1)
    assert [death["record"]["worker_address"] for death in reply["deaths"]] == ["tcp://10.0.0.4:1"]


def test_all_deaths_of_a_task_are_told(plugin):
    """Whoever had the task in question counts, however expected workers are left out."""
    scheduler = started(plugin)
    for number, keys in enumerate((["load"], [], ["load"])):
        scheduler.join(f"tcp://10.0.0.{number}:1")
        scheduler.remove(f"tcp://10.0.0.{number}:1", keys, expected=number == 1)
    reply = answer_of(plugin, tasks=["load"])
    addresses = [death["record"]["worker_address"] for death in reply["deaths"]]
    assert addresses == ["tcp://10.0.0.0:1", "tcp://10.0.0.2:1"]


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "nanny-report"},
        {"kind": ["nanny-report"]},
        {"kind": "nanny-report", "worker_address": 7, "pid": "x", "noticed_at": "now", "box": []},
        {"kind": "nanny-report", "worker_address": WORKER, "running_tasks": [None, "x", {"key": 3}]},
        {"kind": "nanny-report", "worker_address": WORKER, "box": {"last_output": "x" * 10**6}},
        {"kind": "nanny-report", "worker_address": "x" * 10**6},
        {"kind": "removal", "worker_address": WORKER},
    ],
)
def test_a_strange_message_breaks_nothing(plugin, message):
    """Anybody may log events under the recorder's topic; the scheduler runs on, and answers stay small."""
    scheduler = started(plugin)
    scheduler.log_event(DEATH_TOPIC, message)
    scheduler.join(WORKER)
    scheduler.remove(WORKER, ["load"])
    reply = answer_of(plugin, tasks=["load"])
    assert any("record" in death for death in reply["deaths"])
    assert len(json.dumps(reply)) < 200_000


def test_a_failure_is_noted_once(plugin, caplog):
    """A scheduler that lacks what is looked at runs on, without a line for each event."""
    scheduler = started(plugin)
    with caplog.at_level(logging.WARNING, "distributed.scheduler.recorder"):
        for number in range(5):
            scheduler.join(f"tcp://10.0.0.4:{number + 1}")
            del scheduler.workers[f"tcp://10.0.0.4:{number + 1}"].metrics
            scheduler.remove(f"tcp://10.0.0.4:{number + 1}")
    assert len([each for each in caplog.records if "an event of the topic" in each.message]) == 1
    assert "events" in answer_of(plugin)["missing"]


def test_nothing_is_left_behind_when_it_is_closed(plugin):
    """The handler is gone, and the topic says that nobody records any more."""
    scheduler = started(plugin)
    assert HANDLER in scheduler.handlers
    asyncio.run(plugin.close())
    assert scheduler.handlers == {}
    assert scheduler.events[-1][1]["is_recording"] is False


def test_it_does_nothing_per_task():
    """What the scheduler calls for each transition of a task costs no Python frame, and takes any arguments."""
    plugin = pickle.loads(pickle.dumps(RecorderScheduler()))
    assert not hasattr(plugin.transition, "__code__")
    assert not plugin.transition("x", "waiting", "memory", stimulus_id="s", worker=WORKER, nbytes=1)


def test_the_ring_is_bounded_in_number_and_bytes():
    """Old boxes go first, then old deaths; the newest stays."""
    ring = DeathRing(most=100, most_bytes=100_000)
    for number in range(300):
        ring.add(report(f"tcp://10.0.0.4:{number}", noticed_at=0.0, box={"last_output": "x" * 5000}))
    assert len(list(ring)) == 100
    assert ring.dropped_count == 200
    assert ring.size_bytes <= 100_000
    assert ring.size_bytes == sum(json_size(to_plain(death)) for death in ring)
    newest = list(ring)[-1]
    assert newest.identity.worker == "tcp://10.0.0.4:299"
    assert newest.report.box is not None
    assert next(iter(ring)).report.box is None


def test_a_box_that_is_found_later_belongs_to_its_death():
    """An orphan told after an hour joins the record of its process, and says nothing of another process there."""
    ring = DeathRing()
    ring.add(RemovalRecord(worker_address=WORKER, pid=7, noticed_at=0.0))
    ring.add(RemovalRecord(worker_address=WORKER, pid=8, noticed_at=1800.0))
    ring.add(DeathReport(kind="box-found", worker_address=WORKER, pid=7, last_written_at=3600.0))
    assert [death.report is not None for death in ring] == [True, False]


def test_a_nanny_that_still_has_the_last_address_tells_of_the_right_process():
    """A worker that dies right after its start is known to its nanny by the process id alone."""
    ring = DeathRing()
    for pid, address in ((7, WORKER), (8, OTHER)):
        ring.add(RemovalRecord(worker_address=address, pid=pid, nanny_address=NANNY, noticed_at=0.0))
    ring.add(report(WORKER, nanny_address=NANNY, pid=7, noticed_at=0.0))
    ring.add(report(WORKER, nanny_address=NANNY, pid=8, noticed_at=0.5))
    assert [death.report.pid for death in ring] == [7, 8]


def test_a_nanny_knows_better_than_who_finds_the_box():
    """Told twice is once, and the exit status stays."""
    ring = DeathRing()
    found = DeathReport(kind="box-found", worker_address=WORKER, pid=7, last_written_at=0.0)
    assert ring.add(found)
    assert ring.add(report(noticed_at=0.0, exit={"status": 3}))
    assert not ring.add(found)
    (death,) = ring
    assert death.report.exit.status == 3


def test_records_are_appended_as_lines(tmp_path):
    """What was handed over is in the file once it is closed, readable by its owner alone."""
    path = tmp_path / "below" / "deaths.jsonl"
    appender = Journal(str(path), no_failure)
    for number in range(10):
        appender.put({"number": number})
    appender.close()
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == list(range(10))
    assert path.stat().st_mode & 0o077 == 0


def test_a_long_file_is_put_aside(tmp_path, monkeypatch):
    """A file and the one before it are all that there ever is."""
    monkeypatch.setattr(journal, "MAX_FILE_BYTES", 100)
    path = tmp_path / "deaths.jsonl"
    for number in range(30):
        append_to_file(path, b"%02d\n" % number * 10)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["deaths.jsonl", "deaths.jsonl.1"]
    assert path.read_bytes().endswith(b"29\n")
    assert all(each.stat().st_size <= 100 for each in tmp_path.iterdir())


def test_a_line_that_was_cut_off_costs_no_other_record(tmp_path):
    """A scheduler that was killed while it wrote leaves half a line; the next one goes on behind it."""
    path = tmp_path / "deaths.jsonl"
    path.write_bytes(b'{"schema": 1, "ki')
    append_to_file(path, b'{"number": 1}\n')
    append_to_file(path, b'{"number": 2}\n')
    assert path.read_bytes().split(b"\n")[1:] == [b'{"number": 1}', b'{"number": 2}', b""]


def test_records_go_to_any_store_that_fsspec_knows():
    """Each batch is an object of its own below the URL."""
    appender = Journal("memory://deaths", no_failure)
    appender.put({"number": 1})
    appender.close()
    filesystem = fsspec.filesystem("memory")
    (name,) = filesystem.ls("/deaths", detail=False)
    assert json.loads(filesystem.cat(name)) == {"number": 1}
    filesystem.rm("/deaths", recursive=True)


def test_no_record_in_a_store_is_written_over(monkeypatch):
    """Not even by a second recorder that started in the same millisecond, or as the same pid of the same pod."""
    monkeypatch.setattr(journal.time, "time", lambda: 1_795_281_103.0)
    filesystem = fsspec.filesystem("memory")
    for number in (1, 2):
        appender = Journal("memory://twice", no_failure)
        appender.put({"number": number})
        appender.close()
    said = [json.loads(filesystem.cat(name))["number"] for name in filesystem.ls("/twice", detail=False)]
    filesystem.rm("/twice", recursive=True)
    assert sorted(said) == [1, 2]


def test_a_disk_that_cannot_be_written_is_noted_and_no_more(tmp_path, monkeypatch):
    """Nobody waits for it, nothing is raised, and a password in a URL is not in the note."""
    monkeypatch.setattr(journal, "_RETRY_S", 0.01)
    notes = []
    (tmp_path / "file").touch()
    for target in (str(tmp_path / "file" / "deaths.jsonl"), "nonesuch://user:secret@host/x"):
        appender = Journal(target, lambda *note: notes.append(note))
        appender.put({})
        appender.close()
    assert {part for part, _ in notes} == {"journal"}
    assert "secret" not in "".join(why for _, why in notes)


# ------------------------------------------------------------------------- sizes of killed tasks


def with_sizes(plugin):
    """A scheduler where ``join`` needs three results, of which one is not computed, and others of its kind exist."""
    scheduler = started(plugin)
    loads = SimpleNamespace(suspicious=0, states={"memory": 3})
    joins = SimpleNamespace(suspicious=0, states={"memory": 2, "forgotten": 1})
    for key, size, prefix in (
        *((f"load-{n}", size, loads) for n, size in enumerate((100, 200, 300, -1))),
        *((f"join-{n}", size, joins) for n, size in enumerate((20, 30, 40, -1))),
    ):
        task = scheduler.tasks[key] = Task(key)
        task.nbytes, task.prefix, task.dependencies = size, prefix, set()
        task.run_spec = (sum, bytearray(5000))
    scheduler.tasks["join-3"].dependencies = {scheduler.tasks[f"load-{n}"] for n in (1, 2, 3)}
    scheduler.join(OTHER)
    scheduler.workers[OTHER].has_what = {scheduler.tasks[f"join-{n}"]: None for n in range(3)}
    scheduler.join(WORKER, executing=("join-3", "load-0"), nthreads=2)
    return scheduler


def test_the_sizes_around_a_killed_task_are_kept(plugin):
    """Inputs, specification, and how many of its kind have finished: what Dask forgets a second later."""
    scheduler = with_sizes(plugin)
    scheduler.remove(WORKER, ("join-3", "load-0", "wait"))
    (death,) = answer_of(plugin)["deaths"]
    record = decode_message({"kind": "removal", **death["record"]})
    join, load, *others = record.task_facts
    assert [each.key for each in others] == ["wait"]
    assert (join.ran, others[0].ran) == (True, False)
    assert (join.input_count, join.input_bytes) == (3, 500)
    assert [(each.key, each.size_bytes) for each in join.inputs] == [
        ("load-2", 300),
        ("load-1", 200),
        ("load-3", None),
    ]
    assert 5000 < join.spec_bytes < 6000
    assert (join.finished_siblings, load.input_count) == (3, 0)


def test_of_an_expected_removal_no_sizes_are_kept(plugin):
    """Nobody asks why a worker went that was asked to."""
    scheduler = with_sizes(plugin)
    scheduler.remove(WORKER, ("join-3",), expected=True)
    (death,) = answer_of(plugin, about=[WORKER])["deaths"]
    assert not death["record"].get("task_facts")


def test_sizes_are_bounded_in_number_and_time(plugin):
    """A task with a million inputs, and a thousand workers lost at once, do not hold the scheduler."""
    scheduler = with_sizes(plugin)
    inputs = {Task(f"input-{n}") for n in range(100_000)}
    scheduler.tasks["join-3"].dependencies = inputs
    began = time.thread_time()
    scheduler.remove(WORKER, ("join-3", "load-0", "wait", "load", "load-1", "load-2"))
    assert time.thread_time() - began < 0.5
    (death,) = answer_of(plugin)["deaths"]
    facts = death["record"]["task_facts"]
    assert (len(facts), len(facts[0]["inputs"]), facts[0]["input_count"]) == (6, 8, 100_000)
    plugin._facts_s = 10.0
    scheduler.join(WORKER, executing=("join-3",))
    scheduler.remove(WORKER, ("join-3",))
    latest = max(answer_of(plugin)["deaths"], key=lambda each: each["record"]["noticed_at"])
    assert not latest["record"].get("task_facts")
