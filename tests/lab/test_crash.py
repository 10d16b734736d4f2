"""Sudden ends: signals from outside, crashes and exits from inside a task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import evolve

import workerdiag

from .processes import wait_until
from .promises import claimed_causes, named_cause

pytestmark = pytest.mark.lab
common = pytest.mark.common


@contextmanager
def crashes_all_the_time() -> Iterator[None]:
    """Another program of this machine that crashes some times in a second."""
    stop = threading.Event()

    def crash() -> None:
        while not stop.wait(0.2):
            subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"], check=False)

    thread = threading.Thread(target=crash)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("fault", "cause", "signal"),
    [
        pytest.param("segfault", "signal.segfault", 11, marks=common),
        ("abort", "signal.abort", 6),
        pytest.param("sigkill-worker", "external.sigkill", 9, marks=common),
        ("sigterm-worker", "exit.sigterm", 15),
    ],
)
def test_a_signal_is_named_with_its_victim(provoke, explain, fault, cause, signal):
    """A worker that a signal ended: the signal's cause comes first, and the right process died of it."""
    aftermath = provoke(fault)
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == cause
    (death,) = diagnosis.deaths
    assert (death.signal, death.identity.pid) == (signal, aftermath.pid)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("os-exit-0", (0, None)),  # the nanny says nothing of an exit with status 0
        ("os-exit-1", (1,)),
        pytest.param("os-exit-3", (3,), marks=common),
        ("sys-exit", (3,)),
    ],
)
def test_a_task_that_ends_the_process_is_found_out(provoke, explain, fault, status):
    """A task that ends the process is the cause and to blame, also where the nanny keeps silent."""
    aftermath = provoke(fault)
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "code.process-exit"
    (death,) = diagnosis.deaths
    assert death.status in status
    assert death.identity.pid == aftermath.pid
    assert diagnosis.blame.verdict == "task"
    assert diagnosis.blame.task == "crash"


def test_a_plugin_that_ends_each_worker_is_found_out(provoke, explain):
    """Workers that exit as a plugin starts are not called interrupted, nor left unexplained."""
    aftermath = provoke("plugin-exits")
    for logs in (aftermath.logs, ()):
        diagnosis = explain(evolve(aftermath, logs=logs))
        assert named_cause(diagnosis) in ("exception.preload-failed", "code.process-exit")
        assert {death.status for death in diagnosis.deaths} <= {1, None}


def test_two_workers_that_crash_at_once_are_two_deaths(provoke, explain):
    """Each has its own process, and the task that is asked about is not blamed for the other."""
    aftermath = provoke("two-segfaults-at-once")
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "signal.segfault"
    assert {death.identity.pid for death in diagnosis.deaths} == aftermath.facts["pids"]
    assert diagnosis.blame.task == "crash-0"
    assert explain(evolve(aftermath, exc=None)).blame.task is None


def test_a_crash_is_not_taken_for_the_orderly_stop_of_another_worker(lab):
    """Of the one, a log without its beginning has the pid alone; of the other nothing but that it stops."""
    lab.scheduler()
    crashing, leaving = lab.worker(name="crashing"), lab.worker(name="leaving")
    client = lab.client(workers=2)
    addresses = {each["name"]: address for address, each in client.scheduler_info()["workers"].items()}
    pids = client.run(os.getpid)
    os.kill(pids[addresses["crashing"]], signal.SIGSEGV)
    client.retire_workers([addresses["leaving"]])
    wait_until(lambda: "killed by signal" in crashing.log.read_text(), "the nanny to report the crash")
    wait_until(lambda: "Stopping worker" in leaving.log.read_text(), "the other worker to leave")
    ends = [each.log.read_text().partition("Registered to")[2] for each in (crashing, leaving)]
    deaths = workerdiag.explain(logs=list(map(workerdiag.LogText, ends)), timeout="30s").deaths
    unexpected = [each for each in deaths if not each.stop_requested]
    assert [(each.identity.pid, each.signal) for each in unexpected] == [(pids[addresses["crashing"]], 11)]
    assert len(deaths) == 2


def test_four_deaths_for_one_task_are_four_deaths_of_one_cause(provoke, explain):
    """With Dask's usual patience, four workers die for one task: all are told, and one cause."""
    aftermath = provoke("segfault-four-times")
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "signal.segfault"
    assert [death.signal for death in diagnosis.deaths] == [11] * 4
    assert diagnosis.deaths[-1].identity.pid == aftermath.pid
    assert diagnosis.decision.retry_safe is False


def test_a_local_cluster_does_not_hide_the_signal(provoke, explain):
    """LocalCluster shows "Restarting worker" alone; the nannies' memory has the signal still."""
    assert named_cause(explain(provoke("segfault-local-cluster"))) == "signal.segfault"


def test_a_task_that_only_waited_is_not_blamed(provoke, explain):
    """KilledWorker names every task that was assigned; we say which one was really running."""
    diagnosis = explain(provoke("bystander"))
    assert named_cause(diagnosis) == "signal.segfault"
    assert diagnosis.blame.task == "innocent"
    assert diagnosis.blame.fairly_blamed is False
    assert diagnosis.blame.verdict == "other-task"


def test_a_culprit_that_died_within_a_heartbeat_is_not_acquitted(provoke, explain):
    """What ran at the last heartbeat was done by then, and no other task is accused."""
    diagnosis = explain(provoke("sudden-culprit"))
    assert diagnosis.blame.task == "culprit"
    assert diagnosis.blame.fairly_blamed is not False
    assert not any("nap-" in reason for reason in diagnosis.blame.reasons)


@pytest.mark.parametrize("fault", ["sigint-nanny", "sigint-worker-locally"])
def test_an_interrupt_is_no_crash(provoke, explain, fault):
    """SIGINT, to the worker or to ``dask worker``, is somebody's wish, and safe to run again."""
    diagnosis = explain(provoke(fault))
    assert named_cause(diagnosis) == "exit.keyboard-interrupt"
    assert diagnosis.decision.retry_safe is True


def test_an_interrupt_of_a_process_that_has_not_ended_leaves_two_candidates(provoke, explain):
    """Until a busy worker process ends, a call of Worker.close() leaves the same traces as SIGINT to it alone."""
    diagnosis = explain(provoke("sigint-worker"))
    candidates = {"exit.keyboard-interrupt", "exit.closed-by-code"}
    assert {each.id for each in diagnosis.causes[:2]} == candidates or diagnosis.top.id == "exit.keyboard-interrupt"
    assert diagnosis.top.probability < 0.8 or diagnosis.top.id == "exit.keyboard-interrupt"
    assert diagnosis.decision.retry_safe is True


@pytest.mark.alone
def test_a_crash_of_another_program_is_not_of_a_worker_that_was_interrupted(provoke, explain):
    """The kernel names the thread that crashed, which could be any process's of that second."""
    with crashes_all_the_time():
        diagnosis = explain(provoke("sigint-worker"))
    assert "signal.segfault" not in {cause.id for cause in diagnosis.causes}


@common
def test_sigterm_to_the_nanny_is_an_order(provoke, explain):
    """SIGTERM to ``dask worker`` is an order that was carried out, not a kill, and not the task's fault."""
    diagnosis = explain(provoke("sigterm-nanny"))
    assert named_cause(diagnosis) == "exit.sigterm"
    assert diagnosis.blame.verdict != "task"
    assert diagnosis.decision.retry_safe is True


@pytest.mark.alone
def test_a_nanny_that_vanished_is_the_answer_or_a_gap(provoke, explain):
    """With its nanny dies all memory of a worker: we say so, and do not guess."""
    diagnosis = explain(provoke("sigkill-nanny"))
    assert claimed_causes(diagnosis) <= {"external.nanny-lost"}
    assert any("nanny" in f"{gap.source} {gap.detail}" for gap in diagnosis.gaps)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("fault", "cause"),
    [("segfault-without-nanny", "signal.segfault"), ("sigkill-without-nanny", "external.sigkill")],
)
def test_without_a_nanny_nobody_knows(provoke, explain, fault, cause):
    """Without a nanny nobody saw the exit: "unknown" is right, a wrong cause given as sure is not. A kernel may tell."""
    diagnosis = explain(provoke(fault))
    assert diagnosis.outcome in ("unknown", "explained")
    assert claimed_causes(diagnosis) <= {cause}
    assert diagnosis.next_steps or diagnosis.top.probability > 0.8, "where to look for the exit status"


def test_a_kill_after_a_scale_down_is_no_scale_down(provoke, explain):
    """The nannies of a LocalCluster share a log, and the orders in it were to other workers."""
    aftermath = provoke("sigkill-after-scale-down")
    diagnosis = explain(aftermath)
    assert named_cause(diagnosis) == "external.sigkill"
    (death,) = [each for each in diagnosis.deaths if not each.stop_requested]
    assert (death.signal, death.identity.pid) == (9, aftermath.pid)
