"""Amazon EC2: how the instances of dead workers ended, and their scheduled events."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Self

from attrs import frozen

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Inspected
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine as machine_attribution
from workerdiag.sources.clouds.aws import EC2_NAME, AwsAnswer, aws_client, clock_ahead_s, region_of
from workerdiag.sources.clouds.ec2_machine import (
    LIVE_STATES,
    Ec2Instance,
    consoles,
    instance_chunk,
    spot_requests,
    status_checks,
)
from workerdiag.sources.machine import ProviderQuery, ProviderSource, Sdk

#: Fields of ``DescribeInstances`` (EC2 API reference, version 2016-11-15) that may show a cause; never tags
#: or user data.
_KEYS = (
    "InstanceId",
    "InstanceType",
    "InstanceLifecycle",
    "SpotInstanceRequestId",
    "LaunchTime",
    "State",
    "StateReason",
    "StateTransitionReason",
)
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
#: Reasons why an instance never started (StateReason, same reference).
_LAUNCH_FAILURES = (
    "Server.InsufficientInstanceCapacity",
    "Server.InternalError",
    "Client.InternalError",
    "Client.InvalidSnapshot.NotFound",
    "Client.VolumeLimitExceeded",
)


@frozen
class Ec2Source(ProviderSource):
    """Reads state, state reason, spot request, scheduled events and console of the dead workers' instances."""

    name: ClassVar[str] = "EC2"
    terms: ClassVar[Terms] = Terms(
        lasts_s=3600.0,
        permission="ec2:DescribeInstances, ec2:DescribeSpotInstanceRequests, "
        "ec2:DescribeInstanceStatus, ec2:GetConsoleOutput",
        extra="aws",
        cost="at most ten calls of the EC2 API",
    )

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for an ``EC2Cluster`` or hosts with private names of EC2, else None."""
        named = scene.victims and any(map(EC2_NAME.fullmatch, machine_attribution.known_machine_names(scene)))
        lost = machine_attribution.scene_of_lost_machines(scene)
        return cls(lost) if lost and (named or scene.cluster_is("EC2Cluster")) else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        ec2 = aws_client("ec2", region_of(self.scene), deadline)
        found: list[Ec2Instance] = []
        remedy = f"aws ec2 describe-instances --filters {self._filter_option()}"
        yield ProviderQuery("ec2:DescribeInstances", remedy, lambda: self._instances(ec2, found))
        for what, ask, command in (
            ("DescribeSpotInstanceRequests", spot_requests, "describe-spot-instance-requests"),
            ("DescribeInstanceStatus", status_checks, "describe-instance-status --instance-ids INSTANCE_ID"),
            ("GetConsoleOutput", consoles, "get-console-output --latest --instance-id INSTANCE_ID"),
        ):
            yield ProviderQuery(f"ec2:{what}", f"aws ec2 {command}", partial(ask, ec2, found))

    def _filters(self) -> Iterator[AwsAnswer]:
        cluster = getattr(self.scene.cluster, "uuid", None)
        if cluster and self.scene.cluster_is("EC2Cluster"):
            yield {"Name": "tag:Dask Cluster", "Values": [str(cluster)]}
            return
        hosts = [_instance_filter(host) for host in machine_attribution.victim_hosts(self.scene)]
        for key in ("instance-id", "private-ip-address"):
            if values := sorted({value for kind, value in hosts if kind == key}):
                yield {"Name": key, "Values": values}

    def _filter_option(self) -> str:
        return " ".join(
            shlex.quote(f"Name={each['Name']},Values={','.join(each['Values'])}") for each in self._filters()
        )

    def _instances(self, ec2: Sdk, found: list[Ec2Instance]) -> Iterator[Evidence]:
        answers: list[AwsAnswer] = []
        ahead_s = 0.0
        for each in self._filters():
            page = ec2.describe_instances(Filters=[each], MaxResults=1000)
            ahead_s = clock_ahead_s(page)
            answers += [one for group in page.get("Reservations", ()) for one in group.get("Instances", ())]
        for victim in self.scene.victims:
            machine = self._find_instance(victim, answers, ahead_s)
            if machine is None:
                who = victim.identity.worker or victim.identity.name
                yield self._gap(
                    "expired",
                    f"no instance that ran then has the name or address of {who}; EC2 forgets the address at"
                    " once and the instance an hour after its end",
                    "aws cloudtrail lookup-events --lookup-attributes"
                    " AttributeKey=EventName,AttributeValue=BidEvictedEvent",
                )
            else:
                found.append(machine)
                yield from _end_evidence(machine, self._ends_with_its_worker())
        if not self.scene.victims:
            found += self._failed_launches(answers)
            yield from (instance_chunk(each.answer, _KEYS, "describe-instances", each) for each in found)

    def _find_instance(
        self, victim: Victim, answers: Sequence[AwsAnswer], ahead_s: float
    ) -> Ec2Instance | None:
        missed = self._missed(victim, provider_ahead_s=ahead_s)
        fitting_ones = [
            answer
            for answer in answers
            if _is_victims_instance(answer, victim)
            and machine_attribution.may_be_workers_machine(
                missed,
                began=machine_attribution.to_timestamp(answer.get("LaunchTime")),
                ended=None if answer["State"]["Name"] in LIVE_STATES else _state_changed_at(answer),
            )
        ]
        # Several networks may use the same private addresses.
        if len(fitting_ones) != 1:
            return None
        return Ec2Instance(answer=fitting_ones[0], identity=victim.identity, missed=missed)

    def _failed_launches(self, answers: Sequence[AwsAnswer]) -> list[Ec2Instance]:
        return [
            Ec2Instance(answer=each, identity=Identity(name=_tag(each, "Name")))
            for each in answers
            if _state_reason(each) in _LAUNCH_FAILURES and self._is_recent(each.get("LaunchTime"))
        ]

    def _ends_with_its_worker(self) -> bool:
        """Whether an instance shuts itself down after its worker (dask-cloudprovider 2025.9.0)."""
        return bool(getattr(self.scene.cluster, "auto_shutdown", False))


def _instance_filter(host: str) -> tuple[str, str]:
    name = EC2_NAME.fullmatch(host)
    if name and name["id"]:
        return "instance-id", name["id"]
    address = name["ip"].replace("-", ".") if name else host
    return ("private-ip-address" if _IPV4.fullmatch(address) else "", address)


def _is_victims_instance(answer: AwsAnswer, victim: Victim) -> bool:
    """Whether an instance has the victim's name, or its id or an address of it is the victim's host."""
    if victim.identity.name is not None and _tag(answer, "Dask Cluster"):
        return _tag(answer, "Name") == victim.identity.name
    own = {answer.get(key) for key in ("InstanceId", "PrivateIpAddress", "PublicIpAddress")}
    return victim.identity.host is not None and _instance_filter(victim.identity.host)[1] in own


def _tag(answer: AwsAnswer, key: str) -> str | None:
    return next((str(each["Value"]) for each in answer.get("Tags", ()) if each["Key"] == key), None)


def _state_reason(answer: AwsAnswer) -> str:
    return str(answer.get("StateReason", {}).get("Code", ""))


def _state_changed_at(answer: AwsAnswer) -> float | None:
    return machine_attribution.timestamp_in(answer.get("StateTransitionReason"))


def _end_evidence(machine: Ec2Instance, with_its_worker: bool) -> Iterator[Evidence]:  # noqa: FBT001
    """Yield the state reason, unless the instance still runs or stopped because its worker had died."""
    reason = _state_reason(machine.answer)
    followed = (
        reason == "Client.InstanceInitiatedShutdown" and with_its_worker
    ) or not machine_attribution.may_be_reason(
        machine.missed,
        _state_changed_at(machine.answer),
        notice_s=machine_attribution.NOTICE_S if "Spot" in reason else 0.0,
    )
    if machine.answer["State"]["Name"] not in LIVE_STATES and not followed:
        yield instance_chunk(machine.answer, _KEYS, "describe-instances", machine)
    yield Inspected(identity=machine.identity)
