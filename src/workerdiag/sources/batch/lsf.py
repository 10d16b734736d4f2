"""
LSF: ``bjobs -l``, which forgets about an hour after the end (CLEAN_PERIOD), else ``bhist -l``.

Read as the LSF command reference documents them (10.1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import Record, seconds, size_bytes
from workerdiag.sources.batch.source import BatchSource, blocks
from workerdiag.sources.batch.systems import LSF

#: The job's script, which may hold secrets.
_COMMAND = re.compile(r"Command <.*?>(?=[,;\s]*(?:\n[A-Z][a-z]{2} |$|\n\n|, [A-Z]))", re.DOTALL)
_TIMED = re.compile(r"(?m)^([A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d[^:\n]*): (.*)$")
_STARTED = re.compile(r"\b(?:Started \d|Starting \(Pid|Dispatched )|^\[\d+\] [Ss]tarted")
_ENDED = re.compile(r"\b(?:Exited|Done successfully|Completed <)")
_CANCELLED = re.compile(r"\bTERM_(?:FORCE_)?(?:OWNER|ADMIN)\b|requested by user or administrator")
_LOST = re.compile(r"\bTERM_ZOMBIE\b|unable to reach the execution host|\bTERM_MEMLIMIT\b")


class LSFSource(BatchSource):
    """
    What LSF says of the cluster's jobs.
    """

    name = "LSF"
    terms = Terms(
        lasts_s=3600.0,
        permission="own jobs",
        cost="one request to mbatchd for all jobs, and one look into its event files",
    )
    system = LSF

    def _records(self, numbers: Sequence[str]) -> list[Record]:
        records = self._of(numbers, self._answer("bjobs", "-l", *numbers, fails=True))
        told = {each.job for each in records if each.ended is not None or each.waiting}
        rest = [number for number in numbers if number not in told]
        if rest:  # also of those that run: a requeued job's earlier runs stand there
            history = self._of(rest, self._answer("bhist", "-l", *rest, fails=bool(records)))
            records = [each for each in records if each.job not in {old.job for old in history}] + history
        self._missing(numbers, records, "bacct", "-l")
        return records

    def _of(self, numbers: Sequence[str], said: str) -> list[Record]:
        records = []
        for block in blocks(_COMMAND.sub("Command <...>", unwrapped(said)), ["Job <"]):
            number = block.removeprefix("Job <").partition(">")[0]
            if number in numbers:
                records.append(job_record(number, block))
        return records


def unwrapped(text: str) -> str:
    """
    The text without the line breaks that LSF puts after 80 columns, in the middle of words.
    """
    return re.sub(r"\n {21}(?=\S)", "", text)


def job_record(number: str, text: str) -> Record:
    """
    One job as ``bjobs -l`` and ``bhist -l`` show it.
    """
    started = ended = None
    for time, what in _TIMED.findall(text):
        if _STARTED.search(what):
            started, ended = seconds(time), None
        elif _ENDED.search(what):
            ended = seconds(time)
    limit = re.search(r"\bMEMLIMIT\s*\n\s*([\d.]+) ([KMGT])", text)
    used = re.search(r"\bMAX MEM: ([\d.]+) ([KMGT])", text)
    return Record(
        job=number,
        text=text,
        started=started,
        ended=ended,
        cancelled=_CANCELLED.search(text) is not None,
        holds_late=_LOST.search(text) is not None,
        waiting=re.search(r"Status <(?:PEND|PSUSP)>", text) is not None,
        limit_bytes=size_bytes(limit[1] + limit[2]) if limit else None,
        rss_bytes=size_bytes(used[1] + used[2]) if used else None,
    )
