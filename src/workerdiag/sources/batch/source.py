"""The base class of sources that query a batch system for the records of a cluster's jobs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Self

from workerdiag.deadline import NO_DEADLINE, Deadline
from workerdiag.model.evidence import Event, Evidence, Gap, Inspected, LogChunk, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.model.normalize import EventValue
from workerdiag.model.scene import Scene, Terms
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.batch.jobs import BatchJobs, BatchSystem, JobRecord, find_jobs, run_of_death
from workerdiag.sources.batch.log_directory import match_jobs_by_output
from workerdiag.sources.commands import command_gap, run_command

#: Messages with which batch commands say that a job is unknown.
_REASONS: Mapping[GapReason, str] = {
    "expired": r"invalid job id|not exist|not found|unknown job|no matching|has finished",
    "never-recorded": r"disabled",
}
#: At most this many bytes of one answer are read, enough for jobs with thousands of steps.
_MAX_ANSWER_BYTES = 2**20
#: A record's text is cut to this many characters.
_MAX_CHARS = 64 * 1024


class BatchSource:
    """Queries a batch system about a cluster's jobs with its own commands."""

    name: ClassVar[str]
    terms: ClassVar[Terms]
    system: ClassVar[BatchSystem]
    #: The command that a person would type before a job number.
    lookup: ClassVar[tuple[str, ...]]

    def __init__(self, jobs: BatchJobs, scene: Scene) -> None:
        self._jobs = jobs
        self._scene = scene
        self._deadline = NO_DEADLINE
        self._gaps: list[Gap] = []
        #: Gaps of commands that have a fallback.
        self._fallback_gaps: list[Gap] = []
        self._failed_commands: set[str] = set()

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return a source for the jobs of *scene*, or None if they are not of this batch system."""
        jobs = find_jobs(scene, cls.system)
        return None if jobs is None else cls(jobs, scene)

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the records of the victims' jobs, then of pending and ended jobs, within *budget_s* seconds."""
        self._deadline = Deadline.of_budget(budget_s)
        self._gaps, self._fallback_gaps = [], []
        self._failed_commands = set()
        yield from self._rejected_jobs()
        jobs = match_jobs_by_output(self._jobs, self._scene, self.system, self._deadline.share(0.35))
        records = self._records([job.id for job in jobs]) if jobs else []
        self._note_missing_jobs([job.id for job in jobs], records)
        for victim in dict.fromkeys(victim for job in jobs for victim in job.victims):
            numbers = [job.id for job in jobs if victim in job.victims]
            runs = [each for each in records if each.job in numbers]
            record = run_of_death(runs, victim.when)
            if record is not None:
                identity = victim.identity.merged_with(Identity(container=record.job))
                yield from self._record_evidence(record, identity, victim.when)
            elif runs:
                which, who = ", ".join(numbers), victim.identity.worker
                detail = f"the records of job {which} do not cover the time at which {who} died"
                remedy = "look for the job that ran then, by name and time, in the accounting"
                self._gaps.append(self._gap("expired", detail, remedy))
        for job in jobs:
            record = run_of_death([each for each in records if each.job == job.id], None)
            if record is not None and not job.victims:
                yield from self._record_evidence(record, Identity(container=job.id), None)
        yield from dict.fromkeys(self._gaps)

    def _records(self, numbers: Sequence[str]) -> list[JobRecord]:
        return [run for number in numbers for run in self._runs(number)]

    def _runs(self, number: str) -> Iterable[JobRecord]:
        raise NotImplementedError

    def _output_of(self, *command: str, fails: bool = False) -> str:
        """Return the output of *command* within the time left; if it fails, return "" and note a gap.

        A command that is missing or timed out is not run again. With *fails* there is a fallback command, so
        the gap counts only if that fails too.
        """
        if command[0] in self._failed_commands:
            return ""
        gaps = self._fallback_gaps if fails else self._gaps
        try:
            if self._deadline.left_s < 0.05:
                raise TimeoutError(command[0])
            result = run_command(command, self._deadline.share(0.6))
        except (OSError, ValueError) as problem:  # a TimeoutError is an OSError
            self._failed_commands.add(command[0])
            gaps.append(command_gap(self.name, command, problem))
            return ""
        if result.returncode and not result.stdout:
            gaps.append(command_gap(self.name, command, result, words=_REASONS))
            return ""
        if len(result.stdout) > _MAX_ANSWER_BYTES:
            detail = f"{command[0]} printed more than {_MAX_ANSWER_BYTES} bytes; the rest was not read"
            gaps.append(self._gap("malformed", detail, shlex.join(command)))
        return result.stdout[:_MAX_ANSWER_BYTES].decode("utf-8", errors="replace")

    def _note_missing_jobs(self, numbers: Iterable[str], records: Iterable[JobRecord]) -> None:
        known = {each.job for each in records}
        unknown = [each for each in numbers if each not in known]
        if unknown and not self._gaps:
            self._gaps += self._fallback_gaps
        for number in unknown if not self._gaps else ():
            remedy = shlex.join((*self.lookup, number))
            self._gaps.append(self._gap("expired", f"{self.name} has no record of job {number}", remedy))

    def _gap(self, reason: GapReason, detail: str, remedy: str) -> Gap:
        return Gap(source=self.name, reason=reason, detail=detail, remedy=remedy)

    def _rejected_jobs(self) -> Iterator[Evidence]:
        """Yield the rejected jobs; the reason is only in the log of the process with the cluster object."""
        count = len(self._jobs.rejected)
        for name in self._jobs.rejected[:1]:
            fields: dict[str, EventValue] = {"state": "never-submitted", "jobs": count, "system": self.name}
            yield Event(topic="batch-job", fields=fields, identity=Identity(name=name))
            detail = f"{count} jobs were never accepted; the error went to the log of the client's process"
            remedy = "print(cluster.job_script())   # submit it by hand to see the whole error"
            yield self._gap("never-recorded", detail, remedy)

    def _record_evidence(self, record: JobRecord, identity: Identity, missed: float | None) -> Iterator[Evidence]:
        """Yield the evidence in one run's record about a victim, noticed at *missed*, or about the job alone."""
        if identity.worker and (record.limit_bytes or record.rss_bytes):
            yield MemoryReading(
                identity=identity, rss_bytes=record.rss_bytes, limit_bytes=record.limit_bytes, when=record.ended
            )
        if record.may_explain(missed):
            data = record.text[:_MAX_CHARS].encode("utf-8", errors="replace")
            origin = f"{self.name} job {record.job}" + (f", {identity.worker}" if identity.worker else "")
            yield LogChunk(origin=origin, data=data, stream="batch", identity=identity)
            yield from self._usage_events(record, identity)
        yield Inspected(identity=identity)

    def _usage_events(self, record: JobRecord, identity: Identity) -> Iterator[Evidence]:
        fields: dict[str, EventValue] = {"system": self.name, "job": record.job}
        if record.percent_of_time is not None:
            fields["percent_of_time"] = record.percent_of_time
        if record.rss_bytes and record.limit_bytes:
            fields["percent_of_memory"] = round(100.0 * record.rss_bytes / record.limit_bytes, 1)
        if len(fields) > 2 and record.ended is not None:
            fields["state"] = "ended"
            yield Event(topic="batch-job", fields=fields, when=record.ended, identity=identity)


def split_blocks(text: str, start: str) -> list[str]:
    """Split *text* before each line that begins with *start*, and drop what precedes the first."""
    return [block.rstrip("\n") for block in re.split(rf"(?m)^(?={re.escape(start)})", text)[1:]]
