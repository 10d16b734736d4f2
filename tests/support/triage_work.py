"""A triage without a cluster: each part is read in this process."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workerdiag.triage.outcome import TriageFolder
from workerdiag.triage.scan import ScanSettings, scan_part
from workerdiag.triage.tables import DeathRow, InputRow, TableFormat
from workerdiag.triage.work import TriageWork


def triage_here(
    given: Iterable[Path | str],
    folder: Path,
    *,
    form: TableFormat = "jsonl",
    storage_options: Mapping[str, object] | None = None,
    **wanted: Any,
) -> tuple[tuple[DeathRow, ...], tuple[InputRow, ...], tuple[str, ...]]:
    """Return the rows of both tables, and the notes."""
    work = TriageWork(
        folder=TriageFolder(folder, form),
        given=tuple(given),
        settings=ScanSettings(storage_options=storage_options or {}),
        memory_bytes=2**31,
        writes_tables=True,
        **wanted,
    )
    for job in work.jobs():
        work.take(job, scan_part(job[1], work.settings))
    result = work.judge()
    return result.deaths, result.inputs, result.notes


def nanny_log(deaths: int, *, seed: int = 0, calm: int = 50, signal: int = 11) -> str:
    """Return the log of a nanny whose workers die by a signal one by one, with *calm* lines between."""
    chance = random.Random(seed)
    at = 1_763_700_000 + 1000 * seed
    port = 40_000 + seed
    lines = [
        f"started by {seed} with a line that is longer than those of the cluster, so that none looks wrapped {80 * chr(46)}"
    ]
    lines += [_line(at, "worker", f"        Registered to:      tcp://10.0.0.{seed}:8786")]
    for number in range(deaths):
        pid = 1000 + 100 * seed + number
        lines += [
            _line(at + 100 * number, "nanny", f"        Start Nanny at: 'tcp://10.0.{seed}.1:{port}'")
            for _ in range(number == 0)
        ]
        lines += [
            _line(
                at + 100 * number + 1,
                "worker",
                f"      Start worker at:     tcp://10.0.{seed}.1:{port + number + 1}",
            )
        ]
        lines += [
            f"my_project - INFO - chunk {chance.randrange(10**9)} of 40000 done, {chance.randrange(10**9)} rows"
            for _ in range(calm)
        ]
        lines += [
            _line(at + 100 * number + 50, "nanny", f"Worker process {pid} was killed by signal {signal}"),
            _line(at + 100 * number + 50, "nanny", "Restarting worker", level="WARNING"),
        ]
    return "".join(f"{line}\n" for line in lines)


def _line(at: int, logger: str, message: str, *, level: str = "INFO") -> str:
    minutes, seconds = divmod(at % 86_400, 60)
    hours, minutes = divmod(minutes, 60)
    return f"2025-11-21 {hours:02d}:{minutes:02d}:{seconds:02d},000 - distributed.{logger} - {level} - {message}"
