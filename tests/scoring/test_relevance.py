"""Which signs count in which death: orders and symptoms that came later, and what is of another process, do not."""

from __future__ import annotations

import pytest

import workerdiag
from support.diagnoses import FixedSource
from support.simulated_cluster import REQUESTED, WAYS, SimulatedCluster
from workerdiag import Diagnosis, LogText, explain
from workerdiag.model.evidence import Event, ExceptionFacts
from workerdiag.model.identity import Identity

WORKER, PEER = "tcp://10.0.0.4:40001", "tcp://10.0.0.5:40002"
CRASHES = sorted(WAYS.keys() - REQUESTED)


def at(second: float, logger: str, text: str, level: str = "INFO") -> str:
    whole, part = divmod(second, 1)
    minutes, whole = divmod(int(whole), 60)
    when = f"2026-05-04 11:{22 + minutes:02d}:{whole:02d},{round(part * 1000):03d}"
    return f"{when} - distributed.{logger} - {level} - {text}"


def explained(*logs: tuple[str | None, list[str]]) -> Diagnosis:
    return explain(logs=[LogText("\n".join(lines) + "\n", stream) for stream, lines in logs], timeout="60s")


def chances(diagnosis: Diagnosis) -> dict[str, float]:
    return {cause.id: cause.probability for cause in diagnosis.causes}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("way", CRASHES)
def test_a_cluster_that_closes_after_a_death_is_not_its_cause(way, shared):
    """The program fails when its worker dies, and takes the cluster with it within a second."""
    cluster = SimulatedCluster()
    cluster.end(cluster.nannies[0], 5.0, way)
    cluster.close(5.95)
    assert explain(logs=cluster.logs(shared=shared), timeout="60s").top.id == WAYS[way][0]


def test_a_worker_that_does_not_start_is_not_explained_by_the_close_that_follows():
    """``with LocalCluster(...)`` closes what is there as soon as one worker fails."""
    failed = [
        at(1, "nanny", "        Start Nanny at: 'tcp://10.0.0.4:4001'"),
        at(2, "nanny", "Failed to start worker", "ERROR"),
        "Traceback (most recent call last):",
        "PermissionError: [Errno 13] Permission denied: '/scratch/worker-1'",
        at(2.1, "nanny", "Worker process 7001 exited with status 1"),
        at(2.2, "nanny", "Closing Nanny at 'tcp://10.0.0.4:4001'. Reason: nanny-start-failed"),
        at(2.3, "nanny", "Closing Nanny at 'tcp://10.0.0.5:4002'. Reason: nanny-close"),
        at(2.4, "scheduler", "Closing scheduler. Reason: unknown"),
        at(2.4, "scheduler", "Scheduler closing all comms"),
    ]
    assert chances(explained((None, failed))).get("exit.scheduler-closed", 0.0) < 0.1


def test_a_worker_that_took_leave_before_the_scheduler_closes_is_no_death():
    """A cluster closes its workers first; one that was told by a signal leaves no other log with the scheduler."""
    lines = [
        at(1, "scheduler", f"Register worker addr: {WORKER} name: 0"),
        at(9, "core", "Received 'close-stream' from tcp://10.0.0.4:51000; closing."),
        at(
            9.01,
            "scheduler",
            f"Remove worker addr: {WORKER} name: 0 (stimulus_id='handle-worker-cleanup-1.5')",
        ),
        at(9.3, "scheduler", "Closing scheduler. Reason: unknown"),
        at(9.3, "scheduler", "Scheduler closing all comms"),
    ]
    assert explained(("scheduler", lines)).outcome == "no-death"


SILENCE = (
    "Worker stream died during communication: {}\nOSError: Timed out trying to connect to {} after 30 s",
    "failed during get data with tcp://10.0.0.9:40009 -> {}\nOSError: [Errno 113] No route to host: {}",
)


@pytest.mark.parametrize("text", SILENCE)
def test_that_a_dead_worker_is_not_reached_is_no_cause(text):
    """Peers that go on asking for its results say so for minutes."""
    killed = [
        at(1, "nanny", "        Start Nanny at: 'tcp://10.0.0.5:4001'"),
        at(1, "worker", f"      Start worker at: {PEER}"),
        at(5, "nanny", "Worker process 7001 was killed by signal 11"),
    ]
    removed = [
        at(1.1, "scheduler", f"Register worker addr: {PEER} name: 1"),
        at(5.01, "scheduler", f"Remove worker addr: {PEER} name: 1 (stimulus_id='handle-worker-cleanup-1.5')"),
    ]
    asking = [at(9 + 2 * each, "worker", text.format(PEER, PEER), "ERROR") for each in range(9)]
    found = explained(("nanny", killed), ("scheduler", removed), ("worker", asking))
    assert found.top.id == "signal.segfault"
    assert sum(chance for cause, chance in chances(found).items() if cause.startswith("network.")) < 0.01


def test_that_a_worker_was_not_reached_before_it_ended_counts():
    """Order decides: what came before an end may have been its cause."""
    asking = [at(each, "worker", SILENCE[0].format(PEER, PEER), "ERROR") for each in range(1, 5)]
    removed = [at(31, "scheduler", f"Remove worker addr: {PEER} name: 1 (stimulus_id='handle-worker-cleanup-1.5')")]
    found = explained(("worker", asking), ("scheduler", removed))
    assert any(cause.startswith("network.") for cause in chances(found))


def test_a_worker_that_came_back_under_its_address_is_none_of_the_dead():
    """Fixed ports give the same address again."""
    lines = [
        at(1, "scheduler", f"Register worker addr: {PEER} name: 1"),
        at(5, "scheduler", f"Remove worker addr: {PEER} name: 1 (stimulus_id='handle-worker-cleanup-1.5')"),
        at(7, "scheduler", f"Register worker addr: {PEER} name: 1"),
        at(
            50,
            "scheduler",
            f"broadcast to {PEER} failed: OSError: Timed out trying to connect to {PEER} after 30 s",
        ),
    ]
    assert any(cause.startswith("network.") for cause in chances(explained(("scheduler", lines))))


def test_an_against_of_another_worker_does_not_count():
    """That one worker registered says nothing of another that waits in vain."""
    waiting = [
        at(1, "worker", "Waiting to connect to:      tcp://10.0.0.2:8786"),
        at(31, "nanny", "Failed to start worker", "ERROR"),
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/site-packages/distributed/nanny.py", line 340, in start_unsafe',
        "OSError: Timed out trying to connect to tcp://10.0.0.2:8786 after 30 s",
    ]
    other = [at(2, "worker", "        Registered to:      tcp://10.0.0.2:8786")]
    alone, beside = explained(("worker", waiting)), explained(("worker", waiting), ("worker", other))
    own = explained(("worker", other + waiting))
    cause = "network.connect-timeout"
    assert chances(own)[cause] < 0.9 < chances(beside)[cause] < chances(alone)[cause]


def _heartbeats(*before: str) -> list[str]:
    start = at(1, "scheduler", "  Scheduler at:     tcp://10.0.0.2:8786")
    heard = [
        at(9 + each, "scheduler", f"Received heartbeat from unregistered worker '{WORKER}'.", "WARNING")
        for each in range(3)
    ]
    return [start, *before, *heard]


def test_a_stranger_that_had_registered_here_tells_of_no_new_scheduler():
    """Its removal crossed its heartbeat."""
    gone = [
        at(2, "scheduler", f"Register worker addr: {WORKER} name: 0"),
        at(8, "scheduler", f"Remove worker addr: {WORKER} name: 0 (stimulus_id='handle-worker-cleanup-1.5')"),
    ]
    lost = "exit.scheduler-lost"
    assert chances(explained(("scheduler", _heartbeats()))).get(lost, 0.0) > 0.5
    assert chances(explained(("scheduler", _heartbeats(*gone)))).get(lost, 0.0) < 0.1


@pytest.mark.parametrize("listed", ["()", "[]", "(4, 5)"])
def test_a_retirement_that_retired_nobody_is_no_stop(listed):
    """The scheduler's log would tell who went."""
    lines = [
        at(1, "scheduler", f"Register worker addr: {WORKER} name: 0"),
        at(2, "scheduler", f"Retire worker addresses (stimulus_id='retire-workers-1.5') {listed}"),
    ]
    assert "exit.scheduler-retired" not in chances(explained(("scheduler", lines)))


SEGFAULT = "kernel: python[7777]: segfault at 10 ip 00007f0a sp 00007ffd error 4 in libhdf5.so[7f0a+1000]"


@pytest.mark.parametrize("way", ["exit", "silent exit", "kill", "retire"])
def test_a_segfault_of_a_stranger_does_not_count(way):
    """The kernel speaks of all processes of its machine; how this one ended is known."""
    cluster = SimulatedCluster()
    cluster.end(cluster.nannies[0], 5.0, way)
    logs = [*cluster.logs(), LogText(f"2026-05-04T12:00:05 vm-3 {SEGFAULT}\n", "kernel")]
    found = explain(logs=logs, timeout="60s")
    assert "signal.segfault" not in chances(found)
    assert {death.cause for death in found.deaths} <= {WAYS[way][0], None}


def test_a_kill_by_the_kernel_is_not_of_a_worker_that_left_politely():
    """Their pids are of two namespaces, and only the time is the same."""
    cluster = SimulatedCluster()
    cluster.end(cluster.nannies[0], 5.0, "retire")
    killed = "2026-05-04T12:00:05 vm-3 kernel: Out of memory: Killed process 7777 (python) total-vm:9141244kB"
    found = explain(logs=[*cluster.logs(), LogText(killed + "\n", "kernel")], timeout="60s")
    assert [(death.stop_requested, death.signal, death.cause) for death in found.deaths] == [
        (True, None, "exit.scheduler-retired")
    ]


@pytest.mark.parametrize("shared", [False, True])
def test_every_worker_that_a_restart_kills_is_one_stop(shared):
    """Lines without a pid are paired with as many processes, in a log of one nanny and of many."""
    cluster = SimulatedCluster()
    cluster.restart(10.0)
    for logs in (cluster.logs(shared=shared), cluster.logs(shared=shared)[1:]):
        deaths = explain(logs=logs, timeout="60s").deaths
        told = [(death.stop_requested, death.signal, death.cause) for death in deaths]
        assert told == [(True, 9, "exit.client-restart")] * 3


def test_a_kill_of_which_only_the_waiting_is_told_is_one_with_the_stop():
    """A nanny's warnings are all that a quiet log keeps; it says how long it had waited."""
    scheduler = [
        at(1, "scheduler", f"Register worker addr: {WORKER} name: 0"),
        at(5, "scheduler", f"Retire worker addresses (stimulus_id='retire-workers-1.5') ('{WORKER}',)"),
        at(5.1, "scheduler", f"Remove worker addr: {WORKER} name: 0 (stimulus_id='retire-workers-1.5')"),
    ]
    nanny = [
        at(29.2, "nanny", "Worker process still alive after 24.0 seconds, killing", "WARNING"),
        at(29.3, "nanny", "Worker process 7001 was killed by signal 15", "WARNING"),
    ]
    found = explained(("scheduler", scheduler), ("nanny", nanny))
    assert [(death.identity.worker, death.stop_requested, death.signal) for death in found.deaths] == [
        (WORKER, True, 15)
    ]


def test_two_segfaults_at_once_have_a_line_of_the_kernel_each():
    """One line tells of one process."""
    cluster = SimulatedCluster()
    for number, second in enumerate((5.0, 5.4)):
        cluster.end(cluster.nannies[number], second, "segfault")
    kernel = "".join(f"2026-05-04T12:00:05 vm-3 {SEGFAULT}\n".replace("7777", pid) for pid in ("7777", "7778"))
    found = explain(logs=[*cluster.logs(), LogText(kernel, "kernel")], timeout="60s")
    assert [death.cause for death in found.deaths] == ["signal.segfault"] * 2


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "NoWorkerError: Attempted to run task 'a' but timed out after 60 s waiting without any running workers.",
            "standstill.no-workers",
        ),
        (
            "Attempted to run task 'a' but timed out after 60 s waiting for a valid worker matching all restrictions.",
            "standstill.unschedulable",
        ),
    ],
)
def test_tasks_that_fail_for_want_of_workers_tell_of_a_standstill(text, cause):
    """Since 2024.8.0 the scheduler stays; nothing was closed for idleness."""
    found = explained(("client", [text]))
    assert found.top.id == cause
    assert "exit.idle-timeout" not in chances(found)


def test_that_tasks_wait_ends_no_worker():
    """A worker is lost, and then tasks wait for one that fits them: that is no cause of its death."""
    waits = Event(topic="task-state", fields={"state": "no-worker", "restrictions": "resource gpu=1", "count": 2})
    removal = {"action": "remove-worker", "worker": WORKER, "expected": False}
    lost = Event(topic="all", fields=removal, when=1795255323.0, identity=Identity(worker=WORKER))
    found = explain(sources=[FixedSource((lost, waits))])
    assert [each.cause for each in found.deaths] == [None]
    assert found.top.id == "standstill.unschedulable"  # nobody asked about the death
    killed = ExceptionFacts(
        type="distributed.scheduler.KilledWorker", text="", task="x", identity=Identity(worker=WORKER)
    )
    about = explain(sources=[FixedSource((killed, lost, waits))])
    assert "standstill.unschedulable" not in chances(about)


def test_that_a_cluster_is_closed_afterwards_explains_no_standstill_away():
    """The program gives up on the task that no worker may run, and ends."""
    gave_up = "Task y marked as failed because it timed out waiting for its restrictions to become satisfied."
    lines = [
        at(1, "scheduler", f"Register worker addr: {WORKER} name: 0"),
        at(9, "scheduler", gave_up, "ERROR"),
        at(9.5, "worker", f"Stopping worker at {WORKER}. Reason: worker-close"),
        at(9.51, "core", "Received 'close-stream' from tcp://127.0.0.1:57114; closing."),
        at(
            9.52,
            "scheduler",
            f"Remove worker addr: {WORKER} name: 0 (stimulus_id='handle-worker-cleanup-1.5')",
        ),
        at(9.53, "scheduler", "Closing scheduler. Reason: unknown"),
        at(9.54, "scheduler", "Scheduler closing all comms"),
    ]
    assert explained((None, lines)).top.id == "standstill.unschedulable"


def test_a_worker_that_its_task_closes_is_not_surely_interrupted():
    """SIGINT to the worker alone leaves the very same lines: neither is likelier than not."""
    worker = [
        at(0, "nanny", "        Start Nanny at: 'tcp://10.0.0.4:9001'"),
        at(1, "worker", f"      Start worker at:      {WORKER}"),
        at(2, "worker", "        Registered to:      tcp://10.0.0.1:8786"),
        at(3, "worker", f"Stopping worker at {WORKER}. Reason: worker-close"),
        at(3, "nanny", "Closing Nanny gracefully at 'tcp://10.0.0.4:9001'. Reason: worker-close"),
        at(3, "core", "Connection to tcp://10.0.0.1:8786 has been closed."),
    ]
    scheduler = [
        at(2, "scheduler", f"Register worker addr: {WORKER} name: w"),
        at(3, "scheduler", f"Remove worker addr: {WORKER} name: w (stimulus_id='handle-worker-cleanup-1')"),
        at(3, "scheduler", "Task nap marked as failed because 1 workers died while trying to run it", "ERROR"),
    ]
    found = chances(explained(("worker", worker), ("scheduler", scheduler)))
    assert max(found.get("exit.keyboard-interrupt", 0), found.get("exit.closed-by-code", 0)) < 0.5


def test_a_start_that_fails_for_a_huge_array_speaks_with_no_dask():
    """Who starts allocates nothing of that size but for a message, whose length it takes from the peer."""
    failed = "Stopping worker at {}. Reason: failure-to-start-<class 'numpy._core._exceptions._ArrayMemoryError'>"
    found = chances(explained(("worker", [at(1, "worker", failed.format(WORKER))])))
    assert found["exception.bad-argument"] > 0.1
    assert "exception.memory-error" not in found


@pytest.mark.parametrize("registered", [True, False])
def test_an_unknown_signal_is_an_exit_of_its_own_where_the_worker_had_registered(registered):
    """So old nannies word status 255."""
    lines = [
        at(1, "nanny", "        Start Nanny at: 'tcp://10.0.0.4:4001'"),
        at(2, "worker", f"      Start worker at: {WORKER}"),
        *([at(2.1, "worker", "        Registered to:      tcp://10.0.0.2:8786")] * registered),
        at(9, "nanny", "Worker process 7001 was killed by unknown signal", "WARNING"),
        at(9.1, "nanny", "Restarting worker", "WARNING"),
    ]
    exited = chances(explained(("nanny", lines))).get("code.process-exit", 0.0)
    assert (exited > 0.8) is registered


def test_a_note_of_ours_in_a_log_is_no_evidence():
    """A traceback with an earlier answer of ours in it says no more than the traceback."""
    traceback = [
        "Traceback (most recent call last):",
        '  File "run.py", line 3, in <module>',
        "KeyError: 'speed'",
    ]
    note = [
        "workerdiag: Do this.",
        "More: print(workerdiag.explain(exc, client))",
        "Cause: Bus error (SIGBUS) (66%)",
    ]
    assert chances(explained(("client", [*traceback, *note]))) == chances(explained(("client", traceback)))


def test_a_hint_alone_makes_no_candidate():
    """That a worker waits at a tcp:// address, as each does at its start, suggests nothing about TLS."""
    lines = [at(1, "worker", "Waiting to connect to:      tcp://10.0.0.2:8786")]
    assert "exception.tls" not in chances(explained(("worker", lines)))


@pytest.mark.parametrize(
    ("line", "is_death"),
    [
        ("bash: line 1:   384 Killed                  gdalwarp in.tif out.tif", False),
        ("bash: line 1:     7 Killed                  dask worker tcp://scheduler:8786", True),
    ],
)
def test_a_command_of_a_task_that_was_killed_is_no_worker(line, is_death):
    """A shell words alike how a tool of the user's ended and how `dask worker` did."""
    lines = [at(1, "worker", "Registered to:      tcp://10.0.0.2:8786"), line]
    assert bool(explained(("worker", lines)).deaths) is is_death


def test_a_question_that_failed_is_no_cause_by_itself():
    """The line names neither who asked nor what: that somebody was not reached is at most a trace of a network."""
    asked = "broadcast to tcp://10.0.0.7:40001 failed: "
    for problem in (
        "OSError: Timed out trying to connect to tcp://10.0.0.7:40001 after 30 s",
        "MemoryError: ",
    ):
        diagnosis = explained(("scheduler", [at(50, "scheduler", asked + problem, "ERROR")]))
        assert diagnosis.outcome == "unknown"


@pytest.mark.parametrize(("folder", "sure"), [("/Users/ana/job", True), ("/home/ana/job", False)])
def test_signal_10_is_a_bus_error_on_macos_only(folder, sure):
    """On Linux it is SIGUSR1, which batch systems send."""
    lines = [
        at(1, "worker", f"Local Directory: {folder}/dask-scratch-space/worker-9mv8hjr5"),
        at(9, "nanny", "Worker process 4410 was killed by signal 10"),
    ]
    assert (explained(("worker", lines)).outcome == "explained") is sure


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError('Unable to allocate 12.1 GiB for an array with shape (40000, 40000)')",
        "RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')",
        'RuntimeError("can\'t start new thread")',
        "OSError(28, 'No space left on device')",
        "OSError(24, 'Too many open files')",
    ],
)
@pytest.mark.parametrize(("number", "cause"), [(9, "external.sigkill"), (11, "signal.segfault")])
def test_an_error_that_a_worker_lived_to_report_is_not_its_end_by_a_signal(error, number, cause):
    """The task failed, the worker ran on, and half an hour later something else ended it."""
    log = [
        at(1, "worker", "Compute Failed", "WARNING"),
        "Key:       load-17",
        "Function:  load",
        f'Exception: "{error}"',
        "",
        at(1800, "nanny", f"Worker process 7001 was killed by signal {number}"),
    ]
    assert explained((None, log)).top.id == cause


def test_what_a_nanny_says_of_another_process_is_absent_for_this_one():
    """Nannies of one LocalCluster share a log: that one of them ended a worker for its memory clears no other signal."""
    at = "2026-05-04 11:22:{},444 - distributed.nanny - {} - {}\n"
    over = at.format(
        30, "WARNING", "Worker tcp://127.0.0.1:4001 (pid=4545) exceeded 95% memory budget. Restarting..."
    )
    ended = at.format(31, "INFO", "Worker process 4545 was killed by signal 15")
    other = at.format(55, "INFO", "Worker process 5458 was killed by signal 15")
    alone = workerdiag.explain(logs=workerdiag.LogText(other)).deaths[0]
    deaths = workerdiag.explain(logs=workerdiag.LogText(over + ended + other)).deaths
    assert [each.cause for each in deaths] == ["nanny.memory-terminate", "exit.sigterm"]
    assert deaths[1].probability == alone.probability
