"""Grid Engine: ``qacct`` for finished jobs, ``qstat -j`` for the others.

The formats are those of Son of Grid Engine 8.1.9 (accounting(5), qacct(1)).
Univa's and Altair's write times differently.
"""

from __future__ import annotations

import re

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import JobRecord, parse_batch_time, parse_size, percent_used
from workerdiag.sources.batch.jobs import GRID_ENGINE
from workerdiag.sources.batch.source import BatchSource

#: The submitter's environment, which may hold secrets.
_SGE_PRIVATE = re.compile(r"(?m)^(?:env_list|job_args|context|sge_o_path):.*(?:\n|$)")
_RULE = re.compile(r"(?m)^={20,}$")


class GridEngineSource(BatchSource):
    """Reads the records of the cluster's jobs from Grid Engine."""

    name = "Grid Engine"
    terms = Terms(
        permission="reading $SGE_ROOT/$SGE_CELL/common/accounting",
        cost="qacct reads the whole accounting file for each job, at most 16",
    )
    system = GRID_ENGINE
    lookup = ("qacct", "-j")

    def _runs(self, number: str) -> list[JobRecord]:
        output = self._output_of("qacct", "-j", number, fails=True)
        if found := [record for block in _RULE.split(output) if (record := parse_qacct(number, block))]:
            return found
        output = self._output_of("qstat", "-j", number, fails=True)
        is_own = re.search(rf"(?m)^job_number: +{number.partition('.')[0]}$", output)
        return [parse_sge_qstat(number, output)] if is_own else []


def parse_qacct(number: str, text: str) -> JobRecord | None:
    """Return one run's record from ``qacct -j``; None if the text has none, or is of another job."""
    fields = dict(re.findall(r"(?m)^(\w+) +(.*?) *$", text))
    job, _, task = number.partition(".")
    if fields.get("jobnumber") != job or (task and fields.get("taskid") != task):
        return None
    wanted = dict(re.findall(r"\b(h_rt|h_vmem|mem_free|m_mem_free)=([\w.:]+)", fields.get("category", "")))
    failed = fields.get("failed", "")
    deleted_by = fields.get("deleted_by", "NONE")
    return JobRecord(
        job=number,
        text=text.strip(),
        started=parse_batch_time(fields.get("start_time", "")),
        ended=parse_batch_time(fields.get("end_time", "")),
        cancelled=deleted_by not in ("NONE", "") or failed.startswith("100"),
        holds_late=failed.startswith("25 "),
        limit_bytes=parse_size(wanted.get("h_vmem", "") or wanted.get("m_mem_free", "")),
        rss_bytes=parse_size(fields.get("maxrss", "")),  # Univa's; maxvmem is address space
        percent_of_time=percent_used(fields.get("ru_wallclock", ""), wanted.get("h_rt", "")),
    )


def parse_sge_qstat(number: str, text: str) -> JobRecord:
    """Return the record of an unfinished job from ``qstat -j``."""
    running = re.search(r"(?m)^usage +\d+: ", text) is not None
    return JobRecord(job=number, text=_SGE_PRIVATE.sub("", text), waiting=not running)
