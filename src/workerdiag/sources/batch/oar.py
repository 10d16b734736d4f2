"""
OAR: ``oarstat`` for the job and for the events that it went through.

Read as its manual page and source have it (oarstat(1), OAR 2.5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import JobRecord, parse_time
from workerdiag.sources.batch.source import BatchSource, split_blocks
from workerdiag.sources.batch.systems import OAR

#: The command lines, which may hold secrets.
_PRIVATE = re.compile(r"(?m)^ +(?:command|initial_request) = .*(?:\n|$)")
_EVENT = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d> \w+")


class OARSource(BatchSource):
    """
    What OAR says of the cluster's jobs.
    """

    name = "OAR"
    terms = Terms(permission="any user of the frontend", cost="two requests to the OAR database for each job")
    system = OAR

    def _records(self, numbers: Sequence[str]) -> list[JobRecord]:
        records = []
        for number in numbers:
            output = self._output_of("oarstat", "-f", "-j", number, fails=True)
            for block in split_blocks(output, ["Job_Id:"]):
                if block.split("\n", 1)[0].strip() != f"Job_Id: {number}":
                    continue
                events = self._output_of("oarstat", "-e", "-j", number, fails=True)
                records.append(parse_oarstat(number, block, events))
        self._note_missing_jobs(numbers, records, "oarstat", "-f", "-j")
        return records


def parse_oarstat(number: str, text: str, events: str) -> JobRecord:
    """
    One job as ``oarstat -f`` shows it, with its events.
    """
    fields = {key: value.strip() for key, value in re.findall(r"(?m)^ +(\w+) = (.*)$", text)}
    state = fields.get("state", "")
    times = [parse_time(each) for each in _EVENT.findall(events)]
    text = _PRIVATE.sub("", text)
    event_lines = "\n".join(line for line in events.splitlines() if _EVENT.match(line))
    return JobRecord(
        job=number,
        text=f"{text}\n{event_lines}",
        started=parse_time(fields.get("startTime", "")),
        ended=next((each for each in reversed(times) if each), None)
        if state in ("Terminated", "Error")
        else None,
        cancelled="FRAG_JOB_REQUEST" in event_lines
        and "WALLTIME" not in event_lines
        and "BESTEFFORT_KILL" not in event_lines,
        waiting=state in ("Waiting", "Hold", "toLaunch", "toAckReservation"),
    )
