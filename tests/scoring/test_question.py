"""What was handed in decides; then what stands still now; then who died."""

from __future__ import annotations

import pytest
from attrs import evolve

from workerdiag import load_rulebook
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Event, ExceptionFacts, Gap, Inspected, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Case, Incident
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.timeline import MemorySample, ProcessHistory
from workerdiag.pipeline import diagnose
from workerdiag.rendering.outline import decision_items
from workerdiag.scoring.evaluate import EvaluatedCase
from workerdiag.scoring.probabilities import CauseScore, Distribution, SignEvidence
from workerdiag.scoring.question import question_of

BOOK = load_rulebook()
DEAD = Identity(worker="tcp://10.0.0.4:3001", pid=3001)
ALIVE = Identity(worker="tcp://10.0.0.4:3002", pid=3002)


def ended(cause):
    """A lost worker of which that cause is almost certain."""
    score = CauseScore(cause=cause, evidence=(SignEvidence(sign=cause.signs[0]),))
    chances = Distribution(chances={cause.id: 0.99}, unknown=0.01)
    return EvaluatedCase(end=ProcessEnd(identity=DEAD, lost=True), cause_scores=(score,), chances=chances)


@pytest.mark.parametrize("error", BOOK.errors, ids=lambda each: each.name)
def test_no_cause_answers_an_error_that_it_cannot_surface_as(error):
    """Over all causes: a death counts for the caught error, or it does not, and its signs neither."""
    for cause in BOOK.causes:
        dead = ended(cause)
        sign = Match(owner=cause.id, sign="any", origin="log")
        incident = Incident(cases=(Case(end=dead.end),), unassigned_signs=(sign,), marks=(), asked=error)
        found = question_of(incident, [dead], BOOK)
        answers = [each.chances.explanation for each in found.ends if each.chances.explanation]
        assert bool(answers) == bool(found.scope.unassigned_signs) == error.admits(cause), cause.id
        assert found.deaths_are_separate == (not error.ends and not error.admits(cause)), cause.id


def lost(*, unfinished=0):
    """A worker that a fault killed, and what has become of its one task."""
    removed = {"action": "remove-worker", "worker": DEAD.worker, "processing": "load-1"}
    fate = {"worker": DEAD.worker, "assigned": 1, "unfinished": unfinished}
    return (
        Event(topic="all", fields=removed, when=1e9, identity=DEAD),
        ProcessExit(reporter="nanny log", signal=11, when=1e9, identity=DEAD),
        Event(topic="lost-tasks", fields=fate, identity=DEAD),
    )


def state(**fields):
    """What the scheduler says of itself: two workers, and nothing waits."""
    known = {"workers": 2, "running_workers": 2, "waiting_tasks": 0, "lost_unasked": 1, "nannies": 2}
    return Event(topic="scheduler-state", fields=known | fields)


def awaited(*, caller="waits", **fields):
    """A task that the client waits for and that a worker runs."""
    known = {
        "key": "slow-2",
        "state": "processing",
        "worker": ALIVE.worker,
        "runs": "itself",
        "running_s": 6.0,
    }
    given = known | {"worker_answers": True, "caller": caller} | fields
    return Event(topic="awaited-task", fields=given, identity=ALIVE)


TIMEOUT = ExceptionFacts(type="TimeoutError", text="timed out after 3 s.")
PAUSED = Event(topic="worker-state", fields={"status": "paused"}, identity=ALIVE)
PINNED = Event(
    topic="task-state", fields={"state": "no-worker", "count": 1, "restrictions": "worker tcp://10.0.0.9:1"}
)


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        ((TIMEOUT, state(), awaited(caller="gave-up")), "standstill.still-running"),
        ((state(waiting_tasks=4), PAUSED), "memory.paused"),
        ((state(waiting_tasks=1), PINNED), "standstill.unschedulable"),
    ],
    ids=["a wait that ended", "a paused worker", "a task that no worker fits"],
)
def test_what_stands_still_now_answers_before_a_death_that_is_made_good(now, cause):
    """The dead worker's task was done by another: its death is told in one line."""
    found = diagnose([*lost(), *now], BOOK)
    assert (found.outcome, found.top.id, found.deaths_are_separate) == ("explained", cause, True)
    assert "Separately, a worker died" in found.summary
    assert [each.cause for each in found.deaths] == ["signal.segfault"]


def test_work_that_goes_on_is_told_before_a_death_that_is_made_good():
    """Nothing is certain of it but that no death is behind it; what to look at is what runs."""
    found = diagnose([*lost(), state(), awaited()], BOOK)
    assert (found.outcome, found.top, found.deaths_are_separate) == ("unknown", None, True)
    assert found.summary.startswith("No sign that work stands still: slow-2 runs, for 6 s so far. Separately")
    assert found.next_steps[0].command == "client.processing(); client.call_stack()"
    assert "explain(client=client)" not in found.summary  # that is what was just asked


@pytest.mark.parametrize(
    "pieces",
    [
        (*lost(unfinished=1), state(), awaited()),  # its task is still to be done
        (*lost(unfinished=None), state(), awaited()),  # it had too many to tell
        (*lost()[:2], state(), awaited()),  # it is not known
        (*lost(), state(), awaited(worker=DEAD.worker)),  # the scheduler still waits for it
        (*lost(), state()),  # nothing runs: who asks, asks about the death
        (*lost(), state(workers=0, waiting_tasks=1), awaited(state="no-worker", worker=None, runs="nothing")),
    ],
    ids=["unfinished", "too many", "unknown", "waits for the dead", "idle", "no worker is left"],
)
def test_a_death_that_is_not_made_good_answers_what_stands_still(pieces):
    """Its task, its worker, or the lack of one ties it to the present."""
    found = diagnose(pieces, BOOK)
    assert (found.top.id, found.deaths_are_separate) == ("signal.segfault", False)


def test_a_full_disk_of_a_shuffle_is_no_death_of_another_cause():
    """The error names its cause; it is a separate matter that a worker crashed before."""
    full = ExceptionFacts(type="distributed.shuffle._exceptions.P2POutOfDiskError", text="", from_task=True)
    found = diagnose([full, *lost(unfinished=1)], BOOK)
    assert (found.top.id, found.deaths_are_separate) == ("exception.disk-full", True)


def test_a_task_that_was_given_up_is_answered_by_its_deaths():
    """The exception names worker and task: what runs beside it is not in question."""
    killed = ExceptionFacts(type="distributed.scheduler.KilledWorker", text="", task="load-1", identity=DEAD)
    found = diagnose([killed, *lost(), state(waiting_tasks=2), awaited(), PAUSED], BOOK)
    assert (found.top.id, found.deaths_are_separate) == ("signal.segfault", False)


@pytest.mark.parametrize("caught", [(), (TIMEOUT,)], ids=["no exception", "a time-out"])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"answer": "refused", "address": "tcp://10.0.0.1:8786"}, "tcp://10.0.0.1:8786: connection refused"),
        ({"scheduler": "closed"}, "it ran in this process, and its status is closed"),
    ],
    ids=["refused", "closed here"],
)
def test_a_scheduler_that_is_gone_is_told_and_where_its_reason_stands(fields, said, caught):
    """What runs at this moment cannot be asked any more."""
    gap = Gap(source="scheduler", place="scheduler", reason="timed-out")
    state_of_client = Event(topic="client-state", fields={"status": "connecting"} | fields)
    found = diagnose([*caught, gap, state_of_client], BOOK)
    assert found.outcome == "unknown"
    assert found.summary.startswith("The scheduler is gone: ")
    assert said in found.summary
    assert "Closing scheduler. Reason" in found.next_steps[0].inspect


def test_a_scheduler_whose_address_answers_is_not_gone():
    """It may be busy, or another one."""
    gap = Gap(source="scheduler", place="scheduler", reason="timed-out")
    busy = Event(topic="client-state", fields={"status": "connecting", "answer": "answers"})
    assert "gone" not in diagnose([TIMEOUT, gap, busy], BOOK).summary


@pytest.mark.parametrize(("reason", "is_closed"), [("unknown", True), ("scheduler-connection-lost", False)])
def test_futures_of_a_client_that_the_program_closed_are_told_as_that(reason, is_closed):
    """A client that lost its scheduler is closed too, and its futures say so."""
    cancelled = ExceptionFacts(
        type="distributed.client.FutureCancelledError", text=f"nap cancelled for reason: {reason}."
    )
    closed = Event(topic="client-state", fields={"status": "closed"})
    found = diagnose([cancelled, closed], BOOK)
    assert ("standstill.client-closed" in [each.id for each in found.causes[:1]]) == is_closed


def test_a_death_answers_where_nothing_waits():
    """Whatever was lost is done or no longer wanted, and no work is unfinished: who died is the question."""
    restarted = LogChunk(
        origin="nanny log", data=b"distributed.nanny - WARNING - Restarting worker\n", stream="nanny", identity=DEAD
    )
    diagnosis = diagnose((*lost(), restarted, state(workers=0, running_workers=0)), BOOK)
    assert (diagnosis.causes[0].id, diagnosis.deaths_are_separate) == ("signal.segfault", False)


def test_a_stop_that_was_asked_for_answers_where_work_goes_on():
    """The one worker was retired, its task runs on the other: nothing stands still, and nobody died."""
    retired = {"action": "closing-worker", "worker": DEAD.worker, "reason": "scheduler-close-worker-1.2"}
    removed = {
        "action": "remove-worker",
        "worker": DEAD.worker,
        "expected": True,
        "stimulus_id": "retire-workers-1",
    }
    events = (
        Event(topic="all", fields={"action": "retire-workers", "workers": DEAD.worker}, when=1e9),
        Event(topic=DEAD.worker, fields=retired, when=1e9, identity=DEAD),
        Event(topic="all", fields=removed, when=1e9, identity=DEAD),
    )
    diagnosis = diagnose((*events, state(), awaited(caller="")), BOOK)
    assert [each.cause for each in diagnosis.deaths] == ["exit.scheduler-retired"]
    assert (diagnosis.outcome, diagnosis.causes[0].id) == ("explained", "exit.scheduler-retired")


def test_a_death_that_a_table_of_errors_narrows_is_drawn_once():
    """The causes of a death that can surface as the error are fewer; it stays one death."""
    caught = ExceptionFacts(type="KilledWorker", text="", task="load-1", identity=DEAD)
    history = ProcessHistory(identity=DEAD, samples=(MemorySample(at=1e9 - 1, process_bytes=2**20),), recorded=True)
    paused = evolve(PAUSED, identity=DEAD)
    diagnosis = diagnose((caught, *lost(unfinished=1), paused, history), BOOK)
    assert len(diagnosis.timeline.histories) == 1


def test_of_two_deaths_the_one_whose_work_waits_answers():
    """The work of the first was done by others; that of the second still is to be done."""
    second = Identity(worker="tcp://10.0.0.4:3003", pid=3003)
    removed = {"action": "remove-worker", "worker": second.worker, "processing": "update-0"}
    fate = {"worker": second.worker, "assigned": 1, "unfinished": 1}
    killed = (
        Event(topic="all", fields=removed, when=1e9 + 60, identity=second),
        ProcessExit(reporter="nanny log", signal=4, when=1e9 + 60, identity=second),
        Event(topic="lost-tasks", fields=fate, identity=second),
    )
    found = diagnose((*lost(), *killed, state(), awaited()), BOOK)
    assert found.top.id == "signal.illegal-instruction"
    assert {each.cause for each in found.deaths} == {"signal.segfault", "signal.illegal-instruction"}


@pytest.mark.parametrize("why", [lost(), ()], ids=["known", "unknown"])
def test_data_that_was_lost_with_a_worker_is_to_be_scattered_again(why):
    """Whatever ended the worker: the task that is submitted again lacks the same data."""
    caught = ExceptionFacts(
        type="distributed.client.FutureCancelledError", text="load-2 cancelled for reason: lost dependencies."
    )
    found = diagnose((caught, *why), BOOK)
    changes = [change.do for cause in found.causes for change in cause.mitigations]
    advised = [*changes, *(each.inspect for each in found.next_steps)]
    assert any("task load-2 needs" in each for each in advised)


@pytest.mark.parametrize(
    ("type_", "text", "advised"),
    [
        ("BrokenProcessPool", "A process in the process pool was terminated abruptly.", "dmesg"),
        ("CalledProcessError", "Command 'solve' died with <Signals.SIGKILL: 9>.", "dmesg"),
        ("AssertionError", "daemonic processes are not allowed to have children", "DAEMON=False"),
    ],
)
@pytest.mark.parametrize("before", [(), lost()], ids=["fresh", "after a death"])
def test_a_failure_that_a_log_would_explain_is_explained_of_the_exception(type_, text, advised, before):
    """What helps stands at the landmark of the same failure in a worker's log."""
    caught = ExceptionFacts(type=type_, text=text, from_task=True, maybe_dask=False)
    found = diagnose((caught, *before), BOOK)
    assert found.top is None
    assert advised in found.next_steps[0].command


def test_work_that_the_scheduler_does_not_know_is_no_all_clear():
    """No task is there and every worker is well, but the client waits for tasks whose graph has not been read."""
    looked = [Inspected(place="scheduler events"), Inspected(place="task states")]
    assert diagnose([*looked, state()], BOOK).outcome == "no-death"
    reads = diagnose([*looked, state(waiting_tasks=1, unknown_tasks=1)], BOOK)
    assert reads.outcome != "no-death"
    waits = state(waiting_tasks=1, unknown_tasks=1, graph_waits_at="npartitions (_expr.py:446)")
    found = diagnose([*looked, waits], BOOK)
    assert found.top.id == reads.causes[0].id == "standstill.unknown-tasks"
    assert found.top.probability > reads.causes[0].probability
    assert "npartitions" in found.top.mitigations[0].example


def test_workers_that_left_as_asked_after_a_death_are_why_there_are_none():
    """A worker crashed and others did its work; later all reached their lifetime, and new work waits."""
    second = Identity(worker="tcp://10.0.0.4:3003", pid=3003)
    reason = {"action": "closing-worker", "worker": second.worker, "reason": "worker-lifetime-reached"}
    removed = {"action": "remove-worker", "worker": second.worker, "expected": True}
    left = (
        Event(topic=second.worker, fields=reason, when=1e9 + 90, identity=second),
        Event(topic="all", fields=removed, when=1e9 + 90, identity=second),
    )
    waits = awaited(state="no-worker", worker=None, runs="nothing")
    found = diagnose((*lost(), *left, state(workers=0, running_workers=0, waiting_tasks=1), waits), BOOK)
    assert (found.top.id, found.deaths_are_separate) == ("exit.lifetime", True)


def test_a_job_that_waits_in_its_queue_is_why_no_worker_came():
    """Whatever a batch system says of it counts, though no scheduler of Dask's says it."""
    late = ExceptionFacts(type="WorkerStartTimeoutError", text="Only 0/1 workers arrived after 3")
    said = b"   JobState=PENDING Reason=Resources Dependency=(null)\n"
    job = LogChunk(origin="scontrol show job 17", data=said, stream="batch")
    found = diagnose((late, state(workers=0, running_workers=0, waiting_tasks=0, lost_unasked=0), job), BOOK)
    assert found.top.id == "hpc.queued"


def test_the_memory_of_an_earlier_death_is_no_number_of_another():
    """A worker was killed; what another one held, which went over its limit, says nothing of it."""
    removed = {"action": "remove-worker", "worker": ALIVE.worker, "processing": "slow-2"}
    killed = [
        Event(topic="all", fields=removed, when=1e9 + 60, identity=ALIVE),
        ProcessExit(reporter="nanny log", signal=9, when=1e9 + 60, identity=ALIVE),
        ExceptionFacts(
            type="distributed.scheduler.KilledWorker",
            text="Attempted to run task 'slow-2' on 1 different workers, but all those workers died while running it.",
            task="slow-2",
            identity=ALIVE,
        ),
    ]
    memory = {"worker": DEAD.worker, "pid": DEAD.pid, "rss": 610 * 2**20}
    over = [*lost()[::2], Event(topic="worker-restart-memory", fields=memory, when=1e9, identity=DEAD)]

    found = diagnose([*over, *killed], BOOK)

    assert found.top.id == "external.sigkill"
    assert "610 MiB" not in " ".join(each.do for each in found.top.mitigations)
    assert not [each for each in decision_items(found) if each.text.startswith("Memory at death")]
