"""PBS Professional, OpenPBS and Torque: ``qstat`` with finished jobs, then ``tracejob``.

The formats are those of the manual pages (qstat(1B), pbs_job_attributes(7B), tracejob(8)).
"""

from __future__ import annotations

import re

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import JobRecord, parse_batch_time, parse_size, percent_used
from workerdiag.sources.batch.jobs import PBS
from workerdiag.sources.batch.source import BatchSource, split_blocks

#: The submitter's environment, which may hold secrets.
_PBS_PRIVATE = re.compile(r"(?im)^ +(?:Variable_List|Submit_arguments|argument_list|executable) = .*(?:\n|$)")
_TRACED = re.compile(r"(?m)^\d\d/\d\d/\d{4} ")
#: 256 plus the signal that ended the job's shell (pbs_job_attributes(7B)): SIGTERM, SIGKILL.
_ENDED_BY_ORDER = ("271", "265")


class PBSSource(BatchSource):
    """Reads the records of the cluster's jobs from a PBS server."""

    name = "PBS"
    terms = Terms(
        lasts_s=300.0,  # Torque's keep_completed as it is often set; job_history_duration of PBS is two weeks
        permission="own jobs; tracejob reads the server's logs, mostly for administrators on its machine",
        cost="one request to the PBS server for each job, at most 16",
    )
    system = PBS
    lookup = ("qstat", "-x", "-f")

    def _runs(self, number: str) -> list[JobRecord]:
        output = self._output_of("qstat", "-x", "-f", number, fails=True)
        if "<Data>" in output[:200]:  # in Torque -x means XML
            output = self._output_of("qstat", "-f", number, fails=True)
        without_server = number.removeprefix("Moab.").partition(".")[0]
        own = re.compile(rf"Job Id: (?:Moab\.)?{re.escape(without_server)}(?!\d)")
        found = [each for each in split_blocks(output, ["Job Id:"]) if own.match(each)]
        if found:
            return [parse_pbs_qstat(number, each) for each in found]
        output = self._output_of("tracejob", "-n", "3", number, fails=True)
        return [parse_tracejob(number, output)] if _TRACED.search(output) else []


def parse_pbs_qstat(number: str, text: str) -> JobRecord:
    """Return one job's record from ``qstat -f``."""
    text = re.sub(r"\n\t", "", text)  # long values continue after a tab
    text = _PBS_PRIVATE.sub("", text)
    fields = {key.lower(): value.strip() for key, value in re.findall(r"(?m)^ +([\w.]+) = (.*)$", text)}
    over = fields.get("job_state") in ("F", "C", "X")
    ended = next((fields[each] for each in ("obittime", "comp_time", "mtime") if each in fields), "")
    status = fields.get("exit_status", "")
    return JobRecord(
        job=number,
        text=text,
        started=parse_batch_time(fields.get("stime") or fields.get("start_time") or ""),
        ended=parse_batch_time(ended) if over else None,
        cancelled=status in _ENDED_BY_ORDER and "exceeded" not in text,
        waiting=fields.get("job_state") in ("Q", "H", "W"),
        limit_bytes=parse_size(fields.get("resource_list.mem", "")),
        rss_bytes=parse_size(fields.get("resources_used.mem", "")),
        percent_of_time=percent_used(
            fields.get("resources_used.walltime", ""), fields.get("resource_list.walltime", "")
        ),
    )


def parse_tracejob(number: str, text: str) -> JobRecord:
    """Return one job's record from the server's logs."""
    times: dict[str, float | None] = {"Job Run": None, "Exit_status": None}
    for line in text.splitlines():
        for words in times:
            if words in line:
                times[words] = parse_batch_time(line)
    used = re.search(r"resources_used\.mem=\s*(\S+)", text)
    return JobRecord(
        job=number,
        text=text,
        started=times["Job Run"],
        ended=times["Exit_status"],
        cancelled="Job deleted" in text or "delete job request" in text,
        waiting=times["Job Run"] is None and "Job Queued" in text,
        rss_bytes=parse_size(used[1]) if used else None,
    )
