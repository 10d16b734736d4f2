"""The batch systems beside Slurm: the commands of each, and its records of jobs.

- PBS Professional, OpenPBS and Torque: ``qstat`` with finished jobs, then ``tracejob`` (qstat(1B),
  pbs_job_attributes(7B), tracejob(8)).
- LSF (command reference 10.1): ``bjobs -l``, which forgets a job about an hour after its end (CLEAN_PERIOD), then
  ``bhist -l``.
- Grid Engine (Son of Grid Engine 8.1.9, accounting(5), qacct(1); Univa's and Altair's write times differently):
  ``qacct`` for finished jobs, ``qstat -j`` for the others.
- OAR (oarstat(1) and source, 2.5): ``oarstat`` for a job and its events.
- HTCondor (manual 23.0, job ClassAd attributes): ``condor_q`` for jobs in the queue, including held ones, and
  ``condor_history`` for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import evolve

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.jobs import (
    GRID_ENGINE,
    HTCONDOR,
    LSF,
    OAR,
    PBS,
    JobRecord,
    parse_batch_time,
    parse_size,
    percent_used,
)
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
    status, spent = fields.get("exit_status", ""), fields.get("resources_used.walltime", "")
    return JobRecord(
        job=number,
        text=text,
        started=parse_batch_time(fields.get("stime") or fields.get("start_time") or ""),
        ended=parse_batch_time(ended) if over else None,
        cancelled=status in _ENDED_BY_ORDER and "exceeded" not in text,
        waiting=fields.get("job_state") in ("Q", "H", "W"),
        limit_bytes=parse_size(fields.get("resource_list.mem", "")),
        rss_bytes=parse_size(fields.get("resources_used.mem", "")),
        percent_of_time=percent_used(spent, fields.get("resource_list.walltime", "")),
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
        output = re.sub(r"\n {21}(?=\S)", "", output)  # LSF breaks lines at 80 columns, even within words
        for block in split_blocks(_COMMAND.sub("Command <...>", output), ["Job <"]):
            number = block.removeprefix("Job <").partition(">")[0]
            if number in numbers:
                records.append(parse_job(number, block))
        return records


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
        waiting = re.search(r"(?m)^usage +\d+: ", output) is None
        text = _SGE_PRIVATE.sub("", output)
        return [JobRecord(job=number, text=text, waiting=waiting)] if is_own else []


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


#: The command lines, which may hold secrets.
_OAR_PRIVATE = re.compile(r"(?m)^ +(?:command|initial_request) = .*(?:\n|$)")
_EVENT = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d> \w+")


class OARSource(BatchSource):
    """Reads the records of the cluster's jobs from OAR."""

    name = "OAR"
    terms = Terms(permission="any user of the frontend", cost="two requests to the OAR database for each job")
    system = OAR
    lookup = ("oarstat", "-f", "-j")

    def _runs(self, number: str) -> Iterator[JobRecord]:
        output = self._output_of(*self.lookup, number, fails=True)
        for block in split_blocks(output, ["Job_Id:"]):
            if block.split("\n", 1)[0].strip() == f"Job_Id: {number}":
                events = self._output_of("oarstat", "-e", "-j", number, fails=True)
                yield parse_oarstat(number, block, events)


def parse_oarstat(number: str, text: str, events: str) -> JobRecord:
    """Return one job's record from ``oarstat -f`` and its events."""
    fields = {key: value.strip() for key, value in re.findall(r"(?m)^ +(\w+) = (.*)$", text)}
    state = fields.get("state", "")
    times = [parse_batch_time(each) for each in _EVENT.findall(events)]
    text = _OAR_PRIVATE.sub("", text)
    event_lines = "\n".join(line for line in events.splitlines() if _EVENT.match(line))
    is_over, last = state in ("Terminated", "Error"), next((each for each in reversed(times) if each), None)
    own_kills = ("WALLTIME", "BESTEFFORT_KILL")
    return JobRecord(
        job=number,
        text=f"{text}\n{event_lines}",
        started=parse_batch_time(fields.get("startTime", "")),
        ended=last if is_over else None,
        cancelled="FRAG_JOB_REQUEST" in event_lines and not any(each in event_lines for each in own_kills),
        waiting=state in ("Waiting", "Hold", "toLaunch", "toAckReservation"),
    )


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
    terms = Terms(permission="own jobs, on the access point that they were submitted from", cost="two queries")
    system = HTCONDOR
    lookup = ("condor_history", "-long")

    def _records(self, numbers: Sequence[str]) -> list[JobRecord]:
        options = ("-long", "-attributes", _ATTRIBUTES)
        records = _parse_jobs(numbers, self._output_of("condor_q", *numbers, *options, fails=True))
        known = {record.job for record in records}
        if left := [each for each in numbers if each not in known]:
            output = self._output_of("condor_history", *left, *options, "-limit", str(len(left)), fails=True)
            records += _parse_jobs(left, output)
        self._note_missing_jobs(numbers, records)  # before more commands run
        for at, record in enumerate(records):
            if record.waiting:
                why = self._output_of("condor_q", "-better-analyze", record.job, fails=True)
                records[at] = evolve(record, text=f"{record.text}\n\n{why}")
        return records


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
