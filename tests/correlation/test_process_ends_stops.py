"""Orders of the scheduler: they end every worker that they are for, those that come in time, and no other."""

from __future__ import annotations

import pytest
from attrs import evolve

from support.simulated_cluster import SimulatedCluster
from workerdiag import Diagnosis, LogText, explain, load_rulebook
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Event, Evidence, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.pipeline import diagnose

BOOK = load_rulebook(packs=False)
MATCHER = Matcher(BOOK)
NOON = 1777896000.0
WORKERS = ("tcp://10.0.0.4:40001", "tcp://10.0.0.5:40002")
CLOSING = ("Closing scheduler. Reason: unknown", "Scheduler closing all comms")


def at(second: float, logger: str, text: str, level: str = "INFO") -> str:
    whole, part = divmod(second, 1)
    minutes, whole = divmod(int(whole), 60)
    when = f"2026-05-04 12:{minutes:02d}:{whole:02d},{round(part * 1000):03d}"
    return f"{when} - distributed.{logger} - {level} - {text}"


def explained(*lines: str) -> Diagnosis:
    return explain(logs=[LogText("\n".join(lines) + "\n", "scheduler")], timeout="60s")


def joined(worker: str, second: float = 1.0) -> str:
    return at(second, "scheduler", f"Register worker addr: {worker} name: {worker}")


def removed(worker: str, second: float, stimulus: str = "handle-worker-cleanup-1.5") -> str:
    return at(second, "scheduler", f"Remove worker addr: {worker} name: {worker} (stimulus_id='{stimulus}')")


def goodbye(second: float) -> str:
    return at(second, "core", "Received 'close-stream' from tcp://10.0.0.9:51000; closing.")


def closing(second: float) -> list[str]:
    return [at(second, "scheduler", text) for text in CLOSING]


def event(topic: str, second: float, **fields: str | int) -> Event:
    identity = Identity(worker=topic) if "://" in topic else Identity()
    return Event(topic=topic, fields=fields, when=NOON + second, identity=identity)


def of_events(*events: Evidence) -> Findings:
    looked = [Inspected(place="scheduler events"), Inspected(place="scheduler log")]
    return diagnose([*events, *looked], BOOK, matcher=MATCHER)


def test_a_worker_that_was_lost_is_not_explained_by_the_close_that_follows():
    """Others of that log take leave, so this one died; the program that owned the cluster ended on it."""
    diagnosis = explained(joined(WORKERS[0]), removed(WORKERS[0], 9.0), goodbye(9.5), *closing(9.8))
    assert diagnosis.outcome == "unknown"
    assert "exit.scheduler-closed" not in {each.id for each in diagnosis.causes}


def test_where_no_log_tells_who_took_leave_a_close_explains_what_went_before():
    """Old releases say nothing of it."""
    diagnosis = explained(joined(WORKERS[0]), removed(WORKERS[0], 9.0), *closing(9.3))
    assert diagnosis.top.id == "exit.scheduler-closed"


@pytest.mark.parametrize(
    "told",
    ["Retiring worker {}; no unique keys need to be moved away.", "Retired worker '{}' (stimulus_id='x-1')"],
)
def test_a_retirement_is_of_the_worker_that_it_names(told):
    """Another worker that is lost in the same second was not asked to go."""
    lines = [
        *map(joined, WORKERS),
        at(9.0, "active_memory_manager", told.format(WORKERS[0])),
        removed(WORKERS[0], 9.0, "retire-workers-1777896009.0"),
        removed(WORKERS[1], 9.1),
    ]
    assert {each.identity.worker: each.stop_requested for each in explained(*lines).deaths} == {
        WORKERS[0]: True,
        WORKERS[1]: False,
    }


@pytest.mark.parametrize("stimulus", ["nightly", "client-restart-1777896009.5"])
def test_a_restart_explains_the_end_of_every_worker(stimulus):
    """Not only of the first one that follows it in the log, and whatever it calls itself."""
    lines = [*map(joined, WORKERS)]
    lines.append(at(9, "scheduler", f"Restarting workers and releasing all keys (stimulus_id='{stimulus}')"))
    for number, worker in enumerate(WORKERS):
        second = 9.1 + number / 10
        lines += [
            at(second, "nanny", f"Nanny asking worker to close. Reason: {stimulus}"),
            at(second + 0.02, "worker", f"Stopping worker at {worker}. Reason: {stimulus}"),
            goodbye(second + 0.03),
            removed(worker, second + 0.04),
        ]
    diagnosis = explain(logs=[LogText("\n".join(lines) + "\n")], timeout="60s")
    assert [each.cause for each in diagnosis.deaths] == ["exit.client-restart"] * 2


@pytest.mark.parametrize(
    ("listed", "cause"), [(WORKERS, "exit.client-restart"), (WORKERS[1:], "exit.closed-by-code")]
)
def test_the_event_of_a_restart_is_of_the_workers_that_it_lists(listed, cause):
    """The scheduler logs it when the restart is over."""
    findings = of_events(
        event(WORKERS[0], 1.0, action="add-worker"),
        event(WORKERS[1], 1.0, action="add-worker"),
        event(WORKERS[0], 9.0, action="closing-worker", reason="nightly"),
        event(WORKERS[0], 9.1, action="remove-worker", stimulus_id="handle-worker-cleanup-1.5"),
        event("all", 14.0, action="restart-workers", workers=", ".join(listed), workers_count=len(listed)),
    )
    assert findings.causes[0].id == cause


def test_an_order_explains_no_end_long_after_it():
    """It works at once or within minutes."""
    order = at(2, "scheduler", "Restarting workers and releasing all keys (stimulus_id='client-restart-1.5')")
    diagnosis = explained(joined(WORKERS[0]), order, goodbye(2.5), removed(WORKERS[0], 900.0))
    assert "exit.client-restart" not in {each.id for each in diagnosis.causes}


def test_a_retirement_that_failed_explains_no_end():
    """The scheduler says that the worker stays; what ends it later is something else."""
    lines = (
        joined(WORKERS[0]),
        at(5, "scheduler", f"Retire worker addresses (stimulus_id='retire-workers-1.5') ('{WORKERS[0]}',)"),
        at(
            6,
            "scheduler",
            f"Could not retire worker '{WORKERS[0]}': unique data could not be moved to any other worker "
            "(stimulus_id='retire-workers-1.5')",
            "WARNING",
        ),
        goodbye(20),
        removed(WORKERS[0], 20.01),
    )
    assert "exit.scheduler-retired" not in {each.id for each in explained(*lines).causes}


@pytest.mark.parametrize("reason", ["worker-close", "foo"])
def test_a_close_without_a_reason_is_less_sure_than_one_with_it(reason):
    """Signals to the process and the end of its program leave the default reason, too."""
    findings = of_events(
        event(WORKERS[0], 1.0, action="add-worker"),
        event(WORKERS[0], 9.0, action="closing-worker", reason=reason),
        event(WORKERS[0], 9.1, action="remove-worker", stimulus_id="handle-worker-cleanup-1.5"),
    )
    chances = {each.id: each.probability for each in findings.causes[:2]}
    assert (chances["exit.closed-by-code"] < 0.8) == (reason == "worker-close")


def test_that_a_client_left_before_makes_no_close_a_sure_interrupt():
    """Another program's client may go at any time; ^C and a call of ``Worker.close()`` stay as alike as before."""
    left = at(3, "scheduler", "Remove client Client-7c1c2a9e-e854-11f1-be7a-02fc00000001")
    findings = of_events(
        LogChunk(origin="scheduler", data=(left + "\n").encode()),
        event(WORKERS[0], 1.0, action="add-worker"),
        event(WORKERS[0], 9.0, action="closing-worker", reason="worker-close"),
        event(WORKERS[0], 9.1, action="remove-worker", stimulus_id="handle-worker-cleanup-1.5"),
    )
    chances = {each.id: each.probability for each in findings.causes}
    assert chances["exit.keyboard-interrupt"] < 0.8
    assert chances["exit.closed-by-code"] > 0.2


def test_a_worker_that_says_it_closes_by_itself_was_not_retired():
    """That the scheduler then does not know it, and its nanny closes with it, follows from that."""
    lines = [
        joined(WORKERS[0]),
        at(9, "worker", f"Stopping worker at {WORKERS[0]}. Reason: worker-close"),
        removed(WORKERS[0], 9.01),
        at(9.02, "nanny", "Closing Nanny at 'tcp://10.0.0.4:4001'. Reason: nanny-close"),
        at(10, "worker", "Scheduler was unaware of this worker; shutting down.", "WARNING"),
    ]
    diagnosis = explain(logs=[LogText("\n".join(lines) + "\n")], timeout="60s")
    chances = {each.id: each.probability for each in diagnosis.causes}
    assert chances.get("exit.scheduler-retired", 0) < 0.5


def test_a_reason_of_its_own_is_no_lifetime():
    """A lifetime names itself; ``close_gracefully(reason="foo")`` retires the worker with the same stimulus."""
    stimulus = "worker-close-gracefully-1777896009.5"
    findings = of_events(
        event(WORKERS[0], 1.0, action="add-worker"),
        event(WORKERS[0], 9.0, action="closing-worker", reason="foo"),
        event(WORKERS[0], 9.1, action="remove-worker", stimulus_id=stimulus, expected="True"),
    )
    assert findings.causes[0].id == "exit.closed-by-code"


def test_a_crash_while_closing_is_a_crash():
    """No nanny sends SIGSEGV; SIGKILL may only be how the asking ended, and SIGABRT how Python left."""
    lines = [
        at(1, "nanny", "        Start Nanny at: 'tcp://10.0.0.4:4001'"),
        at(9, "nanny", "Nanny asking worker to close. Reason: nanny-close"),
        at(9.1, "nanny", "Worker process 7012 was killed by signal {}"),
    ]
    crashed, killed, aborted = (
        explain(logs=[LogText("\n".join(lines).format(number) + "\n", "nanny")]) for number in (11, 9, 6)
    )
    assert crashed.top.id == "signal.segfault"
    assert "external.sigkill" not in {each.id for each in killed.causes}
    assert "signal.abort" not in {each.id for each in aborted.causes}


def test_a_worker_that_ends_with_a_failure_had_not_lost_its_scheduler():
    """``SystemExit`` in a coroutine breaks the worker's stream; the exit status tells which was first."""
    cluster = SimulatedCluster()
    nanny = cluster.nannies[0]
    nanny.log(
        4.9, "worker", f"Stopping worker at {nanny.worker}. Reason: worker-handle-scheduler-connection-broken"
    )
    cluster.end(nanny, 5.0, "exit")
    assert explain(logs=cluster.logs(), timeout="60s").top.id == "code.process-exit"


def test_a_worker_that_stands_still_ended_no_other():
    """One that answers late on a busy machine is no reason for the SIGTERM of another."""
    killed = LogChunk(
        origin="nanny.log",
        stream="nanny",
        data=at(9, "nanny", "Worker process 7012 was killed by signal 15").encode(),
        identity=Identity(worker=WORKERS[0]),
    )
    silent = event("worker-state", 12.0, status="running", silent=True, seconds_since_heartbeat=5)
    findings = of_events(killed, evolve(silent, identity=Identity(worker=WORKERS[1])))
    assert "standstill.unresponsive" not in {each.id for each in findings.causes}
