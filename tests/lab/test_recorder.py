"""Real deaths with the flight recorder in workers and nannies. Each test makes one promise about what is told."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import dask
import pytest
from distributed import LocalCluster, get_worker

import workerdiag
from workerdiag.errors import InstallError
from workerdiag.recorder.box.reader import read_box
from workerdiag.recorder.recording import recorder_status
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.messages import DeathReport, ExitReport, decode_message

from . import tasks
from .cluster import IMPATIENT, Client, raised
from .kernel import UnavailableError, memory_group, small_disk
from .processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]
common = pytest.mark.common

PRELOADS = {
    f"DASK_DISTRIBUTED__{process}__PRELOAD": '["workerdiag.recorder.preload"]'
    for process in ("NANNY", "WORKER", "SCHEDULER")
}


def recorded(lab, *arguments, **options):
    """The client of a cluster with the recorder in workers and nannies."""
    lab.scheduler(**IMPATIENT)
    lab.worker(*arguments, **options)
    client = lab.client()
    workerdiag.install(client)
    return client


def reports(client, count=1):
    """What was told of the deaths so far, once there are so many."""

    def ask():
        messages = [decode_message(message) for _, message in client.get_events(DEATH_TOPIC)]
        found = [message for message in messages if isinstance(message, DeathReport)]
        return found if len(found) >= count else None

    return wait_until(ask, f"{count} messages about deaths")


def ran(message):
    """Keys of the tasks that ran at the moment of the death."""
    return sorted(task.key for task in message.running_tasks)


def files(boxes):
    """All that lies where boxes do."""
    return sorted(path.name for path in boxes.iterdir()) if boxes.exists() else []


# ------------------------------------------------------------------------------ how it ended


@pytest.mark.parametrize(
    ("task", "arguments", "signal_number", "status"),
    [
        pytest.param(tasks.segfault, (), 11, None, marks=common, id="segfault"),
        pytest.param(tasks.abort, (), 6, None, id="abort"),
        pytest.param(tasks.exit_at_once, (0,), None, 0, id="exit-0"),
        pytest.param(tasks.exit_at_once, (3,), None, 3, marks=common, id="exit-3"),
        pytest.param(tasks.exit_politely, (3,), None, 3, id="sys-exit"),
    ],
)
def test_a_task_that_ends_its_worker_is_told_with_the_exact_exit(
    lab, boxes, task, arguments, signal_number, status
):
    """However soon after its start a task kills, who ran where and how the process ended is told exactly."""
    client = recorded(lab)
    raised(client.submit(task, *arguments, mark=lab.mark(), key="deadly"))
    (message,) = reports(client)
    assert message.exit == ExitReport(signal=signal_number, status=status)
    assert message.kind == "nanny-report"
    assert message.pid == lab.running()
    assert ran(message) == ["deadly"]
    assert message.stop_requested is None
    wait_until(lambda: len(files(boxes)) <= 2, "the victim's box to be removed")


@common
def test_a_kill_from_outside_is_told_with_what_ran(lab):
    """Of SIGKILL the worker knows nothing, and its box has all the same what ran."""
    client = recorded(lab)
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    os.kill(lab.running(), signal.SIGKILL)
    raised(future)
    (message,) = reports(client)
    assert message.exit == ExitReport(signal=9)
    assert ran(message) == ["nap"]
    assert message.box.stage == "running"
    assert message.box.samples[-1].process_rss_bytes > 10 * tasks.MB
    assert "distributed" in message.box.last_output


def test_the_thread_that_crashed_is_told_from_the_others(lab):
    """Of two tasks that run, the one that got the signal is named."""
    client = recorded(lab, "--nthreads", "2")
    client.submit(tasks.nap, 60, lab.mark("nap"), key="nap")
    lab.running("nap")
    raised(client.submit(tasks.segfault, key="deadly"))
    (message,) = reports(client)
    assert {task.key: task.is_on_crashed_thread for task in message.running_tasks} == {
        "nap": False,
        "deadly": True,
    }
    assert "Segmentation fault" in message.box.faulthandler_dump


def test_the_nannys_memory_kill_is_told_as_one(lab):
    """A worker that takes too much at once is ended by its nanny, and not by anybody else."""
    client = recorded(lab, memory_limit="300MB")
    raised(client.submit(tasks.burst, 600, lab.mark(), key="burst"))
    (message,) = reports(client)
    assert message.is_memory_terminated
    assert message.memory_limit_bytes == 300 * tasks.MB
    assert ran(message) == ["burst"]
    last_look = message.memory_at_kill
    assert 0.95 * 300 * tasks.MB < last_look.rss_bytes <= last_look.peak_rss_bytes < last_look.asked_bytes
    assert last_look.asked_bytes > 600 * tasks.MB


@common
def test_the_nannys_memory_kill_names_the_line(lab):
    """Of two tasks that ran, each has the line of its own code, in report and diagnosis; the exit stays SIGTERM."""
    client = recorded(lab, "--nthreads", "2", memory_limit="300MB")
    client.submit(tasks.nap, 60, lab.mark("nap"), key="nap")
    lab.running("nap")
    error = raised(client.submit(tasks.grow, 600, 5, lab.mark(), key="grow"))
    (message,) = reports(client)
    assert message.exit == ExitReport(signal=15)
    assert message.box.faulthandler_dump == ""
    diagnosis = workerdiag.explain(error, client)
    assert diagnosis.top.id == "nanny.memory-terminate"
    assert {(line.task, line.function) for line in diagnosis.deaths[0].lines} == {("nap", "nap"), ("grow", "grow")}
    assert "\nAt line   " in str(diagnosis)
    assert f"{tasks.__file__}:" in diagnosis.to_text(full=True, width=300)


@common
def test_the_nannys_memory_kill_names_what_held_the_memory(lab):
    """The variable that grew is named by type and size near the limit; a death of seconds has a curve."""
    client = recorded(lab, memory_limit="300MB")
    error = raised(client.submit(tasks.grow, 600, 1, lab.mark(), key="grow"))
    (message,) = reports(client)
    census = message.box.censuses[-1]
    held = census.objects[0]
    assert (held.name, held.type, held.line.function, held.line.task) == ("held", "list", "grow", "grow")
    assert 0.5 * census.rss_bytes < held.size_bytes < census.rss_bytes
    assert 0.75 <= census.rss_bytes / census.limit_bytes < 1
    assert len(message.box.censuses) >= 2
    risen = [each.process_rss_bytes for each in message.box.samples]
    assert len(risen) > 10
    assert risen[-1] > 0.9 * 300 * tasks.MB
    assert message.memory_at_kill.rss_bytes > 0.9 * 300 * tasks.MB
    assert all(each.process_data_bytes > each.process_rss_bytes / 2 for each in message.box.samples)
    text = workerdiag.explain(error, client).to_text(full=True, width=200)
    assert f"Held by `held`: list of {held.count}, " in text


@common
def test_a_worker_that_was_asked_to_stop_is_no_crash_for_its_stacks(lab):
    """Whoever retires a worker, or ends it by SIGTERM from outside, finds no crash and no line of a task."""
    client = recorded(lab)
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    os.kill(lab.running(), signal.SIGTERM)
    error = raised(future)
    (message,) = reports(client)
    assert (message.exit, message.box.faulthandler_dump) == (ExitReport(signal=15), "")
    assert message.running_tasks[0].is_on_crashed_thread is None
    diagnosis = workerdiag.explain(error, client)
    assert diagnosis.deaths[0].lines == ()
    assert "signal." not in diagnosis.top.id


def test_the_kernels_memory_kill_is_counted(lab):
    """Of a burst that the kernel ends within a cgroup, the counter of such kills is told before and after."""
    try:
        group = lab.enter_context(memory_group(limit_bytes=300 * tasks.MB))
    except UnavailableError as problem:
        pytest.skip(str(problem))
    client = recorded(lab, memory_limit="4GB", group=group)
    raised(client.submit(tasks.burst, 600, lab.mark(), key="burst"))
    (message,) = reports(client)
    assert message.exit.signal == 9
    assert message.cgroup.oom_kills_after > message.cgroup.oom_kills_before
    assert message.cgroup.limit_bytes == 300 * tasks.MB // 4096 * 4096
    assert ran(message) == ["burst"]


def test_a_coroutine_is_a_running_task_too(lab):
    """A task that runs on the event loop is told like one on a thread."""
    client = recorded(lab)
    future = client.submit(tasks.block_loop, 60, lab.mark(), key="coroutine")
    os.kill(lab.running(), signal.SIGKILL)
    raised(future)
    (message,) = reports(client)
    assert ran(message) == ["coroutine"]
    assert message.running_tasks[0].thread_name == "event loop"


POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

def dask_setup(worker):
    worker.executors["pool"] = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
"""


def with_pool(lab):
    """The client of a cluster whose worker has a pool of one process, named ``pool``, and records."""
    preload = lab.folder / "with_pool.py"
    preload.write_text(POOL)
    # A nanny's worker is daemonic, which may have no children, unless configured otherwise.
    env = {"DASK_DISTRIBUTED__WORKER__DAEMON": "false"}
    return recorded(lab, "--preload", str(preload), env=env)


def test_a_worker_that_dies_while_its_pool_works_is_told_with_the_task_in_the_pool(lab):
    """A task that another process runs for the worker is one of the worker's running tasks."""
    client = with_pool(lab)
    (pid,) = client.run(os.getpid).values()
    with dask.annotate(executor="pool"):
        future = client.submit(tasks.nap, 60, lab.mark(), key="pooled")
    assert lab.running() != pid
    os.kill(pid, signal.SIGKILL)
    raised(future)
    (message,) = reports(client)
    assert (message.pid, ran(message)) == (pid, ["pooled"])
    assert message.running_tasks[0].thread_name == "executor pool"


def test_a_pool_whose_process_dies_is_no_dead_worker(lab, boxes):
    """The task fails by itself; the worker lives, runs nothing any more, and nothing is told."""
    client = with_pool(lab)
    with dask.annotate(executor="pool"):
        future = client.submit(tasks.nap, 60, lab.mark(), key="pooled")
    os.kill(lab.running(), signal.SIGKILL)
    assert type(raised(future)) is BrokenProcessPool
    (path,) = boxes.glob("*.box")
    box = read_box(path)
    assert (box.running_tasks, [task.key for task in box.finished_tasks]) == ((), ["pooled"])
    assert {message["kind"] for _, message in client.get_events(DEATH_TOPIC)} <= {"recorder-state", "removal"}


# ------------------------------------------------------------------------- nobody was there


@common
def test_a_worker_that_dies_with_its_nanny_is_told_by_the_next_one(lab, boxes):
    """Nanny and worker are killed together; who comes next on that host finds the box, and tells once."""
    lab.scheduler(**IMPATIENT)
    daemon = lab.worker(env=PRELOADS)
    client = lab.client()
    wait_until(
        lambda: all(each["is_recording"] for each in client.run(recorder_status, nanny=True).values()),
        "the nanny",
    )
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    pid = lab.running()
    daemon.send(signal.SIGSTOP)  # so that it cannot see its worker die
    os.kill(pid, signal.SIGKILL)
    daemon.send(signal.SIGKILL)
    raised(future)
    for name in ("second", "third"):
        lab.worker(name=name, env=PRELOADS)
    client.wait_for_workers(2, timeout=PATIENCE_S)
    (message,) = reports(client)
    time.sleep(1)
    assert len(reports(client)) == 1
    assert (message.kind, message.pid, ran(message)) == ("box-found", pid, ["nap"])
    assert message.is_nanny_running is False
    wait_until(lambda: len([name for name in files(boxes) if name.endswith(".box")]) == 2, "two boxes")


def test_a_worker_without_nanny_is_told_by_the_next_one(lab):
    """Without a nanny the worker's own dump says how it ended."""
    lab.scheduler(**IMPATIENT)
    lab.worker(nanny=False, env=PRELOADS)
    client = lab.client()
    raised(client.submit(tasks.segfault, lab.mark(), key="deadly"))
    lab.worker(name="second", nanny=False, env=PRELOADS)
    (message,) = reports(client)
    assert (message.kind, message.pid, ran(message)) == ("box-found", lab.running(), ["deadly"])
    assert message.exit == ExitReport(signal=11, known_by="faulthandler")


def test_a_worker_without_nanny_that_was_asked_to_end_leaves_nothing(lab, boxes):
    """An orderly end is nothing to tell of."""
    lab.scheduler()
    daemon = lab.worker(nanny=False, env=PRELOADS)
    client = lab.client()
    wait_until(lambda: files(boxes), "a box")
    client.retire_workers(close_workers=True)
    daemon.ended()
    assert files(boxes) == []


def test_death_during_start_is_told_by_a_preload(lab, boxes):
    """A worker that dies before it ever registers is told with its exit, if configuration put us there.

    Its nanny gives up and ends at once; what it could not deliver in time the next one on the host does.
    """
    killer = lab.folder / "modules"
    killer.mkdir()
    (killer / "deadly_preload.py").write_text("import os\ndef dask_setup(worker):\n    os._exit(7)\n")
    env = {**PRELOADS, "PYTHONPATH": lab.import_path(killer)}
    env["DASK_DISTRIBUTED__WORKER__PRELOAD"] = '["workerdiag.recorder.preload", "deadly_preload"]'
    lab.scheduler(**PRELOADS)
    deadly = lab.worker("--preload-nanny", "workerdiag.recorder.preload", env=env)
    deadly.ended()
    lab.worker(name="next", env=PRELOADS)
    client = lab.enter_context(Client(lab.address, timeout=PATIENCE_S, set_as_default=False))
    message = reports(client)[0]
    assert message.exit.status == 7
    assert message.pid
    assert message.running_tasks == ()


# --------------------------------------------------------------------- installing, and leaving


def condition(dask_worker):
    """All that the recorder changes in a worker's process."""
    import faulthandler
    import logging
    import sys
    import threading

    return {
        "threads": sorted(each.name for each in threading.enumerate() if "workerdiag" in each.name),
        "handlers": sum(
            "workerdiag" in type(each).__module__ for each in logging.getLogger("distributed").handlers
        ),
        "stderr": type(sys.stderr).__name__,
        "fatal": faulthandler.is_enabled(),
        "caught": next(line for line in Path("/proc/self/status").open() if line.startswith("SigCgt")),
        "tasks": (type(dask_worker.active_threads).__name__, type(dask_worker.active_keys).__name__),
        "plugins": sorted(name for name in dask_worker.plugins if "workerdiag" in name),
        "attributes": sorted(name for name in vars(dask_worker) if "workerdiag" in name),
    }


def condition_of_nanny(dask_worker):
    """All that the recorder changes in a nanny."""
    return {
        "hooked": sorted({"_on_worker_exit_sync", "log_event"} & vars(dask_worker).keys()),
        "process": dask_worker.process.on_exit.__name__,
        "callbacks": sorted(name for name in dask_worker.periodic_callbacks if "workerdiag" in name),
        "plugins": sorted(name for name in dask_worker.plugins if "workerdiag" in name),
        "attributes": sorted(name for name in vars(dask_worker) if "workerdiag" in name),
    }


def condition_of_scheduler(dask_scheduler):
    """All that the recorder changes in a scheduler."""
    kinds = ("plugins", "worker_plugins", "nanny_plugins", "handlers")
    return [name for kind in kinds for name in getattr(dask_scheduler, kind) if "workerdiag" in name]


def changed(client, boxes):
    """All that the recorder changes on a cluster."""
    return (
        client.run(condition),
        client.run(condition_of_nanny, nanny=True),
        client.run_on_scheduler(condition_of_scheduler),
        files(boxes),
    )


@common
def test_uninstalling_leaves_nothing_and_installing_twice_is_once(lab, boxes):
    """After `uninstall` workers, nannies and the disk are as they were, also when it was installed twice."""
    _, client = lab.cluster()
    before = changed(client, boxes)
    installed = workerdiag.install(client)
    once = changed(client, boxes)
    assert all(one != other for one, other in zip(once, before, strict=True))
    assert (installed.scheduler, len(installed.workers), len(installed.nannies)) == (True, 1, 1)
    assert installed.missing == {}
    assert workerdiag.install(client) == installed
    assert changed(client, boxes) == once
    client.submit(tasks.nap, 0).result()
    installed.uninstall()
    wait_until(lambda: changed(client, boxes) == before, "all to be as before")
    workerdiag.uninstall(client)  # nor is it an error to do it twice


def test_installing_in_the_midst_of_work_disturbs_nothing(lab):
    """A task that already runs keeps its key and its result, and is recorded from then on."""
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    future = client.submit(asks_for_its_key, 3, lab.mark(), key="long")
    lab.running()
    workerdiag.install(client)
    assert future.result(timeout=PATIENCE_S) == "long"
    future = client.submit(asks_for_its_key, 3, lab.mark("second"), key="longer")
    lab.running("second")
    workerdiag.uninstall(client)
    assert future.result(timeout=PATIENCE_S) == "longer"
    future = client.submit(tasks.nap, 60, lab.mark("third"), key="nap")
    pid = lab.running("third")
    workerdiag.install(client)
    time.sleep(1.5)
    os.kill(pid, signal.SIGKILL)
    raised(future)
    (message,) = reports(client)
    assert ran(message) == ["nap"]


def asks_for_its_key(seconds, mark):
    """As libraries do that want to know in which task they run."""
    worker = get_worker()
    tasks.nap(seconds, mark)
    return worker.get_current_task()


def test_workers_that_come_later_record_too(lab):
    """A cluster that grows, and one that is restarted, needs no second `install`."""
    cluster, client = lab.cluster()
    workerdiag.install(client)
    cluster.scale(2)
    client.wait_for_workers(2, timeout=PATIENCE_S)
    wait_until(lambda: len(workerdiag.install(client).workers) == 2, "both to record")
    client.restart()
    installed = workerdiag.install(client)
    assert (len(installed.workers), len(installed.nannies)) == (2, 2)
    assert all(message.stop_requested for message in reports(client, 2))


def test_a_cluster_with_tls_is_told_too(lab):
    """What a nanny tells goes over the cluster's own, encrypted, connections."""
    pytest.importorskip("cryptography")
    from distributed.security import Security

    cluster = lab.enter_context(
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, security=Security.temporary())
    )
    client = lab.enter_context(Client(cluster, set_as_default=False))
    workerdiag.install(client)
    client.submit(os._exit, 3, key="deadly")
    assert reports(client)[0].exit.status == 3


def test_installing_where_workerdiag_is_missing_installs_nothing(lab):
    """A worker that cannot import workerdiag is named, and nothing is registered anywhere."""
    hidden = lab.folder / "modules"
    hidden.mkdir()
    (hidden / "workerdiag.py").write_text("")
    lab.scheduler()
    lab.worker(env={"PYTHONPATH": lab.import_path(hidden)})
    client = lab.client()
    with pytest.raises(InstallError, match="install workerdiag in the environment"):
        workerdiag.install(client)
    assert client.run_on_scheduler(condition_of_scheduler) == []


# ------------------------------------------------------------------------------ stepping aside


@pytest.mark.parametrize("place", ["read-only", "full"])
def test_without_a_place_for_boxes_the_cluster_runs_on(lab, monkeypatch, place):
    """On a read-only or full disk there is no box, which is said; the exit status is told all the same."""
    folder = Path("/proc/nowhere")
    if place == "full":
        try:
            folder = lab.enter_context(small_disk(lab.folder / "disk", size_bytes=64 * 1024))
        except UnavailableError as problem:
            pytest.skip(str(problem))
    monkeypatch.setenv("WORKERDIAG_RECORDER_DIRECTORY", str(folder))
    lab.scheduler(**IMPATIENT)
    lab.worker()
    client = lab.client()
    installed = workerdiag.install(client)
    assert installed.workers == ()
    assert len(installed.nannies) == 1
    assert "no black box" in str(installed)
    assert client.submit(tasks.nap, 0).result(timeout=PATIENCE_S) == "rested"
    raised(client.submit(tasks.exit_at_once, 3, lab.mark(), key="deadly"))
    (message,) = reports(client)
    assert (message.exit.status, message.pid) == (3, lab.running())


def test_a_task_that_forks_does_not_touch_the_workers_box(lab):
    """What a forked child does, and how it dies, is not the worker's doing."""
    client = recorded(lab)
    assert client.submit(fork_and_crash, key="fork").result(timeout=PATIENCE_S) == 11
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    os.kill(lab.running(), signal.SIGKILL)
    raised(future)
    (message,) = reports(client)
    assert ran(message) == ["nap"]
    assert message.box.faulthandler_dump == ""
    assert "from the child" not in message.box.last_output


def fork_and_crash():
    """The number of the signal that ended a forked child, which wrote to standard error before."""
    import ctypes
    import sys

    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            sys.stderr.write("from the child\n")
            ctypes.string_at(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) * -1


def test_what_a_task_writes_to_standard_error_is_among_its_last_words(lab):
    """Python's standard error is in the box, and still where it was before."""
    client = recorded(lab)
    future = client.submit(complain_and_wait, lab.mark(), key="complain")
    os.kill(lab.running(), signal.SIGKILL)
    raised(future)
    (message,) = reports(client)
    assert "the model is damaged" in message.box.last_output
    assert "the model is damaged" in lab.daemons["worker"].log.read_text()


def complain_and_wait(mark):
    """As a library that warns before it breaks."""
    import sys

    sys.stderr.write("the model is damaged\n")
    tasks.nap(60, mark)
