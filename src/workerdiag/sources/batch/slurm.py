"""Slurm: ``scontrol show job``, which forgets a job minutes after its end, and the accounting's ``sacct``.

The formats are those of Slurm 22.05 (sacct and scontrol manual pages), and ``tests/lab_slurm`` runs them.
Fields that a release lacks are missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.jobs import SLURM, JobRecord, parse_batch_time, parse_size, percent_used
from workerdiag.sources.batch.source import BatchSource, split_blocks

#: Known to every sacct since 2.6.
_FIELDS = (
    "JobID,JobName,State,ExitCode,DerivedExitCode,Reason,"
    "Submit,Start,End,Elapsed,Timelimit,ReqMem,MaxRSS,NodeList,JobIDRaw"
)
_WAITING_STATES = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_LATE_STATES = ("NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")
#: A job in state COMPLETING has no final state yet, so it is queried again after this many seconds.
_ENDING_S = 0.5


class SlurmSource(BatchSource):
    """Reads the records of the cluster's jobs from Slurm's controller and accounting."""

    name = "Slurm"
    terms = Terms(
        lasts_s=300.0,  # MinJobAge of slurm.conf; the accounting keeps its part for months
        permission="own jobs; sites with PrivateData=jobs hide those of others",
        cost="one request to slurmdbd and one to slurmctld for each job, at most 16",
    )
    system = SLURM
    lookup = ("sacct", "-j")

    def _records(self, numbers: Sequence[str]) -> list[JobRecord]:
        from_controller = [each for number in numbers for each in self._controller_record(number)]
        command = ("sacct", "-j", ",".join(numbers), "--duplicates", "--parsable2", f"--format={_FIELDS}")
        from_accounting = parse_sacct(self._output_of(*command), numbers)
        return merge_runs(from_accounting, from_controller)

    def _controller_record(self, number: str) -> Iterator[JobRecord]:
        """Yield the controller's record of the latest run, once it is no longer completing."""
        for _ in range(4):
            output = self._output_of("scontrol", "show", "job", number, fails=True)
            if "JobState=COMPLETING" not in output or self._deadline.left_s < 4 * _ENDING_S:
                break
            time.sleep(_ENDING_S)
        for block in split_blocks(output, ["JobId="])[:1]:
            if number.partition("_")[0] in re.findall(r"\b(?:Array)?JobId=(\d+)", block):
                yield parse_scontrol(number, block)


def parse_scontrol(number: str, text: str) -> JobRecord:
    """Return one job's record from ``scontrol show job``."""
    fields = dict(re.findall(r"(\w+)=(\S*)", text))
    state = fields.get("JobState", "")
    running = state in ("RUNNING", "SUSPENDED")
    waiting = state in _WAITING_STATES
    memory = re.search(r"\b(?:TRES|AllocTRES|ReqTRES)=\S*\bmem=([\d.]+\w?)", text)
    return JobRecord(
        job=number,
        text=text,
        started=None if waiting else parse_batch_time(fields.get("StartTime", "")),
        ended=None if waiting or running else parse_batch_time(fields.get("EndTime", "")),
        cancelled=state == "CANCELLED",
        holds_late=state in _LATE_STATES,
        waiting=waiting,
        limit_bytes=parse_size(memory[1], unit="m") if memory else None,
        percent_of_time=percent_used(fields.get("RunTime", ""), fields.get("TimeLimit", "")),
    )


@frozen
class _SacctRow:
    line: str
    fields: dict[str, str]

    @property
    def numbers(self) -> set[str]:
        """The job's number; for an array job (``120_3``) also the one in its processes' environment."""
        return {self.fields.get(each, "").split(".")[0] for each in ("JobID", "JobIDRaw")}

    @property
    def is_step(self) -> bool:
        return "." in self.fields.get("JobID", "")

    @property
    def state(self) -> str:
        return self.fields.get("State", "").split(" ")[0]


def parse_sacct(text: str, numbers: Sequence[str]) -> list[JobRecord]:
    """Return the runs in the table of ``sacct --parsable2``; each keeps the header and its own lines."""
    head, *lines = text.splitlines() or [""]
    names = head.split("|")
    if "JobID" not in names:
        return []
    rows = [_SacctRow(line, dict(zip(names, line.split("|"), strict=False))) for line in lines if "|" in line]
    records = []
    for number in numbers:
        runs: list[list[_SacctRow]] = []
        for row in rows:
            if number in row.numbers and not row.is_step:
                runs.append([row])
            elif number in row.numbers and runs:
                runs[-1].append(row)
        records += [_job_record(number, head, run) for run in runs]
    return records


def _job_record(number: str, head: str, rows: Sequence[_SacctRow]) -> JobRecord:
    job = rows[0]
    state = job.state
    running = state in ("RUNNING", "SUSPENDED")
    used = [parse_size(row.fields.get("MaxRSS", "")) or 0 for row in rows]
    return JobRecord(
        job=number,
        text="\n".join((head, *(row.line for row in rows))),
        started=parse_batch_time(job.fields.get("Start", "")),
        ended=None if running else parse_batch_time(job.fields.get("End", "")),
        cancelled=state == "CANCELLED",
        holds_late=any(row.state in _LATE_STATES for row in rows),
        waiting=state in _WAITING_STATES,
        limit_bytes=parse_size(job.fields.get("ReqMem", ""), unit="m"),
        rss_bytes=max(used) or None,
        percent_of_time=percent_used(job.fields.get("Elapsed", ""), job.fields.get("Timelimit", "")),
    )


def merge_runs(accounted: Sequence[JobRecord], shown: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the accounting's runs, extended by what the controller shows, including runs the former lacks."""
    records = list(accounted)
    for latest in shown:
        run = (latest.job, latest.waiting, latest.started)
        same = [at for at, each in enumerate(records) if (each.job, each.waiting, each.started) == run]
        if not same:
            records.append(latest)
            continue
        known = records[same[-1]]
        records[same[-1]] = evolve(
            known,
            text=f"{known.text}\n{latest.text}",
            ended=latest.ended if latest.ended is not None else known.ended,
            cancelled=known.cancelled or latest.cancelled,
            holds_late=known.holds_late or latest.holds_late,
            waiting=latest.waiting,
            limit_bytes=known.limit_bytes or latest.limit_bytes,
        )
    return records
