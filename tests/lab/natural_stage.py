"""Where a natural program runs: a small cluster, if wanted one in which a worker has died before."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from distributed import Client, Future, LocalCluster

from . import natural_tasks, tasks
from .cluster import Lab
from .kernel import small_disk
from .processes import LabError, wait_until

#: A few times the memory of Python with Dask.
LIMIT = "350MB"
#: How long to wait for anything that a healthy cluster does.
PATIENCE_S = 40.0
#: How long a user waits before he asks why nothing happens.
STANDSTILL_S = 7.0


@frozen(kw_only=True)
class Asked:
    """What the author of the program hands to ``workerdiag.explain``."""

    exc: BaseException | None = None
    client: Client | None = None
    #: Held until the question is answered: futures, which Dask would forget, locks, actors.
    held: Sequence[Any] = ()


class Stage(contextlib.ExitStack):
    """Starts clusters for one program.

    Args:
        folder: Folder for everything that the program writes.
        after_death: Whether each cluster has lost a worker before the program begins.
        recorded: Whether the flight recorder is installed.
    """

    def __init__(self, folder: Path, *, after_death: bool, recorded: bool) -> None:
        super().__init__()
        self.folder = folder
        self.lab = self.enter_context(Lab(folder))
        self._after_death = after_death
        self._recorded = recorded

    def local(
        self,
        *,
        workers: int = 2,
        threads: int = 1,
        memory_limit: str | int = LIMIT,
        can_die: bool = True,
        **options: Any,
    ) -> Client:
        """Return the client of a LocalCluster, as in notebooks.

        Args:
            workers: How many.
            threads: Of each worker.
            memory_limit: Of each worker.
            can_die: Whether the earlier death may be in this cluster; if not, see `earlier_cluster`.
            options: Further arguments of `LocalCluster`.
        """
        cluster = self.enter_context(
            self._local(workers=workers, threads=threads, memory_limit=memory_limit, **options)
        )
        client = self.enter_context(Client(cluster))
        return self._ready(client, workers, can_die=can_die)

    def commands(
        self,
        *options: str,
        workers: int = 2,
        nanny: bool = True,
        memory_limit: str = LIMIT,
        env: dict[str, str] | None = None,
        scheduler: dict[str, str] | None = None,
    ) -> Client:
        """Return the client of ``dask scheduler`` and some ``dask worker``."""
        if not nanny:
            self.earlier_cluster()
        self.lab.scheduler(**(scheduler or {}))
        for number in range(workers):
            self.lab.worker(
                *options, name=f"worker-{number}", nanny=nanny, memory_limit=memory_limit, env=env or {}
            )
        client = self.enter_context(Client(self.lab.address, timeout=PATIENCE_S))
        return self._ready(client, workers, can_die=nanny and workers > 0)

    def earlier_cluster(self) -> None:
        """If wanted, lose a worker of another cluster of this process, and close that cluster."""
        if self._after_death:
            with self._local() as cluster, Client(cluster, set_as_default=False) as client:
                self._lose_worker(client, 2)

    def mark(self, name: str = "mark") -> str:
        """Return a file for a task to write its pid to."""
        return self.lab.mark(name)

    def running(self, name: str = "mark") -> int:
        """Return the pid that the task with this mark runs in, once it runs."""
        return self.lab.running(name)

    def small_disk(self, megabytes: int) -> Path:
        """Return a disk that fills up soon."""
        return self.enter_context(small_disk(self.folder / "disk", size_bytes=megabytes * 2**20))

    def module(self, name: str, text: str, *, folder: str = "project", on_client: bool = True) -> Path:
        """Write a module, and make it importable here; return its folder."""
        home = self.folder / folder
        home.mkdir(exist_ok=True)
        (home / f"{name}.py").write_text(text)
        if on_client:
            sys.path.insert(0, str(home))
        return home

    def _local(
        self, *, workers: int = 2, threads: int = 1, memory_limit: str | int = LIMIT, **options: Any
    ) -> LocalCluster:
        options = {"local_directory": str(self.folder / "scratch"), **options}
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=memory_limit,
            dashboard_address=None,
            worker_dashboard_address=None,
            **options,
        )

    def _ready(self, client: Client, workers: int, *, can_die: bool) -> Client:
        if workers:
            client.wait_for_workers(workers, timeout=PATIENCE_S)
        if self._recorded:
            import workerdiag

            workerdiag.install(client)
        if self._after_death and can_die:
            self._lose_worker(client, workers)
        return client

    def _lose_worker(self, client: Client, workers: int) -> None:
        """Have a nanny kill one worker for its memory; its task succeeds elsewhere, and a new worker comes."""
        _nannies_know(client)
        mark = str(self.folder / f"earlier-{time.monotonic_ns()}")
        before = set(_workers(client))
        future = client.submit(natural_tasks.load_lookup_table, mark, key="load-lookup-table")
        if future.result(timeout=PATIENCE_S) != "loaded":
            raise LabError("the earlier death did not happen")
        wait_until(
            lambda: len(_workers(client)) >= workers and set(_workers(client)) != before,
            "a worker in place of the dead one",
            within_s=PATIENCE_S,
        )
        _nannies_know(client)
        future.release()


def caught(client: Client | None, act: Callable[[], object], *held: Any) -> Asked:
    """Return what the author has once *act* has failed.

    Raises:
        LabError: It did not fail.
    """
    try:
        result = act()
    except BaseException as problem:  # CancelledError and KeyboardInterrupt are no Exceptions
        return Asked(exc=problem, client=client, held=held)
    raise LabError(f"the program did not fail, but returned {str(result)[:80]}")


def stands_still(client: Client, *held: Any, seconds: float = STANDSTILL_S) -> Asked:
    """Return what the author has who looks at work that makes no progress for a while."""
    time.sleep(seconds)
    return Asked(client=client, held=held)


def nobody_listens() -> str:
    """Return an address of this machine where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def kill_while_it_runs(stage: Stage, client: Client, number: signal.Signals) -> Future:
    """Return a task whose worker process got a signal from outside while it ran."""
    future = client.submit(tasks.nap, 60, stage.mark("nap"), key="simulate")
    os.kill(stage.running("nap"), number)
    return future


def worker_of(client: Client, key: str) -> str:
    """Return the address of the worker that runs a task."""
    return wait_until(
        lambda: next((worker for worker, keys in client.processing().items() if key in keys), ""),
        f"a worker to run {key}",
    )


def statuses(client: Client) -> list[str]:
    """Return the status of each worker."""
    return [str(each["status"]) for each in _workers(client).values()]


def _workers(client: Client) -> dict[str, Any]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])


def _nannies_know(client: Client) -> None:
    """Wait until the nannies know that their workers are up; a death before that is another story."""

    def ask() -> bool:
        try:
            return set(client.run(tasks.status, nanny=True).values()) == {"running"}
        except OSError:
            return False

    wait_until(ask, "the nannies to see their workers", within_s=PATIENCE_S)
