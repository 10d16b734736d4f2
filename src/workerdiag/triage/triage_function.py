"""``workerdiag.triage()``: the function that users call."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from workerdiag.errors import TriageError
from workerdiag.model.dask import Method
from workerdiag.model.rules import Rulebook
from workerdiag.triage.outcome import TriageFolder
from workerdiag.triage.parts import PART_BYTES
from workerdiag.triage.tables import TableFormat, check_form
from workerdiag.triage.work import Progress, TriagePlan, TriageResult, TriageWork
from workerdiag.units import parse_bytes

if TYPE_CHECKING:
    from distributed import Client

#: Fraction of the threads of a cluster, which may have other work.
SHARE: Final = 0.5
#: Memory limit of a suspect's process. A search takes 200 MiB, a file that unpacks badly some more.
SUSPECT_MEMORY: Final = "2 GiB"


def triage(  # noqa: PLR0913  all but one have defaults
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    client: Client | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    form: TableFormat = "parquet",
    runs: str | None = None,
    rulebook: Rulebook | None = None,
    share: float = SHARE,
    part_bytes: int = PART_BYTES,
    suspect_memory: str = SUSPECT_MEMORY,
    storage_options: Mapping[str, object] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> TriageResult:
    """Find all deaths of workers in many logs, on the workers of a Dask cluster.

    A part that cannot be read becomes a row of the inputs and affects nothing else. With *output* the work
    can be killed at any time. The same call resumes it, and reads again only what failed or has changed.

    Args:
        urls: Paths, folders with all below them, patterns, and URLs that fsspec opens on the workers.
        client: A client of the cluster that does the work; its workers need workerdiag. None starts a
            temporary cluster on this machine.
        output: A folder for the tables ``deaths`` and ``inputs``, which are updated while the work runs.
        form: The format of the tables: ``parquet`` (needs pyarrow), ``csv`` or ``jsonl``.
        runs: The beginning of URLs with ``*`` for a name, e.g. ``s3://logs/*/``. Logs for which ``*`` matches
            the same text belong to one cluster run. None groups logs that name one scheduler at overlapping
            times.
        rulebook: The rules to use. None uses the shipped knowledge and installed packs.
        share: The fraction of each worker's threads, from 0 to 1, that triage may use; at least one thread.
        part_bytes: Bytes of a file that one task reads.
        suspect_memory: The memory limit of the process in which a part is read again after its worker died.
        storage_options: Options for fsspec.
        on_progress: Called with a `Progress` after each part; its `result()` returns what is known by then.

    Returns:
        The rows of both tables, sorted, with their summary.

    Raises:
        TriageError: The client is closed, there are no workers, or their workerdiag differs.
        TableError: The tables cannot be written.
        TypeError: The client is asynchronous, or *urls* are not paths.
        ValueError: An argument has an invalid value.
    """
    memory_bytes = parse_bytes(suspect_memory)
    if not 0 < share <= 1 or part_bytes < 1 or memory_bytes is None:
        raise ValueError(
            "share is above 0 and at most 1, part_bytes at least 1, suspect_memory a size like '2 GiB'"
        )
    if getattr(client, "asynchronous", False):
        raise TypeError("triage needs a client that is not asynchronous: run it in a thread with a separate client")
    if getattr(client, "status", "") == "closed":
        raise TriageError("the client is closed", "give an open one, or none for a cluster on this machine")
    if output is not None:
        check_form(form)
    if not isinstance(urls, str | os.PathLike | Iterable):
        raise TypeError(f"urls must be paths, folders, patterns or URLs of logs, got {type(urls).__name__}")
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    if not given:
        raise ValueError("there is nothing to read: give paths, folders, patterns or URLs of logs")
    with ExitStack() as stack:
        kept = output or stack.enter_context(tempfile.TemporaryDirectory(prefix="workerdiag-triage-"))
        plan = TriagePlan(
            given=tuple(given),
            folders=runs,
            rulebook=rulebook,
            part_bytes=part_bytes,
            share=share if client is not None else 1.0,
            memory_bytes=memory_bytes,
            storage_options=dict(storage_options or {}),
            on_progress=on_progress or (lambda _: None),
            writes_tables=output is not None,
        )
        work = TriageWork(plan, TriageFolder(Path(kept), form))
        if work.jobs():
            client = client or stack.enter_context(_local_client())
            work.read(client)
        result = work.judge(client)
        work.forget_others()
        return result


@contextmanager
def _local_client() -> Iterator[Client]:
    """Yield a client of a cluster on this machine, with a process for each core."""
    import distributed

    start, connect = cast("Method", distributed.LocalCluster), cast("Method", distributed.Client)
    try:
        # hide what its workers log when they end; triage reports why they die
        with _interrupts_ignored():
            cluster = start(threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL)
    except RuntimeError as problem:
        remedy = 'call it below `if __name__ == "__main__":`, or give a client'
        raise TriageError(f"no cluster could be started on this machine: {problem}", remedy) from problem
    with cluster, connect(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Make processes that start meanwhile ignore Ctrl-C: this process handles it for all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
