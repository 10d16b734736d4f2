"""LSF: ``bjobs -l``, which forgets a job about an hour after its end (CLEAN_PERIOD), then ``bhist -l``.

The formats are those of the LSF command reference (10.1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import JobRecord, parse_batch_time, parse_size
from workerdiag.sources.batch.jobs import LSF
from workerdiag.sources.batch.source import BatchSource, split_blocks

#: The job's script, which may hold secrets.
_COMMAND = re.compile(r"Command <.*?>(?=[,;\s]*(?:\n[A-Z][a-z]{2} |$|\n\n|, [A-Z]))", re.DOTALL)
_TIMED = re.compile(r"(?m)^([A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d[^:\n]*): (.*)$")
_STARTED = re.compile(r"\b(?:Started \d|Starting \(Pid|Dispatched )|^\[\d+\] [Ss]tarted")
_ENDED = re.compile(r"\b(?:Exited|Done successfully|Completed <)")
_CANCELLED = re.compile(r"\bTERM_(?:FORCE_)?(?:OWNER|ADMIN)\b|requested by user or administrator")
_LOST = re.compile(r"\bTERM_ZOMBIE\b|unable to reach the execution host|\bTERM_MEMLIMIT\b")


class LSFSource(BatchSource):
    """Reads the records of the cluster's jobs from LSF."""

    name = "LSF"
    terms = Terms(
        lasts_s=3600.0,
        permission="own jobs",
        cost="one request to mbatchd for all jobs, and one look into its event files",
    )
    system = LSF
    lookup = ("bacct", "-l")

    def _records(self, numbers: Sequence[str]) -> list[JobRecord]:
        records = self._parse_jobs(numbers, self._output_of("bjobs", "-l", *numbers, fails=True))
        finished = {each.job for each in records if each.ended is not None or each.waiting}
        rest = [number for number in numbers if number not in finished]
        if rest:  # running jobs too: bhist has the earlier runs of a requeued job
            history = self._parse_jobs(rest, self._output_of("bhist", "-l", *rest, fails=bool(records)))
            records = [each for each in records if each.job not in {old.job for old in history}] + history
        return records

    def _parse_jobs(self, numbers: Sequence[str], output: str) -> list[JobRecord]:
        records = []
        for block in split_blocks(_COMMAND.sub("Command <...>", join_wrapped_lines(output)), ["Job <"]):
            number = block.removeprefix("Job <").partition(">")[0]
            if number in numbers:
                records.append(parse_job(number, block))
        return records


def join_wrapped_lines(text: str) -> str:
    """Return the text without the line breaks that LSF inserts at 80 columns, even within words."""
    return re.sub(r"\n {21}(?=\S)", "", text)


def parse_job(number: str, text: str) -> JobRecord:
    """Return one job's record from ``bjobs -l`` or ``bhist -l``."""
    started = ended = None
    for stamp, text_of_event in _TIMED.findall(text):
        if _STARTED.search(text_of_event):
            started, ended = parse_batch_time(stamp), None
        elif _ENDED.search(text_of_event):
            ended = parse_batch_time(stamp)
    limit = re.search(r"\bMEMLIMIT\s*\n\s*([\d.]+) ([KMGT])", text)
    used = re.search(r"\bMAX MEM: ([\d.]+) ([KMGT])", text)
    return JobRecord(
        job=number,
        text=text,
        started=started,
        ended=ended,
        cancelled=_CANCELLED.search(text) is not None,
        holds_late=_LOST.search(text) is not None,
        waiting=re.search(r"Status <(?:PEND|PSUSP)>", text) is not None,
        limit_bytes=parse_size(limit[1] + limit[2]) if limit else None,
        rss_bytes=parse_size(used[1] + used[2]) if used else None,
    )
