"""
``workerdiag.triage()``: the function that users call.
"""

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
from workerdiag.triage.folder import TriageFolder
from workerdiag.triage.parts import PART_BYTES
from workerdiag.triage.result import TriageResult
from workerdiag.triage.table_forms import TableFormat, check_form
from workerdiag.triage.work import Progress, TriagePlan, TriageWork
from workerdiag.units import parse_bytes

if TYPE_CHECKING:
    from distributed import Client

#: Of the threads of a cluster that has other things to do.
SHARE: Final = 0.5
#: What the process of a suspect may have: a search takes 200 MiB, a file that unpacks badly some more.
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
    """
    Find all deaths of workers in many logs, on the workers of a Dask cluster.

    A part that cannot be read is a row of the inputs, and costs nothing else. With *output* the work can
    be killed at any time: the same call goes on from there, and reads again only what failed or has changed.

    Args:
        urls: Paths, folders with all below them, patterns, and URLs that fsspec opens on the workers.
        client: Of the cluster that does the work, whose workers have workerdiag installed; None: one on this
            machine is started for the time.
        output: A folder for the tables ``deaths`` and ``inputs``, which hold what is known so far.
        form: Of the tables: ``parquet`` (needs pyarrow), ``csv`` or ``jsonl``.
        runs: The beginning of URLs with ``*`` for a name, e.g. ``s3://logs/*/``: logs for which it stands for
            the same text are of one cluster run. None: those that name one scheduler at overlapping times.
        rulebook: The rules to use; None: the shipped knowledge and installed packs.
        share: Of each worker's threads, from 0 to 1, at least one, that may be busy with this.
        part_bytes: Bytes of a file that one task reads.
        suspect_memory: What a process may have in which a part is read again whose worker died.
        storage_options: For fsspec.
        on_progress: Is called with a `Progress` after each part; its `result()` is what is known by then.

    Returns:
        The rows of both tables, sorted, with their summary.

    Raises:
        TriageError: The client is closed, there are no workers, or they have not the same workerdiag.
        TableError: The tables cannot be written.
        TypeError: The client is asynchronous, or *urls* are no paths.
        ValueError: An argument has a value that makes no sense.
    """
    memory_bytes = parse_bytes(suspect_memory)
    if not 0 < share <= 1 or part_bytes < 1 or memory_bytes is None:
        raise ValueError(
            "share is above 0 and at most 1, part_bytes at least 1, suspect_memory as in '2 GiB'"
        )
    if getattr(client, "asynchronous", False):
        raise TypeError(
            "triage needs a client that is not asynchronous: run it in a thread with one of its own"
        )
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
    """
    A client of a cluster on this machine, with a process for each core.
    """
    import distributed

    start, connect = cast("Method", distributed.LocalCluster), cast("Method", distributed.Client)
    try:
        # what its workers log of their end is no news, and what they die of is told
        with _interrupts_ignored():
            cluster = start(
                threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
            )
    except RuntimeError as problem:
        remedy = 'call it below `if __name__ == "__main__":`, or give a client'
        raise TriageError(f"no cluster could be started on this machine: {problem}", remedy) from problem
    with cluster, connect(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """
    Processes that are started meanwhile ignore Ctrl-C: this one answers it for all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
