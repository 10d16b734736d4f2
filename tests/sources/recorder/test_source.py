"""What the recorder's source promises, with answers as a scheduler gives them; tests/lab asks real ones."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from attrs import evolve

from support.death_records import NANNY, NOW, nanny_report, scheduler_record, worker_address
from workerdiag.correlation.assemble import assemble
from workerdiag.model.evidence import (
    Event,
    ExceptionFacts,
    Gap,
    LogChunk,
    MemoryReading,
    ProcessExit,
    TasksAtLoss,
)
from workerdiag.model.identity import Identity
from workerdiag.model.rules import Rulebook
from workerdiag.model.timeline import ProcessHistory
from workerdiag.pipeline import diagnose
from workerdiag.rendering.html import render_html
from workerdiag.rendering.json import from_json, to_json
from workerdiag.rendering.markdown import render_markdown
from workerdiag.rendering.text import render_text
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.blame_and_retry import blame, loss_history
from workerdiag.sources.recorder.source import RecorderSource

RUNNING = {"schema": 1, "kind": "recorder-state", "is_recording": True}
CLOSED = {"schema": 1, "kind": "recorder-state", "is_recording": False}


def _inner(message):
    """A message within an answer, which has the schema itself."""
    return {**message, "schema": None} if isinstance(message, dict) else message


class Client:
    """A client of a scheduler with these deaths; without any the recorder is not there."""

    asynchronous = False
    status = "running"

    def __init__(self, *deaths, events=((NOW, RUNNING),)):
        self.asked = []
        self._deaths, self._events = deaths, events
        self.scheduler = SimpleNamespace(events=self.events, workerdiag_deaths=self.deaths, versions=self.versions)

    async def versions(self):
        return {"host": {"python": "2.7.1.final.0"}}

    async def events(self, topic):
        self.asked.append(topic)
        return self._events

    async def deaths(self, **arguments):
        self.asked.append(arguments)
        deaths = [
            {"record": _inner(each[0]), "report": _inner(each[1]), "acts": list(map(_inner, each[2:]))}
            for each in self._deaths
        ]
        return {"schema": 1, "now": NOW + 100, "deaths": tuple(deaths), "omitted_count": 0, "missing": {}}

    def sync(self, function, *arguments, callback_timeout):
        return asyncio.run(asyncio.wait_for(function(*arguments), callback_timeout))


def collect(client, *about, tasks=()):
    """The evidence of one round."""
    return list(RecorderSource(client, about=about, tasks=tasks).collect(budget_s=30.0))


def of_kind(kind, evidence):
    """The evidence of one kind."""
    return [each for each in evidence if isinstance(each, kind)]


def fields(evidence, topic="recorder"):
    """What the first event of a topic says."""
    return next(each.fields for each in of_kind(Event, evidence) if each.topic == topic)


def test_without_a_recorder_there_is_one_question_and_no_word():
    """Who has not installed it is not told that it is not there."""
    client = Client(events=())
    assert collect(client) == []
    assert client.asked == ["workerdiag-death"]


def test_a_recorder_that_was_taken_away_is_not_asked():
    """Asking for a handler that is not there would leave a warning in the scheduler's log."""
    client = Client(events=((NOW, RUNNING), (NOW, CLOSED)))
    assert collect(client) == []
    assert client.asked == ["workerdiag-death"]


@pytest.mark.parametrize("status", ["closed", "connecting"])
def test_a_client_without_a_scheduler_is_not_waited_for(status):
    """Another source says so; here it costs nothing."""
    client = Client()
    client.status = status
    assert collect(client) == []
    assert client.asked == []


def test_a_scheduler_that_fails_is_a_gap():
    """What the topic tells is kept."""
    client = Client(events=((NOW, RUNNING), (NOW, nanny_report())))

    async def failing(**_):
        raise ValueError("the 'workerdiag_deaths' handler has been explicitly disallowed")

    client.scheduler.workerdiag_deaths = failing
    evidence = collect(client)
    assert [each.reason for each in of_kind(Gap, evidence)] == ["forbidden"]
    assert of_kind(ProcessExit, evidence)


def test_of_two_dumps_the_first_is_of_the_signal_that_came():
    """Faulthandler can crash while it walks the stacks of other threads; that is no segfault of the task's."""
    nested = "Fatal Python error: Aborted\n\n  File Fatal Python error: Segmentation fault\n"
    message = nanny_report()
    evidence = collect(
        Client((scheduler_record(), {**message, "box": {**message["box"], "faulthandler_dump": nested}}))
    )
    assert of_kind(LogChunk, evidence)[-1].data == b"Fatal Python error: Aborted\n\n  File "


def test_one_death_tells_its_exit_memory_words_and_tasks():
    """Each fact is there with whose it is."""
    evidence = collect(Client((scheduler_record(), nanny_report())))
    (exit_,) = of_kind(ProcessExit, evidence)
    assert (exit_.signal, exit_.status, exit_.reporter) == (11, None, "flight recorder")
    (reading,) = of_kind(MemoryReading, evidence)
    assert (reading.rss_bytes, reading.limit_bytes) == (90, 100)
    lines, fault = of_kind(LogChunk, evidence)
    assert b"last words" in lines.data
    assert b"Segmentation fault" in fault.data
    (tasks,) = of_kind(TasksAtLoss, evidence)
    assert (tasks.tasks, tasks.threads, tasks.seconds) == (("load",), ("Dask-0",), (2.0,))
    assert (tasks.exact, tasks.assigned, tasks.crashed) == (True, ("load", "wait"), (True,))
    identity = {each.identity for each in evidence}
    assert {(each.worker, each.pid, each.nanny) for each in identity} == {(worker_address(1), 1, NANNY)}


def test_without_a_box_the_last_heartbeat_counts():
    """With all threads taken, what else was assigned did not run; with a free one it may have."""
    evidence = collect(Client((scheduler_record(), None), (scheduler_record(2, nthreads=2), None)))
    full, free = of_kind(TasksAtLoss, evidence)
    assert (full.tasks, full.exact, full.maybe_more, full.seconds) == (("load",), False, False, (1.5,))
    assert (free.tasks, free.maybe_more) == (("load",), True)
    assert of_kind(ProcessExit, evidence) == []
    assert of_kind(MemoryReading, evidence)[0].rss_bytes == 60


@pytest.mark.parametrize(
    "box",
    [
        {"identity": {"missing": "fatal-signals running-tasks"}},
        {"identity": {"missing": "tasks-without-slot"}},
        {"unreadable_parts": ({"region": "running", "unreadable_count": 1, "cell_count": 2},)},
    ],
)
def test_a_box_that_lacks_tasks_is_not_taken_for_exact(box):
    """That nothing is in it then says nothing."""
    (tasks,) = of_kind(TasksAtLoss, collect(Client((scheduler_record(), nanny_report(running_tasks=(), box=box)))))
    assert (tasks.exact, tasks.tasks) == (False, ("load",))


def test_a_long_key_is_completed():
    """A box has 200 bytes of a key; the scheduler knows the rest."""
    key = "load-" + "x" * 300
    running = ({"key": key[:200], "is_clipped": True, "started_at": NOW},)
    evidence = collect(Client((scheduler_record(assigned_keys=(key,)), nanny_report(running_tasks=running))))
    assert of_kind(TasksAtLoss, evidence)[0].tasks == (key,)


def test_an_order_to_stop_is_no_crash():
    """A nanny that was told to close ended its worker; for memory, or silence, it was no order."""
    ordered = collect(
        Client((scheduler_record(), nanny_report(stop_requested="nanny-closing", nanny_status="closing")))
    )
    assert "asked-to-stop" in [each.fields.get("action") for each in of_kind(Event, ordered)]
    assert diagnose(ordered, load_rulebook()).deaths[0].stop_requested
    for death in (
        (scheduler_record(), nanny_report(stop_requested="nanny-kill", is_memory_terminated=True)),
        (scheduler_record(stimulus_id="check-worker-ttl-1"), nanny_report(stop_requested="nanny-kill")),
    ):
        assert "asked-to-stop" not in [each.fields.get("action") for each in of_kind(Event, collect(Client(death)))]


def test_the_nannys_own_kill_for_memory_is_recognised():
    """Without a line of the nanny's log, and with the numbers of this very death."""
    exit_ = {"signal": 15}
    death = nanny_report(exit=exit_, is_memory_terminated=True, terminate_fraction=0.95)
    findings = diagnose(collect(Client((scheduler_record(), death))), load_rulebook())
    assert findings.top.id == "nanny.memory-terminate"
    assert (findings.deaths[0].rss_bytes, findings.deaths[0].limit_bytes) == (90, 100)


def test_the_line_at_which_the_nanny_ended_it_is_told_in_every_form():
    """Only a kill for memory: where a task was when somebody asked its worker to stop explains nothing."""
    line = {"file": "/home/me/my_code.py", "line": 31, "function": "join_all"}
    running = ({"key": "load", "thread_name": "Dask-0", "started_at": NOW, "line": line},)
    exit_ = {"signal": 15}
    death = nanny_report(exit=exit_, is_memory_terminated=True, terminate_fraction=0.95, running_tasks=running)
    findings = diagnose(collect(Client((scheduler_record(), death))), load_rulebook())
    (told,) = findings.deaths[0].lines
    assert (str(told), told.task) == ("/home/me/my_code.py:31, in join_all", "load")
    for text in (render_text(findings), render_markdown(findings), render_html(findings, page=True)):
        assert "At line" in text
        assert "code.py:31, in join" in text.replace("\\", "")
    assert from_json(to_json(findings))["deaths"] == findings.deaths
    asked = nanny_report(exit=exit_, stop_requested="nanny-kill", running_tasks=running)
    assert diagnose(collect(Client((scheduler_record(), asked))), load_rulebook()).deaths[0].lines == ()


@pytest.mark.parametrize("box", [{}, {"box": None}])
def test_the_nannys_last_look_is_the_end_of_the_curve(box):
    """What the process held and had asked for when it was ended is told, with a black box and without."""
    look = {"at": NOW + 0.5, "rss_bytes": 97, "peak_rss_bytes": 98, "asked_bytes": 160, "swapped_bytes": 0}
    death = nanny_report(exit={"signal": 15}, is_memory_terminated=True, memory_at_kill=look, **box)
    evidence = collect(Client((scheduler_record(), death)))
    (history,) = of_kind(ProcessHistory, evidence)
    assert (history.at_kill.rss_bytes, history.at_kill.asked_bytes) == (97, 160)
    assert (history.samples[-1].process_bytes, history.samples[-1].asked_bytes) == (97, 160)
    (reading,) = of_kind(MemoryReading, evidence)
    assert (reading.rss_bytes, reading.when) == (97, NOW + 0.5)
    assert diagnose(evidence, load_rulebook()).timeline.histories[0].at_kill == history.at_kill


def test_a_process_that_only_its_nanny_knew_and_stopped_is_no_death():
    """Closing a cluster leaves no dead behind."""
    evidence = collect(Client((None, nanny_report(stop_requested="nanny-kill", exit={"status": 0}))))
    assert of_kind(ProcessExit, evidence) == []


@pytest.mark.parametrize(
    ("group", "exit_signal", "expected"),
    [
        ({"oom_kills_before": 0, "oom_kills_after": 1, "limit_bytes": 5}, 9, {"oom_kill": 1}),
        ({"oom_kills_before": 0, "oom_kills_after": 1, "limit_bytes": None}, 9, {"oom_kill_in_group": 1}),
        ({"oom_kills_before": 4, "oom_kills_after": 4, "limit_bytes": 5}, 9, {"oom_kill": 0}),
        ({"oom_kills_before": 0, "oom_kills_after": 1, "limit_bytes": 5}, 11, None),
        ({"oom_kills_before": None, "oom_kills_after": 3, "limit_bytes": 5}, 9, None),
        ({"oom_kills_before": 3, "oom_kills_after": 0, "limit_bytes": 5}, 9, None),
    ],
)
def test_a_kernels_kill_counts_for_the_process_that_it_can_be_of(group, exit_signal, expected):
    """Only a kill in a limited group, of a process that died of SIGKILL, is taken for this one's."""
    exit_ = {"signal": exit_signal}
    evidence = collect(Client((scheduler_record(), nanny_report(cgroup=group, exit=exit_))))
    said = [each.fields for each in of_kind(Event, evidence) if each.topic == "cgroup"]
    assert [{name: each[name] for name in each if name.startswith("oom")} for each in said] == (
        [expected] if expected else []
    )


def test_workers_that_went_together_name_each_other():
    """Two that are lost on one host within seconds are told of as such."""
    evidence = collect(
        Client((scheduler_record(1), None), (scheduler_record(2), None), (scheduler_record(60), None))
    )
    said = [each.fields for each in of_kind(Event, evidence) if each.topic == "recorder"]
    assert [each["lost_together_count"] for each in said] == [1, 1, 0]
    assert said[0]["lost_together"] == worker_address(2)


def test_only_what_belongs_to_the_trouble_is_told():
    """Old deaths count if they had the task in question; expected ones if they were asked for."""
    deaths = (
        (scheduler_record(-5000, assigned_keys=("load",), executing_at_heartbeat=()), None),
        (scheduler_record(-4000, assigned_keys=("other",), executing_at_heartbeat=()), None),
        (scheduler_record(2, is_expected=True), None),
        (scheduler_record(3), None),
    )
    evidence = collect(Client(*deaths), Identity(worker=worker_address(3)), tasks=["load"])
    assert [each.identity.worker for each in of_kind(TasksAtLoss, evidence)] == [
        worker_address(-5000),
        worker_address(3),
    ]
    evidence = collect(Client(*deaths), Identity(worker=worker_address(2)))
    assert [each.identity.worker for each in of_kind(TasksAtLoss, evidence)] == [
        worker_address(2),
        worker_address(3),
    ]


def test_nannies_alone_tell_through_the_topic():
    """Without the plugin on the scheduler, what nannies told is found among its events."""
    brief = scheduler_record()
    evidence = collect(
        Client(events=((NOW, nanny_report()), (NOW + 1, nanny_report(2)), (NOW, brief), (NOW, CLOSED)))
    )
    assert [each.identity.pid for each in of_kind(ProcessExit, evidence)] == [1, 2]
    assert len(of_kind(TasksAtLoss, evidence)) == 2


@pytest.mark.parametrize(
    "death",
    [
        (None, None),
        ({}, {}),
        ("x", 3),
        (
            {"worker_address": 3, "noticed_at": "x", "executing_at_heartbeat": 5, "status_changes": 7},
            {"kind": "box-found", "exit": 3, "box": "x"},
        ),
        (
            scheduler_record(assigned_keys=7, given_up=(3,), last_heartbeat=[], nthreads="x"),
            nanny_report(running_tasks=({}, 3), cgroup=1),
        ),
        (None, {"kind": "nanny-report", "box": {"samples": (3,), "unreadable_parts": 5}}),
        (None, nanny_report(exit={"signal": -3, "status": 10**30})),
    ],
)
def test_a_strange_answer_breaks_nothing(death):
    """What came over the network may be anything; what is understood of it is told, and judged."""
    diagnose(collect(Client(death)), load_rulebook())


def test_every_death_has_its_running_tasks():
    """Not only the last one, of which the exception knows."""
    evidence = collect(Client((scheduler_record(1), nanny_report(1)), (scheduler_record(2), None)))
    deaths = diagnose(evidence, load_rulebook()).deaths
    assert [(death.signal, death.executing) for death in deaths] == [(11, ("load",)), (None, ("load",))]


# ------------------------------------------------------------------------------------------ blame


def loss(number, *tasks, assigned=("load", "wait"), **more):
    """A worker that was lost with these tasks running."""
    return TasksAtLoss(
        identity=Identity(worker=worker_address(number)),
        tasks=tasks,
        exact=True,
        assigned=assigned,
        allowed_failures=3,
        when=NOW + number,
        **more,
    )


def judged(*losses, task="wait", last=4):
    """Who is blamed for a crash with these losses."""
    killed = ExceptionFacts(
        type="distributed.scheduler.KilledWorker",
        text="",
        task=task,
        allowed_failures=3,
        identity=Identity(worker=worker_address(last)),
    )
    book = load_rulebook()
    crash = next(cause for cause in book.causes if cause.blame == "task")
    ranked = [
        SimpleNamespace(id=crash.id, probability=0.9),
    ]
    return blame(ranked, book, assemble([], [*losses, killed]))


def test_a_task_that_only_waited_is_not_to_blame():
    """Running on one of four is not fair; the task that ran on the others is said."""
    verdict = judged(loss(1, "wait"), loss(2, "load"), loss(3, "load"), loss(4, "load"))
    assert (verdict.verdict, verdict.fairly_blamed) == ("other-task", False)
    assert verdict.reasons[0] == "task wait was running on 1 of the 4 workers lost; on 3 it only waited"
    assert "task load was running on 3 of the 3 workers it waited on" in verdict.reasons


def test_a_task_that_ran_everywhere_is_to_blame():
    """Dask would have given up on it, had it counted running tasks only."""
    verdict = judged(*(loss(number, "wait") for number in (1, 2, 3, 4)))
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", True)


def test_one_that_ran_mostly_is_the_culprit_though_counted_too_soon():
    """The count was not fair; who did it is another question."""
    verdict = judged(loss(1, "load"), *(loss(number, "wait") for number in (2, 3, 4)))
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", False)


def test_the_thread_that_crashed_decides_between_two_that_ran():
    """Running beside the one that crashed is no guilt."""
    both = [loss(number, "wait", "load", crashed=(False, True)) for number in (1, 2, 3, 4)]
    verdict = judged(*both)
    assert (verdict.verdict, verdict.fairly_blamed) == ("other-task", True)
    assert any("task load" in reason and "the thread that crashed" in reason for reason in verdict.reasons)
    assert not any("task wait had run" in reason for reason in verdict.reasons)


def test_workers_of_one_host_that_went_at_once_are_said():
    """As a host that is lost takes all of its workers; one task that ends them one by one is another story."""
    said = "2 workers of 10.0.0.4 were lost within 5 s of each other"

    def on_host(number, *tasks):
        identity = Identity(worker=worker_address(number), nanny=f"tcp://10.0.0.4:{number}", host="10.0.0.4")
        return evolve(loss(number, *tasks), identity=identity)

    assert said in judged(on_host(1, "load"), on_host(2, "other")).reasons
    assert said not in judged(on_host(1, "load"), on_host(2, "load")).reasons
    assert said not in judged(on_host(1, "load"), on_host(20, "other")).reasons


def test_what_is_not_known_is_not_said():
    """A loss without a record, or with a free thread, leaves it open; one certain wait settles it."""
    assert judged(*(loss(number, "wait") for number in (2, 3, 4))).fairly_blamed is None
    unclear = loss(1, maybe_more=True)
    assert judged(unclear, *(loss(number, "wait") for number in (2, 3, 4))).fairly_blamed is None
    assert judged(loss(4, "load")).fairly_blamed is False


def test_a_process_that_died_with_nothing_running_accuses_nobody():
    """It may have died of reading the task's arguments."""
    verdict = judged(*(loss(number) for number in (1, 2, 3, 4)))
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", None)


def test_a_task_that_waited_behind_its_own_function_is_blamed_fairly():
    """Two tasks of one function end workers in turn: the mistake is the function's, whichever Dask names."""
    found = loss_history(
        "fit-1", Identity(worker=worker_address(2)), 1, [loss(1, "fit-2", assigned=("fit-1",)), loss(2, "fit-1")]
    )
    assert (found.fairly_blamed, found.is_bystander) == (True, False)


def test_later_and_expected_losses_do_not_count():
    """What came after Dask gave up is of another task of that key; what was announced is not counted."""
    identity = Identity(worker=worker_address(4))
    losses = (
        loss(1, "wait"),
        loss(2, "wait"),
        loss(3, "wait", counted=False),
        loss(4, "wait", gave_up=("wait",)),
        loss(5, "load"),
    )
    found = loss_history("wait", identity, 2, losses)
    assert [each.identity.worker for each in found.losses] == [
        worker_address(1),
        worker_address(2),
        worker_address(4),
    ]
    assert found.fairly_blamed is True


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("FLEXlm: licence server not reachable\n", "FLEXlm: licence server not reachable"),
        ("2026-05-04 11:22:33,100 - distributed.core - INFO - Starting established connection\n", ""),
    ],
)
def test_the_last_line_of_a_dead_worker_is_shown(output, shown):
    """What a program says before it ends itself is its reason; what Dask logs is not."""
    report = nanny_report(exit={"status": 7}, box={"last_output": output})
    found = diagnose(collect(Client((scheduler_record(), report))), load_rulebook())
    assert [each.last_output for each in found.deaths] == [shown]


def test_a_rulebook_without_causes_blames_nobody():
    """Facts alone are no verdict."""
    book = Rulebook(schema=1, release="0", causes=(), landmarks=())
    assert blame([], book, assemble([], [loss(1, "wait")])).verdict == "unknown"


def test_the_whole_box_goes_along_for_a_bundle():
    """Rules of today look at parts of it; those to come may look at others."""
    [box] = [
        each
        for each in of_kind(Event, collect(Client((scheduler_record(), nanny_report()))))
        if each.topic == "black-box"
    ]

    assert json.loads(box.fields["content"])["last_output"] == "distributed.worker - INFO - last words\n"
    assert box.identity.worker == worker_address(1)


def test_what_is_not_understood_of_an_answer_is_a_gap():
    """The rest of the death counts."""
    evidence = collect(Client((scheduler_record(nthreads="many", new_field=1), nanny_report())))
    (gap,) = of_kind(Gap, evidence)
    assert gap.reason == "malformed"
    assert "deaths[0].record.nthreads, deaths[0].record.new_field" in gap.detail
    assert of_kind(ProcessExit, evidence)


@pytest.mark.parametrize("has_ring", [True, False])
def test_what_was_done_about_a_death_is_in_the_report(has_ring):
    """With the death where the recorder keeps it, else from the topic."""
    worker = worker_address(1)
    act = {"schema": 1, "kind": "rescue", "act": "lower-threads", "text": "Fewer tasks", "worker_address": worker}
    record = scheduler_record(1)
    client = (
        Client((record, None, act | {"is_dry_run": True}))
        if has_ring
        else Client(events=((NOW, CLOSED), (NOW, act)))
    )
    found = list(RecorderSource(client).collect(budget_s=5))
    events = [each for each in found if isinstance(each, Event) and each.topic == "rescue"]
    said = "Dry run: Fewer tasks" if has_ring else "Fewer tasks"
    assert [(each.fields["text"], each.identity.worker) for each in events] == [(said, worker)]
    findings = diagnose(found, load_rulebook(), version="0")
    assert findings.acts == (said,)
    assert f"Done      {said}." in render_text(findings)


def test_fewer_tasks_at_once_that_sufficed_are_the_reason_and_the_first_change():
    """What was tried on the cluster is worth more than any sum."""
    worker = worker_address(1)
    acts = [
        {"act": "lower-threads", "threads": 2, "text": "Fewer"},
        {"act": "restore", "has_sufficed": True, "text": "As before"},
    ]
    nanny = Event(topic="worker-restart-memory", fields={"worker": worker}, identity=Identity(worker=worker))
    plain = [{"schema": 1, "kind": "rescue", "worker_address": worker, **each} for each in acts]
    found = list(RecorderSource(Client((scheduler_record(1), None, *plain))).collect(budget_s=5))
    findings = diagnose([*found, nanny], load_rulebook(), version="0")
    assert findings.memory.reason == "too-many-at-once"
    assert (findings.cures[0].kind, findings.cures[0].value) == ("threads", 2)


def test_a_bigger_worker_that_sufficed_is_the_reason_and_the_first_change():
    """The limit is not guessed: the task has finished with it."""
    worker = worker_address(1)
    acts = [
        {"act": "bigger-worker", "task_key": "fit", "memory_bytes": 4 * 2**30, "text": "Bigger"},
        {"act": "restore", "sufficient_memory_bytes": 4 * 2**30, "text": "As before"},
    ]
    nanny = Event(topic="worker-restart-memory", fields={"worker": worker}, identity=Identity(worker=worker))
    plain = [{"schema": 1, "kind": "rescue", "worker_address": worker, **each} for each in acts]
    found = list(RecorderSource(Client((scheduler_record(1), None, *plain))).collect(budget_s=5))
    findings = diagnose([*found, nanny], load_rulebook(), version="0")
    assert findings.memory.reason == "one-task-too-large"
    assert (findings.cures[0].kind, findings.cures[0].value) == ("worker-memory", 4 * 2**30)
