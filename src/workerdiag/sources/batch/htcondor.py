"""HTCondor: ``condor_q`` for jobs in the queue, including held ones, and ``condor_history`` for the others.

The formats are those of the HTCondor manual (job ClassAd attributes, 23.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import JobRecord, percent_used
from workerdiag.sources.batch.jobs import HTCONDOR
from workerdiag.sources.batch.source import BatchSource

_ATTRIBUTES = (
    "ClusterId,ProcId,JobStatus,JobCurrentStartDate,JobStartDate,EnteredCurrentStatus,CompletionDate,"
    "ExitBySignal,ExitSignal,ExitCode,RemoveReason,HoldReason,HoldReasonCode,HoldReasonSubCode,"
    "LastHoldReason,VacateReason,NumJobStarts,LastRemoteHost,RequestMemory,MemoryUsage,"
    "RemoteWallClockTime,AllowedExecuteDuration,AllowedJobDuration"
)
#: Values of JobStatus.
_IDLE, _RUNNING = "1", ("2", "6", "7")


class HTCondorSource(BatchSource):
    """Reads the records of the cluster's jobs from HTCondor's schedd."""

    name = "HTCondor"
    terms = Terms(
        permission="own jobs, on the access point that they were submitted from", cost="two queries"
    )
    system = HTCONDOR
    lookup = ("condor_history", "-long")

    def _records(self, numbers: Sequence[str]) -> list[JobRecord]:
        options = ("-long", "-attributes", _ATTRIBUTES)
        records = _parse_jobs(numbers, self._output_of("condor_q", *numbers, *options, fails=True))
        known = {record.job for record in records}
        if left := [each for each in numbers if each not in known]:
            output = self._output_of("condor_history", *left, *options, "-limit", str(len(left)), fails=True)
            records += _parse_jobs(left, output)
        self._note_missing_jobs(numbers, records)  # before _with_analysis runs more commands
        return [self._with_analysis(each) if each.waiting else each for each in records]

    def _with_analysis(self, record: JobRecord) -> JobRecord:
        why = self._output_of("condor_q", "-better-analyze", record.job, fails=True)
        return evolve(record, text=f"{record.text}\n\n{why}")


def _parse_jobs(numbers: Sequence[str], output: str) -> list[JobRecord]:
    """Return the records of the requested jobs; a number without a process (``881``) means process 0."""
    found = []
    for block in re.split(r"\n\s*\n", output):
        fields = dict(re.findall(r"(?m)^(\w+) = (.*)$", block))
        whole = f"{fields.get('ClusterId')}.{fields.get('ProcId', '0')}"
        number = next((each for each in numbers if whole in (each, f"{each}.0")), None)
        if number is not None:
            found.append(parse_classad(number, block, fields))
    return found


def parse_classad(number: str, text: str, fields: dict[str, str]) -> JobRecord:
    """Return one job's record from its ClassAd."""
    status = fields.get("JobStatus", "")
    ended = fields.get("EnteredCurrentStatus") or fields.get("CompletionDate")
    limit, used = (_positive_or_none(fields.get(each)) for each in ("RequestMemory", "MemoryUsage"))  # MiB
    allowed = fields.get("AllowedExecuteDuration") or fields.get("AllowedJobDuration") or ""
    return JobRecord(
        job=number,
        text=text,
        started=_positive_or_none(fields.get("JobCurrentStartDate") or fields.get("JobStartDate")),
        ended=None if status in (_IDLE, *_RUNNING) else _positive_or_none(ended),
        cancelled="via condor_rm" in fields.get("RemoveReason", ""),
        holds_late="memory" in fields.get("HoldReason", "").lower(),
        waiting=status == _IDLE and "JobStartDate" not in fields,
        limit_bytes=int(limit * 2**20) if limit else None,
        rss_bytes=int(used * 2**20) if used else None,
        percent_of_time=percent_used(fields.get("RemoteWallClockTime", ""), allowed),
    )


def _positive_or_none(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d+(?:\.\d+)?", text) and float(text) else None
