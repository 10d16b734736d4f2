"""OAR: ``oarstat`` for a job and its events.

The formats are those of the manual page and the source (oarstat(1), OAR 2.5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from workerdiag.model.scene import Terms
from workerdiag.sources.batch.job_record import JobRecord, parse_batch_time
from workerdiag.sources.batch.jobs import OAR
from workerdiag.sources.batch.source import BatchSource, split_blocks

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
