"""Programs that fail for natural reasons, and what a right answer to each is.

No fault is injected from outside unless that is the story. Each program runs in a process of its own
(`natural_run`), on a fresh cluster and on one that has lost a worker before:

    python -m tests.lab.natural [--only NAME,...] [--after-death] [--recorder]
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
from distributed import Client, Event, Lock, Queue, Variable, as_completed, wait

from . import natural_tasks, tasks
from .cluster import arrived
from .natural_scenario import OWN_ERROR, SCENARIOS, natural
from .natural_stage import (
    PATIENCE_S,
    Asked,
    Stage,
    caught,
    kill_while_it_runs,
    nobody_listens,
    stands_still,
    statuses,
    worker_of,
)
from .processes import LabError, wait_until

__all__ = ["SCENARIOS"]

#: Answers to work that runs and will end.
RUNS = ("standstill.still-running",)
MEMORY = "nanny.memory-terminate"

# ------------------------------------------------------- errors of the program, before any task ran


@natural(*OWN_ERROR, says=("serializ|pickl",))
def could_not_serialize(stage: Stage) -> Asked:
    """A lock is passed to a task: it cannot be pickled, and no worker takes part."""
    client = stage.local()
    return caught(client, lambda: client.submit(tasks.use, threading.Lock(), key="use").result(timeout=20))


@natural(*OWN_ERROR, says=("AttributeError", r"natural\.py"), never_says=("dmesg|kernel log",))
def own_attribute_error(stage: Stage) -> Asked:
    """A method of the client is misspelled, and no task was sent."""
    client = stage.local()
    return caught(client, lambda: client.submitt(tasks.nap, 1))


@natural(*OWN_ERROR, says=("KeyError", r"natural\.py"), never_says=("dmesg|kernel log",))
def own_key_error(stage: Stage) -> Asked:
    """An entry of the program's own configuration is missing, and no task was sent."""
    client = stage.local()
    settings = {"rows": 10}
    return caught(client, lambda: client.submit(tasks.nap, settings["columns"]))


@natural(*OWN_ERROR, says=("AttributeError",), never=("memory.paused",))
def own_attribute_error_beside_a_paused_worker(stage: Stage) -> Asked:
    """A method is misspelled while a worker happens to be paused."""
    client = stage.local()
    _pause(client)
    return caught(client, lambda: client.submitt(tasks.nap, 1))


@natural("network.connect-timeout", says=(r"127\.0\.0\.1:\d+",))
def nobody_listens_there(stage: Stage) -> Asked:
    """A client is made for an address where nobody listens."""
    stage.earlier_cluster()
    address = nobody_listens()
    return caught(None, lambda: Client(address, timeout=3))


@natural(*OWN_ERROR, says=(r"cancelled by|was cancelled|cancel\(\)",))
def cancelled_by_the_user(stage: Stage) -> Asked:
    """The user cancels his own future and then asks for its result."""
    client = stage.local()
    future = client.submit(tasks.nap, 60, stage.mark(), key="simulate")
    stage.running()
    future.cancel()
    return caught(client, lambda: future.result(timeout=10))


@natural(
    "standstill.client-closed",
    "exit.scheduler-closed",
    "exit.scheduler-retired",
    says=("(cluster|client).{0,40}clos",),
)
def result_after_closing(stage: Stage) -> Asked:
    """The cluster is closed, and then a result is asked for."""
    client = stage.local()
    future = client.submit(tasks.nap, 60, stage.mark(), key="simulate")
    stage.running()
    client.cluster.close()
    return caught(client, lambda: future.result(timeout=10))


# ------------------------------------------------------------------------------- errors of the tasks


@natural(*OWN_ERROR, says=("AssertionError", "check_total"))
def failed_assertion(stage: Stage) -> Asked:
    """An assertion of a task fails, each time."""
    client = stage.local()
    return caught(client, lambda: client.submit(natural_tasks.check_total, -1, key="check").result(timeout=20))


@natural(*OWN_ERROR, says=("KeyError", "look_up"))
def one_key_error_among_many(stage: Stage) -> Asked:
    """One of many tasks raises a KeyError, and all are gathered."""
    client = stage.local()
    futures = client.map(natural_tasks.look_up, ["north", "south", "west"])
    return caught(client, lambda: client.gather(futures))


@natural(*OWN_ERROR, says=("ZeroDivisionError", "divide"))
def recreated_locally(stage: Stage) -> Asked:
    """The task was run again in the client to debug it, as we advise."""
    client = stage.local()
    future = client.submit(natural_tasks.divide, 1, 0, key="divide")
    asked = caught(client, lambda: future.result(timeout=20))
    with suppress(ZeroDivisionError):
        client.recreate_error_locally(future)
    return asked


@natural(*OWN_ERROR, "exception.memory-error", says=("MemoryError",))
def memory_error(stage: Stage) -> Asked:
    """A task asks for more memory than there are addresses."""
    client = stage.local()
    return caught(
        client, lambda: client.submit(natural_tasks.allocate_everything, key="allocate").result(timeout=20)
    )


@natural(*OWN_ERROR, "exception.disk-full", says=("No space left",))
def disk_full_for_the_task(stage: Stage) -> Asked:
    """A task writes a file to a disk that is full."""
    disk = str(stage.small_disk(10))
    client = stage.local()
    return caught(
        client, lambda: client.submit(natural_tasks.write_report, disk, 20, key="report").result(timeout=20)
    )


@natural(*OWN_ERROR, "code.thread-unsafe", says=("thread",))
def sqlite_in_threads(stage: Stage) -> Asked:
    """A task uses one SQLite connection in several threads."""
    client = stage.local()
    return caught(client, lambda: client.submit(natural_tasks.query_in_threads, key="query").result(timeout=20))


@natural(*OWN_ERROR, "code.thread-unsafe", "signal.segfault", "signal.abort", says=("thread",), needs=("netCDF4",))
def netcdf_in_threads(stage: Stage) -> Asked:
    """Four threads of each worker read one netCDF file, whose library is not safe for that."""
    client = stage.local(threads=4, memory_limit="600MB")
    name = str(stage.folder / "grid.nc")
    client.submit(natural_tasks.write_grid, name).result(timeout=PATIENCE_S)
    futures = client.map(natural_tasks.read_grid, [name] * 400, range(400), pure=False, retries=0)
    return caught(client, lambda: client.gather(futures))


@natural(*OWN_ERROR, "*.child-killed", says=("BrokenProcessPool", "SIGKILL|signal 9|out of memory|OOM"))
def broken_process_pool(stage: Stage) -> Asked:
    """A process pool of a task loses a process to SIGKILL."""
    client = stage.local()
    return caught(client, lambda: client.submit(tasks.lose_a_child, key="pool").result(timeout=20))


@natural(*OWN_ERROR, "*.child-killed", says=("CalledProcessError", "SIGKILL|signal 9|killed"))
def child_killed(stage: Stage) -> Asked:
    """A program that a task runs is killed by SIGKILL."""
    client = stage.local()
    return caught(client, lambda: client.submit(natural_tasks.run_solver, key="solve").result(timeout=20))


@natural(*OWN_ERROR, "configuration.*", "*.daemonic*", says=("daemon: (false|False)|worker.daemon",))
def pool_in_a_daemonic_worker(stage: Stage) -> Asked:
    """A task makes a process pool, which a daemonic process may not."""
    client = stage.local()
    return caught(client, lambda: client.submit(natural_tasks.simulate_in_pool, key="pool").result(timeout=20))


# --------------------------------------------------------------------------- environment of workers


@natural(
    "exception.missing-module",
    *OWN_ERROR,
    says=("pricing_rules", "environment|client (has|can|imports)|only the workers|workers lack"),
)
def module_only_the_client_has(stage: Stage) -> Asked:
    """A task imports a module in its body that only the client has."""
    client = stage.commands()
    stage.module("pricing_rules", "def price(amount):\n    return amount * 1.2\n")
    importlib.import_module("pricing_rules")
    return caught(client, lambda: client.submit(natural_tasks.price, 3, key="price").result(timeout=20))


@natural(
    "exception.missing-module",
    "exception.deserialization",
    says=("pricing_rules",),
    never_says=("nothing says why",),
)
def function_of_a_module_only_the_client_has(stage: Stage) -> Asked:
    """A task cannot be unpickled, and the workers leave one after the other."""
    client = stage.commands()
    stage.module("pricing_rules", "def price(amount):\n    return amount * 1.2\n")
    price = importlib.import_module("pricing_rules").price
    return caught(client, lambda: client.submit(price, 3, key="price").result(timeout=12))


@natural(
    "exception.missing-module",
    "exception.deserialization",
    says=("pricing_rules",),
    never_says=("nothing says why",),
)
def function_of_a_module_and_no_exception(stage: Stage) -> Asked:
    """As before, without nannies, and the author only sees that nothing happens."""
    client = stage.commands(nanny=False)
    stage.module("pricing_rules", "def price(amount):\n    return amount * 1.2\n")
    price = importlib.import_module("pricing_rules").price
    return stands_still(client, client.submit(price, 3, key="price"))


@natural(
    "exception.missing-module",
    "exception.deserialization",
    says=("pricing_rules",),
    never_says=("nothing says why",),
)
def folder_that_only_this_process_has(stage: Stage) -> Asked:
    """The path of a module is added once the workers run: the scheduler, here, can read the task, no worker can."""
    client = stage.local()
    stage.module("pricing_rules", "def price(amount):\n    return amount * 1.2\n")
    price = importlib.import_module("pricing_rules").price
    return stands_still(client, client.submit(price, 3, key="price"))


@natural(
    "exception.missing-module",
    "exception.version-mismatch",
    *OWN_ERROR,
    says=("pricing_rules", "environment|client (has|can|imports)|only the workers|workers (lack|have)"),
)
def older_module_on_the_workers(stage: Stage) -> Asked:
    """The workers have an older release of a module, without the function that a task imports."""
    old = stage.module(
        "pricing_rules", "__version__ = '1.0'\ndef price(amount):\n    return amount\n", on_client=False
    )
    client = stage.commands(env={"PYTHONPATH": stage.lab.import_path(old)})
    stage.module("pricing_rules", "__version__ = '2.0'\ndef discount(amount):\n    return amount\n", folder="newer")
    importlib.import_module("pricing_rules")
    return caught(
        client, lambda: client.submit(natural_tasks.price_with_discount, 3, key="price").result(timeout=20)
    )


# ------------------------------------------------------------------------------------------ memory


@natural(MEMORY, blames="load-all-rows")
def one_big_chunk(stage: Stage) -> Asked:
    """A task loads a file in one piece that is larger than a worker."""
    client = stage.local()
    return caught(
        client,
        lambda: client.submit(natural_tasks.load_all_rows, 600, key="load-all-rows").result(timeout=40),
    )


@natural(MEMORY, blames="collect-rows")
def endless_append(stage: Stage) -> Asked:
    """A task appends to a list until its worker is killed."""
    client = stage.local()
    return caught(
        client,
        lambda: client.submit(natural_tasks.collect_rows, 800, key="collect-rows").result(timeout=40),
    )


@natural(MEMORY, partly=("memory.paused",), blames="score")
def table_in_the_graph(stage: Stage) -> Asked:
    """A large table is an argument of each task."""
    logging.getLogger("distributed.client").setLevel(logging.ERROR)
    client = stage.local()
    client.run_on_scheduler(natural_tasks.allow_no_failure)  # each attempt takes its time
    table = os.urandom(1) * (160 * tasks.MB)
    futures = [client.submit(natural_tasks.score_row, row, table, key=f"score-{row}") for row in range(2)]
    return caught(client, lambda: client.gather(futures))


@natural(MEMORY, "memory.paused", says=("decode",))
def growing_cache(stage: Stage) -> Asked:
    """Each task adds to a cache; workers are killed again and again, and the work goes on."""
    client = stage.local()
    futures = client.map(natural_tasks.decode_frame, range(400), key="decode")
    return stands_still(client, futures, seconds=14)


@natural(
    "memory.*",
    "configuration.*",
    *OWN_ERROR,
    says=("worth of input|input dependencies", "refuse|never ran|not run|before it ran"),
)
def refused_inputs(stage: Stage) -> Asked:
    """The inputs of a task are larger than a worker, so the scheduler refuses it."""
    client = stage.local(memory_limit="400MB")
    chunks = []
    for seed in range(9):
        chunks.append(client.submit(natural_tasks.make_chunk, 50, seed, key=f"chunk-{seed}"))
        wait(chunks[-1], timeout=PATIENCE_S)
    return caught(client, lambda: client.submit(natural_tasks.merge_chunks, chunks, key="merge").result(timeout=20))


@natural("memory.paused")
def paused(stage: Stage) -> Asked:
    """Both workers are paused, and a task waits."""
    client = stage.local()
    _pause(client)
    return stands_still(client, arrived(client, client.submit(tasks.nap, 0, key="next")))


@natural("memory.paused", never_says=("restart_workers",))
def paused_without_nannies(stage: Stage) -> Asked:
    """Both workers are paused, and no nanny could restart them."""
    client = stage.commands(nanny=False)
    _pause(client)
    return stands_still(client, arrived(client, client.submit(tasks.nap, 0, key="next")))


@natural("memory.paused", never_says=("restart_workers",))
def paused_in_the_own_process(stage: Stage) -> Asked:
    """The workers are threads of the program, whose memory pauses them."""
    stage.earlier_cluster()
    held = bytearray(b"\1") * (150 * tasks.MB)
    limit = int(psutil.Process().memory_info().rss / 0.87)
    client = stage.local(processes=False, memory_limit=limit, can_die=False)
    wait_until(lambda: set(statuses(client)) == {"paused"}, "the workers to pause", within_s=PATIENCE_S)
    return stands_still(client, arrived(client, client.submit(tasks.nap, 0, key="next")), held)


@natural("exception.disk-full", partly=("memory.paused",), says=("disk|No space left",))
def disk_full_for_spilling(stage: Stage) -> Asked:
    """The disk for spilling is full, so both workers keep everything in memory, and pause."""
    disk = stage.small_disk(40)
    client = stage.local(local_directory=str(disk))
    for nanny in client.cluster.workers.values():  # at most a pause, however busy the machine is
        nanny.memory_manager.memory_terminate_fraction = 2.0
    futures = [client.submit(natural_tasks.make_chunk, 20, seed, key=f"chunk-{seed}") for seed in range(50)]
    wait_until(lambda: set(statuses(client)) == {"paused"}, "the workers to pause", within_s=PATIENCE_S)
    return stands_still(client, futures)


@natural("exception.disk-full", *OWN_ERROR, says=("disk",), needs=("numpy", "pyarrow"))
def disk_full_for_a_shuffle(stage: Stage) -> Asked:
    """A rechunk over the network finds the disk of the workers full."""
    import dask.array as da

    disk = stage.small_disk(20)
    client = stage.local(local_directory=str(disk), memory_limit="900MB")
    array = da.random.random((8000, 1500), chunks=(8000, 100))
    return caught(client, lambda: array.rechunk((100, 1500), method="p2p").sum().compute())


@natural(MEMORY, needs=("numpy",))
def outer_product(stage: Stage) -> Asked:
    """The chunks are small, and the product of the array with itself is one large block."""
    import dask.array as da

    client = stage.local()
    array = da.random.random((2000, 8000), chunks=(500, 8000))
    return caught(client, lambda: (array.T @ array).sum().compute())


@natural(MEMORY, needs=("numpy", "pandas", "pyarrow"))
def merge_that_explodes(stage: Stage) -> Asked:
    """The same key stands many times on both sides of a merge."""
    import dask.dataframe as dd
    import pandas as pd

    client = stage.local()
    frame = pd.DataFrame({"key": [1] * 8000, "value": range(8000)})
    table = dd.from_pandas(frame, npartitions=4)
    return caught(client, lambda: len(table.merge(table, on="key").compute()))


# ------------------------------------------------------------------------------ work stands still


@natural("standstill.*", says=("secede|worker_client|child",), never=("standstill.no-workers",))
def nested_tasks(stage: Stage) -> Asked:
    """Each thread holds a task that waits for tasks of its own."""
    client = stage.local()
    return stands_still(
        client, [client.submit(natural_tasks.parent, each, key=f"parent-{each}") for each in range(2)]
    )


@natural("standstill.*", says=("lock",), never=("standstill.no-workers",))
def lock_never_released(stage: Stage) -> Asked:
    """The program itself holds the lock that its tasks wait for."""
    client = stage.local()
    lock = Lock("results-database")
    lock.acquire()
    futures = [
        client.submit(
            natural_tasks.update_database, "results-database", stage.mark(str(each)), 0, key=f"update-{each}"
        )
        for each in range(2)
    ]
    return stands_still(client, futures, lock)


@natural("standstill.*", "external.sigkill", says=("lock",), never=("standstill.no-workers",))
def lock_of_a_dead_holder(stage: Stage) -> Asked:
    """The worker that held a lock was killed, and others wait for the lock."""
    client = stage.local()
    pids = client.run(os.getpid)
    holder = client.submit(
        natural_tasks.update_database, "results-database", stage.mark("held"), 60, key="update-0"
    )
    wait_until(Path(stage.mark("held")).exists, "the lock to be held")
    waiting = client.submit(
        natural_tasks.update_database, "results-database", stage.mark("waits"), 0, key="update-1"
    )
    os.kill(pids[worker_of(client, "update-0")], signal.SIGKILL)
    return stands_still(client, holder, waiting)


@natural("standstill.*", says=("queue",), never=("standstill.no-workers",))
def queue_never_filled(stage: Stage) -> Asked:
    """Tasks take from a queue that nobody fills."""
    client = stage.local()
    queue = Queue("orders")
    return stands_still(
        client,
        queue,
        [client.submit(natural_tasks.consume, "orders", key=f"consume-{each}") for each in range(2)],
    )


@natural("standstill.*", says=("variable",), never=("standstill.no-workers",))
def variable_never_set(stage: Stage) -> Asked:
    """A task reads a variable that nobody sets."""
    client = stage.local()
    return stands_still(
        client,
        Variable("learning-rate"),
        client.submit(natural_tasks.read_setting, "learning-rate", key="train"),
    )


@natural("standstill.*", says=("event",), never=("standstill.no-workers",))
def event_never_set(stage: Stage) -> Asked:
    """Tasks wait for a start signal that nobody gives."""
    client = stage.local()
    return stands_still(
        client,
        Event("start"),
        [client.submit(natural_tasks.wait_for_start, "start", key=f"race-{each}") for each in range(2)],
    )


@natural("standstill.*", "external.sigkill", says=("queue|pinned|restrict|allow_other_workers|may only run",))
def peer_of_a_dead_worker(stage: Stage) -> Asked:
    """A task waits for what a peer would send, whose worker was killed and whose task may run nowhere else."""
    client = stage.local()
    pids = client.run(os.getpid)
    first, second = pids
    sender = client.submit(
        tasks.nap, 60, stage.mark("sends"), key="send", workers=[first], allow_other_workers=False
    )
    stage.running("sends")
    receiver = client.submit(natural_tasks.consume, "gradients", key="receive", workers=[second])
    os.kill(pids[first], signal.SIGKILL)
    return stands_still(client, sender, receiver)


@natural("standstill.unschedulable", says=(r"127\.0\.0\.1:\d+",))
def pinned_to_a_worker_that_was_retired(stage: Stage) -> Asked:
    """A task may only run at an address whose worker was retired."""
    client = stage.local()
    address = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    client.retire_workers([address])
    future = client.submit(tasks.nap, 0, key="pinned", workers=[address], allow_other_workers=False)
    return stands_still(client, arrived(client, future))


@natural("standstill.unschedulable", partly=("external.sigkill",), says=(r"127\.0\.0\.1:\d+",))
def pinned_to_a_worker_that_died(stage: Stage) -> Asked:
    """A task may only run at the address of a worker that was killed; its successor has another."""
    client = stage.local()
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: (
            address not in client.scheduler_info(n_workers=-1)["workers"]
            and len(client.scheduler_info(n_workers=-1)["workers"]) == 2
        ),
        "the successor",
    )
    future = client.submit(tasks.nap, 0, key="pinned", workers=[address], allow_other_workers=False)
    return stands_still(client, arrived(client, future))


@natural("standstill.unschedulable", says=("GPU",))
def resource_nobody_has(stage: Stage) -> Asked:
    """A task asks for a resource that no worker has."""
    client = stage.local()
    return stands_still(client, arrived(client, client.submit(tasks.nap, 0, key="train", resources={"GPU": 1})))


@natural("standstill.unschedulable", says=("GPU",))
def interrupted_while_nobody_may_run_it(stage: Stage) -> Asked:
    """As before, and the author presses Ctrl-C."""
    client = stage.local()
    future = client.submit(tasks.nap, 0, key="train", resources={"GPU": 1})
    threading.Timer(4, os.kill, (os.getpid(), signal.SIGINT)).start()
    return caught(client, future.result)


@natural("standstill.unschedulable", says=("GPU",))
def no_valid_worker(stage: Stage) -> Asked:
    """As before, with a limit for the wait: NoValidWorkerError."""
    client = stage.commands(scheduler={"DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "2s"})
    future = client.submit(tasks.nap, 0, key="train", resources={"GPU": 1})
    return caught(client, lambda: future.result(timeout=20))


@natural("standstill.no-workers", says=("worker",))
def no_worker_in_time(stage: Stage) -> Asked:
    """Nobody started workers, and there is a limit for the wait: NoWorkerError."""
    stage.earlier_cluster()
    client = stage.commands(workers=0, scheduler={"DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "2s"})
    future = client.submit(tasks.nap, 0, key="train")
    return caught(client, lambda: future.result(timeout=20))


@natural("standstill.*", says=("repartition|event loop|scheduler",), needs=("numpy", "pandas", "pyarrow"))
def repartition_that_waits_for_itself(stage: Stage) -> Asked:
    """A repartition by size computes while the scheduler, in this process, reads the graph."""
    import dask.dataframe as dd
    import pandas as pd

    client = stage.local()
    frame = pd.DataFrame({"key": range(4000), "value": range(4000)})
    table = dd.from_pandas(frame, npartitions=8).repartition(partition_size="10kB")
    merged = table.merge(table, on="key")
    computing = threading.Thread(target=merged.compute, daemon=True)
    computing.start()
    asked = stands_still(client, merged)
    if not computing.is_alive():
        raise LabError("the computation ended")
    return asked


@natural("standstill.unresponsive", says=("GIL|heartbeat",))
def gil_held_everywhere(stage: Stage) -> Asked:
    """Compiled code holds the GIL on all workers."""
    client = stage.local()
    futures = [client.submit(tasks.hold_gil, 60, stage.mark(str(each)), key=f"fit-{each}") for each in range(2)]
    return stands_still(client, futures, seconds=12)


@natural("standstill.unresponsive", says=("GIL|heartbeat",))
def gil_held_on_one(stage: Stage) -> Asked:
    """Compiled code holds the GIL on one of two workers."""
    client = stage.local()
    return stands_still(client, client.submit(tasks.hold_gil, 60, key="fit"), seconds=12)


@natural("standstill.unresponsive", says=("heartbeat|event loop",))
def coroutines_that_block(stage: Stage) -> Asked:
    """Coroutines block the event loops of all workers."""
    client = stage.local()
    futures = [client.submit(tasks.block_loop, 60, key=f"fetch-{each}") for each in range(2)]
    return stands_still(client, futures, seconds=12)


@natural("standstill.unresponsive", says=("stopped|heartbeat",))
def stopped_worker(stage: Stage) -> Asked:
    """A worker process is stopped (SIGSTOP) while it works."""
    client = stage.local()
    return stands_still(client, kill_while_it_runs(stage, client, signal.SIGSTOP), seconds=12)


@natural(*RUNS, says=("simulate",))
def result_in_three_seconds(stage: Stage) -> Asked:
    """A task takes longer than ``result(timeout=3)`` waits."""
    client = stage.local()
    future = client.submit(tasks.nap, 60, stage.mark(), key="simulate")
    stage.running()
    return caught(client, lambda: future.result(timeout=3), future)


@natural(*RUNS, says=("simulate",))
def wait_for_many(stage: Stage) -> Asked:
    """``wait(futures, timeout=3)`` ends before the tasks do."""
    client = stage.local()
    futures = [client.submit(tasks.nap, 60, key=f"simulate-{each}") for each in range(4)]
    return caught(client, lambda: wait(futures, timeout=3), futures)


@natural(*RUNS, says=("simulate",))
def as_completed_in_time(stage: Stage) -> Asked:
    """``as_completed(futures, timeout=3)`` ends before the tasks do."""
    client = stage.local()
    futures = [client.submit(tasks.nap, 60, key=f"simulate-{each}") for each in range(2)]
    return caught(client, lambda: list(as_completed(futures, timeout=3)), futures)


@natural(*RUNS, "no-death", "separate", says=("simulate|run",))
def slow_tasks(stage: Stage) -> Asked:
    """Tasks take their time, and the author asks what is wrong."""
    client = stage.local()
    return stands_still(client, [client.submit(tasks.nap, 60, key=f"simulate-{each}") for each in range(4)])


@natural("standstill.none-wanted", "standstill.no-workers", says=("4",))
def too_few_workers(stage: Stage) -> Asked:
    """``wait_for_workers(4, timeout=3)`` on a cluster of two."""
    client = stage.local()
    return caught(client, lambda: client.wait_for_workers(4, timeout=3))


@natural(
    "standstill.none-wanted",
    "exit.scheduler-retired",
    "exit.scheduler-closed",
    "standstill.no-workers",
    says=("scale|asked|retire",),
    never_says=("nothing says why",),
)
def scaled_to_zero(stage: Stage) -> Asked:
    """The program scales the cluster to no workers while work waits."""
    client = stage.local()
    futures = [client.submit(tasks.nap, 60, key=f"simulate-{each}") for each in range(4)]
    client.cluster.scale(0)
    wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "the workers to leave")
    return stands_still(client, futures, seconds=2)


@natural("exit.lifetime", says=("lifetime",), never_says=("nothing says why",))
def lifetime_of_the_last_worker(stage: Stage) -> Asked:
    """All workers reach their lifetime, and work waits."""
    client = stage.commands("--lifetime", "8s")
    client.submit(tasks.nap, 0).result(timeout=PATIENCE_S)
    wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "the workers to leave")
    return stands_still(client, client.submit(tasks.nap, 0, key="late"), seconds=2)


# ----------------------------------------------------------------------- the scheduler, or the client


@natural("exit.client-restart", says=("restart",))
def restarted_by_a_colleague(stage: Stage) -> Asked:
    """Another client restarts the cluster while a task runs."""
    client = stage.local()
    future = client.submit(tasks.nap, 60, stage.mark(), key="simulate")
    stage.running()
    with Client(client.scheduler.address, set_as_default=False) as colleague:
        colleague.restart()
    return caught(client, lambda: future.result(timeout=10))


@natural("exit.scheduler-lost", says=("scheduler",))
def scheduler_killed(stage: Stage) -> Asked:
    """The scheduler is killed while a task runs."""
    client = stage.commands()
    future = client.submit(tasks.nap, 60, stage.mark(), key="simulate")
    stage.running()
    stage.lab.daemons["scheduler"].send(signal.SIGKILL)
    return caught(client, lambda: future.result(timeout=20))


@natural("exit.idle-timeout", "exit.scheduler-lost", says=("idle",))
def idle_for_too_long(stage: Stage) -> Asked:
    """The scheduler closes itself since nothing was to be done; then there is work."""
    client = stage.commands(scheduler={"DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT": "12s"})
    stage.lab.daemons["scheduler"].ended()
    time.sleep(1)
    return caught(client, lambda: client.submit(tasks.nap, 0, key="late").result(timeout=12))


# ------------------------------------------------------------------------------- ends of processes


@natural("signal.stack-overflow", partly=("signal.segfault",), says=("recursion|stack overflow|too deep",))
def stack_overflow(stage: Stage) -> Asked:
    """A task recurses too deeply, with a recursion limit that it raised itself."""
    client = stage.local()
    return caught(client, lambda: client.submit(natural_tasks.show_tree, 300_000, key="show").result(timeout=40))


@natural("code.process-exit", blames="solve")
def exits_at_once(stage: Stage) -> Asked:
    """A library calls ``os._exit``."""
    client = stage.local()
    return caught(client, lambda: client.submit(tasks.exit_at_once, 3, key="solve").result(timeout=40))


@natural("code.process-exit", blames="solve")
def exits_politely(stage: Stage) -> Asked:
    """A task calls ``sys.exit``."""
    client = stage.local()
    return caught(client, lambda: client.submit(tasks.exit_politely, 3, key="solve").result(timeout=40))


@natural("signal.segfault", blames="solve")
def segfault(stage: Stage) -> Asked:
    """Compiled code reads from address 0."""
    client = stage.local()
    return caught(client, lambda: client.submit(tasks.segfault, key="solve").result(timeout=40))


@natural("external.sigkill")
def killed_by_hand(stage: Stage) -> Asked:
    """Somebody kills a worker (``kill -9``) while it works."""
    client = stage.local()
    client.run_on_scheduler(natural_tasks.allow_no_failure)
    future = kill_while_it_runs(stage, client, signal.SIGKILL)
    return caught(client, lambda: future.result(timeout=30))


@natural("exit.sigterm")
def terminated_by_hand(stage: Stage) -> Asked:
    """Somebody terminates a worker (``kill``) while it works."""
    client = stage.local()
    futures = [client.submit(tasks.nap, 60, stage.mark("nap"), key="simulate")]
    os.kill(stage.running("nap"), signal.SIGTERM)
    return stands_still(client, futures)


@natural("external.sigkill", says=("actor|counter",))
def actor_of_a_dead_worker(stage: Stage) -> Asked:
    """The worker of an actor is killed; then the actor is called."""
    client = stage.local()
    counter = client.submit(natural_tasks.Counter, actor=True, key="counter").result(timeout=20)
    counter.increment().result(timeout=10)
    (address,) = client.who_has()["counter"]
    os.kill(client.run(os.getpid)[address], signal.SIGKILL)
    wait_until(lambda: address not in client.scheduler_info(n_workers=-1)["workers"], "the loss of the worker")
    return caught(client, lambda: counter.increment().result(timeout=10), counter)


# ------------------------------------------------------------------------------------------ helpers


def _pause(client: Client) -> None:
    """Fill both workers so that they pause, and are not killed."""
    client.run(natural_tasks.warm_up_model, 225)
    wait_until(lambda: set(statuses(client)) == {"paused"}, "the workers to pause", within_s=PATIENCE_S)


if __name__ == "__main__":
    from .natural_run import main

    main()
