"""Further EC2 queries about a dead worker's instance: its spot request, status checks and console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.sources import machine as machine_attribution
from workerdiag.sources.clouds.aws import AwsAnswer
from workerdiag.sources.machine import Sdk, console_chunks, console_excerpt

#: States of a live instance.
LIVE_STATES = ("pending", "running")
_REQUEST_KEYS = ("SpotInstanceRequestId", "InstanceId", "State", "Status", "Fault")


@frozen(kw_only=True)
class Ec2Instance:
    """An instance and its worker; without one, it belongs to the cluster but never joined."""

    answer: AwsAnswer
    identity: Identity
    missed: float | None = None

    @property
    def id(self) -> str:
        """The instance id, e.g. ``i-0a1b2c3d4e5f60718``."""
        return str(self.answer["InstanceId"])


def spot_requests(ec2: Sdk, found: Sequence[Ec2Instance]) -> Iterator[Evidence]:
    """Yield the status of spot requests whose instances were reclaimed near the time of death."""
    by_request = {str(each.answer.get("SpotInstanceRequestId") or ""): each for each in found}
    by_request.pop("", None)
    if not by_request:
        return
    answer = ec2.describe_spot_instance_requests(SpotInstanceRequestIds=sorted(by_request))
    for request in answer.get("SpotInstanceRequests", ()):
        machine = by_request[request["SpotInstanceRequestId"]]
        when = machine_attribution.to_timestamp(request.get("Status", {}).get("UpdateTime"))
        lives = request.get("State") == "active" and request.get("Status", {}).get("Code") == "fulfilled"
        if not lives and machine_attribution.may_be_reason(
            machine.missed, when, notice_s=machine_attribution.NOTICE_S
        ):
            yield instance_chunk(request, _REQUEST_KEYS, "describe-spot-instance-requests", machine)


def status_checks(ec2: Sdk, found: Sequence[Ec2Instance]) -> Iterator[Evidence]:
    """Yield due scheduled events and failed system status checks of instances that still exist."""
    if not found:
        return
    by_id = {each.id: each for each in found}
    answer = ec2.describe_instance_status(InstanceIds=sorted(by_id), IncludeAllInstances=True)
    for status in answer.get("InstanceStatuses", ()):
        machine = by_id[status["InstanceId"]]
        begun = [each for each in status.get("Events", ()) if _was_due(each, machine.missed)]
        failed = _failed_check(status.get("SystemStatus", {}), machine.missed)
        relevant = {**status, "Events": begun, "SystemStatus": failed}
        if begun or failed:
            keys = ("InstanceId", "Events", "SystemStatus", "InstanceState")
            yield instance_chunk(relevant, keys, "describe-instance-status", machine)


def _was_due(event: AwsAnswer, missed: float | None) -> bool:
    begins, ends = (machine_attribution.to_timestamp(event.get(key)) for key in ("NotBefore", "NotAfter"))
    if missed is None or begins is None:
        return False
    return begins <= missed + machine_attribution.SKEW_S and (
        ends is None or ends >= missed - machine_attribution.MISSED_S
    )


def _failed_check(status: AwsAnswer, missed: float | None) -> AwsAnswer:
    since = [
        machine_attribution.to_timestamp(each.get("ImpairedSince")) for each in status.get("Details", ())
    ]
    failed = status.get("Status") == "impaired" and any(
        machine_attribution.may_be_reason(missed, each) for each in since if each
    )
    return status if failed else {}


def consoles(ec2: Sdk, found: Sequence[Ec2Instance]) -> Iterator[Evidence]:
    """Yield kernel output near the deaths; EC2 keeps the console for an hour after the instance's end."""
    for machine in found:
        answer = ec2.get_console_output(InstanceId=machine.id)
        text = str(answer.get("Output", ""))
        started = machine_attribution.to_timestamp(machine.answer.get("LaunchTime"))
        excerpt = console_excerpt(text, started=started, missed=machine.missed)
        origin = f"aws ec2 get-console-output --instance-id {machine.id}"
        yield from console_chunks(origin, excerpt, machine.identity)


def instance_chunk(record: AwsAnswer, keys: Iterable[str], command: str, machine: Ec2Instance) -> LogChunk:
    """Return some *keys* of a response as ``aws ec2`` prints them."""
    origin = f"aws ec2 {command} ({machine.id})"
    return machine_attribution.provider_chunk(origin, record, machine.identity, keys=keys)
