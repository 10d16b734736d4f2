"""A cluster to break: starts the processes of a fault, waits until they are ready, and ends them all."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import dask.config
from distributed import Client, Future, LocalCluster

import workerdiag

from . import tasks
from .forked import Kind
from .kernel import LabCgroup
from .processes import PATIENCE_S, Daemon, LabError, wait_until

#: Import path with which workers find `lab.tasks` (or `tests.lab.tasks`, if the lab was started as that).
IMPORT_ROOT = Path(__file__).resolve().parents[__name__.count(".")]

#: ``--no-dashboard`` alone still binds port 8787, and warns if it is taken.
NO_DASHBOARD = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")

#: Dask gives up a task after its first death, which makes faults without repetition quick.
IMPATIENT = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
#: Time for a busy machine: what an answer and a note take is left to benchmarks.
PATIENT = {"workerdiag.explain.timeout": "30s", "workerdiag.note.timeout": PATIENCE_S}


class Lab(contextlib.ExitStack):
    """Everything that one fault starts; on exit it ends everything, newest first.

    Args:
        folder: Folder for logs, marks and spill directories.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.address = f"tcp://127.0.0.1:{_free_port()}"
        self.daemons: dict[str, Daemon] = {}
        self._nannies = False

    @property
    def logs(self) -> tuple[Path, ...]:
        """The log files of everything started so far."""
        return tuple(daemon.log for daemon in self.daemons.values())

    def scheduler(self, **env: str) -> Daemon:
        """Start ``dask scheduler`` without waiting: workers and clients wait for it."""
        host, port = self.address.removeprefix("tcp://").split(":")
        return self._start("scheduler", "--host", host, "--port", port, *NO_DASHBOARD, env=env, kind="scheduler")

    def worker(
        self,
        *options: str,
        name: str = "worker",
        nanny: bool = True,
        memory_limit: str = "0",
        local: Path | None = None,
        group: LabCgroup | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Daemon:
        """Start ``dask worker`` with one thread.

        Args:
            options: Further options of the command.
            name: Name of the worker and its log.
            nanny: Whether a nanny watches it.
            memory_limit: In the command's format; ``0`` for none.
            local: Spill directory.
            group: Memory cgroup of nanny and worker.
            env: Further environment variables.
        """
        self._nannies = self._nannies or nanny
        arguments = [
            *(self.address, "--name", name, "--nthreads", "1", *NO_DASHBOARD),
            *("--memory-limit", memory_limit, "--local-directory", str(local or self.folder / "scratch")),
            *(() if nanny else ("--no-nanny",)),
            *options,
        ]
        more = {tasks.ON_WORKER: "1", **(env or {})}
        return self._start(
            name, *arguments, env=more, kind="worker", group=group.processes if group is not None else None
        )

    def client(self, *, workers: int = 1) -> Client:
        """Return a client once this many workers are registered and their nannies know it.

        A nanny learns about 50 ms late that its worker is up. If the worker dies before, the nanny gives up
        instead of starting a new one.
        """
        try:
            client = self.enter_context(Client(self.address, timeout=PATIENCE_S, set_as_default=False))
            if workers:
                client.wait_for_workers(workers, timeout=PATIENCE_S)
        except OSError as problem:  # closed connections and time-outs, before anything was provoked
            raise LabError(f"the cluster did not start: {problem}") from problem
        if self._nannies:
            wait_until(
                lambda: set(client.run(tasks.status, nanny=True).values()) == {"running"},
                "the nannies to see their workers",
            )
        workerdiag.auto(client)
        return client

    def cluster(self, *, workers: int = 1, **config: object) -> tuple[LocalCluster, Client]:
        """Return a LocalCluster, whose nannies are in this process as in notebooks, and its client."""
        self.enter_context(dask.config.set({"temporary-directory": str(self.folder), **config}))
        cluster = self.enter_context(
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address=None,
                worker_dashboard_address=None,
            )
        )
        client = self.enter_context(Client(cluster, set_as_default=False))
        if workers:
            client.wait_for_workers(workers, timeout=PATIENCE_S)
        workerdiag.auto(client)
        return cluster, client

    def mark(self, name: str = "mark") -> str:
        """Return a file for a task to write its pid to."""
        return str(self.folder / name)

    def running(self, name: str = "mark") -> int:
        """Return the pid that the task with this mark runs in, once it runs."""
        mark = Path(self.mark(name))
        wait_until(mark.exists, f"the task to write {mark}")
        return int(mark.read_text())

    def import_path(self, *folders: Path) -> str:
        """Return a ``PYTHONPATH`` that also contains *folders*."""
        return os.pathsep.join([*map(str, folders), _environment()["PYTHONPATH"]])

    def _start(
        self,
        name: str,
        *arguments: str,
        env: Mapping[str, str],
        kind: Kind,
        group: Path | None = None,
    ) -> Daemon:
        log = self.folder / f"{name}.log"
        whole = {**_environment(), "DASK_TEMPORARY_DIRECTORY": str(self.folder), **env}
        if group is None and all(each.startswith(("DASK_", "WORKERDIAG_")) for each in env):
            daemon = Daemon.forked(kind, arguments, log=log, env=whole)
        else:  # what is imported, or how, may differ
            command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
            daemon = Daemon(command, log=log, env=whole, group=group)
        self.callback(daemon.close)
        self.daemons[name] = daemon
        return daemon


def raised(future: Future, *, within_s: float = PATIENCE_S) -> BaseException:
    """Return the exception of a future's result."""
    wait_until(future.done, f"an end of {future.key}", within_s=within_s)
    try:
        future.result()
    except BaseException as problem:  # CancelledError is not an Exception
        return problem
    raise LabError(f"{future.key} did not fail")


def arrived(client: Client, future: Future) -> Future:
    """Return *future* once the scheduler knows it: tasks and requests use different connections."""
    wait_until(lambda: client.run_on_scheduler(tasks.known, future.key), f"the scheduler to know {future.key}")
    return future


def _environment() -> dict[str, str]:
    """Return our environment without Dask's configuration."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    paths = [str(IMPORT_ROOT), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
