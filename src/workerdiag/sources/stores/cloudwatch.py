"""CloudWatch Logs: the logs of dead workers' containers, found by the address that a worker logs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine
from workerdiag.sources.clouds.ec2 import AwsAnswer, aws_client, region_of
from workerdiag.sources.machine import ProviderQuery, ProviderSource, Sdk
from workerdiag.values import frozen

#: A worker's log line about its address (distributed/worker.py, 2024.8.1 to 2026.8.0).
_START_LINE = "Start worker at: {address:>26}"
_ADDRESS = re.compile(r"(?:tcp|tls|ucx|ws|wss)://[\w.\[\]:-]+")


@frozen
class CloudWatchSource(ProviderSource):
    """Reads the end of the log streams of the dead workers' containers."""

    name: ClassVar[str] = "CloudWatch Logs"
    terms: ClassVar[Terms] = Terms(
        lasts_s=30 * 86400.0,
        permission="logs:FilterLogEvents, logs:GetLogEvents on the log group",
        extra="aws",
        cost="at most four calls for each of at most eight workers",
    )

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for an ``ECSCluster`` or ``FargateCluster`` with a log group, else None."""
        known = scene.cluster_is("ECSCluster") and getattr(scene.cluster, "cloudwatch_logs_group", None)
        return cls(scene) if known and scene.victims else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        logs = aws_client("logs", region_of(self.scene), deadline)
        group = str(self.scene.cluster.cloudwatch_logs_group)
        for victim in self.scene.victims:
            address = victim.identity.worker or ""
            if _ADDRESS.fullmatch(address):
                start_line = _START_LINE.format(address=address)
                yield ProviderQuery(
                    "logs:FilterLogEvents, logs:GetLogEvents",
                    f"aws logs filter-log-events --log-group-name {shlex.quote(group)}"
                    f" --filter-pattern '\"{start_line}\"'",
                    partial(_stream_evidence, logs, group, victim, self._missed(victim)),
                )


def _stream_evidence(logs: Sdk, group: str, victim: Victim, missed: float | None) -> Iterator[Evidence]:
    started = _find_start(logs, group, str(victim.identity.worker), missed)
    if started is None:
        detail = f"no stream of {group} logs the start of a worker at {victim.identity.worker}"
        streams = f"aws logs describe-log-streams --log-group-name {shlex.quote(group)}"
        remedy = f"{streams} --order-by LastEventTime --descending"
        yield Gap(source=CloudWatchSource.name, reason="never-recorded", detail=detail, remedy=remedy)
        return
    stream = str(started["logStreamName"])
    params: dict[str, object] = {"startTime": started["timestamp"]}
    if missed is not None:
        params = {
            "startTime": max(started["timestamp"], int((missed - 900.0) * 1000)),
            "endTime": int((missed + 60.0) * 1000),
        }
    answer = logs.get_log_events(
        logGroupName=group, logStreamName=stream, limit=5000, startFromHead=False, **params
    )
    text = "".join(f"{each['message']}\n" for each in answer.get("events", ())).encode()[-(2**20) :]
    task = Identity(container=stream.rpartition("/")[2])
    identity = machine.without_pid(victim.identity.merged_with(task))
    yield LogChunk(origin=f"aws logs get-log-events {group} {stream}", data=text, identity=identity)
    yield Inspected(place="worker log", identity=identity)


def _find_start(logs: Sdk, group: str, address: str, missed: float | None) -> AwsAnswer | None:
    """Return the last start of a worker at this address before the death; addresses are reused."""
    params: dict[str, object] = {"filterPattern": f'"{_START_LINE.format(address=address)}"'}
    if missed is not None:
        params["startTime"] = int((missed - 7 * 86400.0) * 1000)
        params["endTime"] = int((missed + machine.SKEW_S) * 1000)
    found: AwsAnswer | None = None
    for _ in range(3):
        page = logs.filter_log_events(logGroupName=group, **params)
        for event in page.get("events", ()):
            if found is None or event["timestamp"] >= found["timestamp"]:
                found = event
        if not page.get("nextToken"):
            break
        params["nextToken"] = page["nextToken"]
    return found
