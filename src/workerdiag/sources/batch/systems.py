"""The batch systems: the commands of each, and its records of jobs.

- Slurm 22.05 (sacct and scontrol manual pages; ``tests/lab_slurm`` runs them): ``scontrol show job``, which forgets
  a job minutes after its end, and the accounting's ``sacct``. Fields that a release lacks are missing.
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
import time
from collections.abc import Iterator, Sequence

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.jobs import (
    GRID_ENGINE,
    HTCONDOR,
    LSF,
    OAR,
    PBS,
    SLURM,
    JobRecord,
    parse_batch_time,
    parse_size,
    percent_used,
)
from workerdiag.sources.batch.source import BatchSource, split_blocks
from workerdiag.values import evolve, frozen

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
        for block in split_blocks(output, "JobId=")[:1]:
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
        for row in (each for each in rows if number in each.numbers):
            if "." not in row.fields["JobID"]:  # else it is a step of the run before
                runs.append([row])
            elif runs:
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
        found = [each for each in split_blocks(output, "Job Id:") if own.match(each)]
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
        for block in split_blocks(_COMMAND.sub("Command <...>", output), "Job <"):
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
        for block in split_blocks(output, "Job_Id:"):
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
