"""How close to its budget each shipped source comes when whom it asks hangs: the goal is a tenth more.

Servers accept and say nothing, commands sleep, a nanny does not answer, nobody writes to a pipe. The worst of
three tries counts; the first also loads what the source needs. A source whose package is not installed is
named on standard error and has no row.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

from rows import Row, publish, seconds, timed
from silent_peers import environment, makers, silent_client, silent_port

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, EvidenceSource, Gap, LogText
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Victim
from workerdiag.sources.host.probes import kernel, machine
from workerdiag.sources.host.respondents import find_locations
from workerdiag.sources.host.source import HostSource
from workerdiag.sources.logs.source import LogSource
from workerdiag.sources.registry import SHIPPED
from workerdiag.testing import HOSTILE_BEHAVIOURS, hostile_server

BUDGET_S = 1.0
TRIES = 3
Make = Callable[[], EvidenceSource]


def rows() -> Iterator[Row]:
    """One for each source, then for parts of them that have a time of their own."""
    with tempfile.TemporaryDirectory() as folder, silent_port() as url, ExitStack() as opened:
        opened.enter_context(patch.dict(os.environ, environment(url, Path(folder))))
        known = makers(url, Path(folder))
        for name in (each.name for each in SHIPPED):
            if name != "LogDirectorySource":  # it waits for nobody, and has a row of its own
                yield from of_source(name, known[name])
        yield from of_source("LogSource", lambda: LogSource([pipe(opened)]))
        yield two_inputs(pipe(opened))
        yield many_files(known["LogDirectorySource"], Path(folder, "logs"))
        yield from of_the_host()
    yield from of_hostile_servers(known)


def of_source(name: str, make: Make) -> Iterator[Row]:
    """Seconds that a source takes while all that it asks hangs; none where its package is not installed."""
    tries = [time_source(make, BUDGET_S) for _ in range(TRIES)]
    for _, pieces in tries:
        reasons = {each.reason for each in pieces if isinstance(each, Gap)}
        if reasons == {"not-installed"}:
            print(f"{name}: not measured, its package is not installed", file=sys.stderr)
            return
        assert "timed-out" in reasons, f"{name} did not wait for anybody: {pieces}"
    yield seconds(f"{name}, whom it asks hangs, budget {BUDGET_S:g} s", max(tries)[0], 1.1 * BUDGET_S)


def time_source(make: Make, budget_s: float) -> tuple[float, list[Evidence]]:
    """Seconds that asking takes, and what is said."""
    source = make()
    began = time.perf_counter()
    pieces = list(source.collect(budget_s=budget_s))
    return time.perf_counter() - began, pieces


def pipe(opened: ExitStack) -> object:
    """The reading end of a pipe that nobody writes to."""
    out, into = os.pipe()
    opened.callback(os.close, into)
    return opened.enter_context(os.fdopen(out, "rb", buffering=0))


def two_inputs(silent: object) -> Row:
    """A pipe is left alone after its share of the time, where another input waits."""
    taken_s, pieces = time_source(lambda: LogSource([silent, LogText("distributed.nanny - INFO - x\n")]), 2.5)
    assert len(pieces) > 1, "the other input was not read"
    return seconds("LogSource, a pipe that nobody writes to and a text, budget 2.5 s", taken_s, 2.0)


def many_files(make: Make, folder: Path) -> Row:
    """The output of one job is looked for among that of all jobs of a year."""
    for number in range(10_000):
        (folder / f"dask-worker-{number + 100}.err").touch()
    (folder / "dask-worker-17.err").write_text("distributed.worker - INFO - x\n")
    taken_s, pieces = time_source(make, BUDGET_S)
    assert not any(isinstance(each, Gap) for each in pieces), pieces
    return seconds(f"LogDirectorySource, 10,000 files, budget {BUDGET_S:g} s", taken_s, 1.1 * BUDGET_S)


def of_the_host() -> Iterator[Row]:
    """The machine that we run on, asked in this process, and the parts of its answer that may hang."""
    dead = Victim(identity=Identity(worker="tcp://127.0.0.1:1", pid=2**22 + 5, host="127.0.0.1"), when=time.time())
    places, _ = find_locations(None, [dead], Deadline.after(BUDGET_S))
    scene = Scene(victims=(dead,), locations=tuple(places))
    taken_s, _ = time_source(partial(HostSource, scene), BUDGET_S)
    yield seconds(f"HostSource, this machine, budget {BUDGET_S:g} s", taken_s, BUDGET_S)
    away = Victim(identity=Identity(worker="tcp://10.0.0.7:5", nanny="tcp://10.0.0.7:41001", host="10.0.0.7"))
    client = silent_client()
    yield seconds(
        "where the dead lived, nobody answers, given 0.5 s",
        timed(lambda: find_locations(client, [away], Deadline.after(0.5))),
        0.7,
    )
    with patch.object(machine, "_disk_space", lambda _: time.sleep(10)):
        budget = {"pids": [], "budget_s": 0.3}
        yield seconds("a machine whose disks hang, given 0.3 s", timed(lambda: machine.read(budget)), 1.0)
    with (
        patch.object(kernel, "_kmsg", unreadable),
        patch.object(kernel, "_klogctl", unreadable),
        patch.object(kernel, "SYSTEMD", "/"),
        patch.object(kernel, "_SYSLOG_FILES", ()),
    ):
        budget = {"since_s": 60, "budget_s": 0.3}
        yield seconds("a journal that hangs, given 0.3 s", timed(lambda: kernel.read(budget)), 1.0)


def of_hostile_servers(known: dict[str, Make]) -> Iterator[Row]:
    """Servers that answer, badly, are left before the time is up."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for behaviour in (each for each in HOSTILE_BEHAVIOURS if each != "hangs"):
            with hostile_server(behaviour) as url, patch.dict(os.environ, environment(url, Path(folder))):
                taken.append(time_source(known["KubernetesSource"], 10.0)[0])
        yield seconds("KubernetesSource, servers that answer badly, the slowest", max(taken), 5.0)
        with hostile_server("floods") as url, patch.dict(os.environ, environment(url, Path(folder))):
            taken_s, _ = time_source(known["Ec2Source"], 5.0)
        yield seconds("Ec2Source, an answer of 100 MB, budget 5 s", taken_s, 5.5)


def unreadable(*_: object) -> None:
    """As kernel.dmesg_restrict makes the kernel log."""
    raise PermissionError(1, "Operation not permitted")


if __name__ == "__main__":
    publish(rows())
    sys.stdout.flush()
    os._exit(0)  # SDKs that were left behind would be waited for
