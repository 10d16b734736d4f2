"""Amazon EC2: how dead workers' instances ended, with spot requests, status checks and consoles.

Also what the AWS sources share: the region, and boto3 clients with a deadline.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine
from workerdiag.sources.internals import aws_region
from workerdiag.sources.machine import ProviderQuery, ProviderSource, Sdk
from workerdiag.values import frozen

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
        named = scene.victims and any(map(EC2_NAME.fullmatch, machine.known_machine_names(scene)))
        lost = machine.scene_of_lost_machines(scene)
        return cls(lost) if lost and (named or scene.cluster_is("EC2Cluster")) else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        ec2 = aws_client("ec2", region_of(self.scene), deadline)
        found: list[Ec2Instance] = []
        filters = (f"Name={each['Name']},Values={','.join(each['Values'])}" for each in self._filters())
        remedy = f"aws ec2 describe-instances --filters {shlex.join(filters)}"
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
        hosts = [_instance_filter(host) for host in machine.victim_hosts(self.scene)]
        for key in ("instance-id", "private-ip-address"):
            if values := sorted({value for kind, value in hosts if kind == key}):
                yield {"Name": key, "Values": values}

    def _instances(self, ec2: Sdk, found: list[Ec2Instance]) -> Iterator[Evidence]:
        answers: list[AwsAnswer] = []
        ahead_s = 0.0
        for each in self._filters():
            page = ec2.describe_instances(Filters=[each], MaxResults=1000)
            ahead_s = clock_ahead_s(page)
            answers += [one for group in page.get("Reservations", ()) for one in group.get("Instances", ())]
        for victim in self.scene.victims:
            instance = self._find_instance(victim, answers, ahead_s)
            if instance is None:
                who = victim.identity.worker or victim.identity.name
                yield self._gap(
                    "expired",
                    f"no instance that ran then has the name or address of {who}; EC2 forgets the address at"
                    " once and the instance an hour after its end",
                    "aws cloudtrail lookup-events --lookup-attributes"
                    " AttributeKey=EventName,AttributeValue=BidEvictedEvent",
                )
            else:
                found.append(instance)
                # An instance of dask-cloudprovider (2025.9.0) may shut itself down after its worker.
                with_its_worker = bool(getattr(self.scene.cluster, "auto_shutdown", False))
                yield from _end_evidence(instance, with_its_worker)
        if not self.scene.victims:
            found += [
                Ec2Instance(answer=each, identity=Identity(name=_tag(each, "Name")))
                for each in answers
                if _state_reason(each) in _LAUNCH_FAILURES and self._is_recent(each.get("LaunchTime"))
            ]
            yield from (instance_chunk(each.answer, _KEYS, "describe-instances", each) for each in found)

    def _find_instance(self, victim: Victim, answers: Sequence[AwsAnswer], ahead_s: float) -> Ec2Instance | None:
        missed = self._missed(victim, provider_ahead_s=ahead_s)
        fitting_ones = []
        for answer in answers:
            began, changed = answer.get("LaunchTime"), answer.get("StateTransitionReason")
            ended = None if answer["State"]["Name"] in LIVE_STATES else machine.timestamp_in(changed)
            fits = machine.may_be_workers_machine(missed, began=machine.to_timestamp(began), ended=ended)
            if fits and _is_victims_instance(answer, victim):
                fitting_ones.append(answer)
        # Several networks may use the same private addresses.
        if len(fitting_ones) != 1:
            return None
        return Ec2Instance(answer=fitting_ones[0], identity=victim.identity, missed=missed)


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


def _end_evidence(instance: Ec2Instance, with_its_worker: bool) -> Iterator[Evidence]:  # noqa: FBT001
    """Yield the state reason, unless the instance still runs or stopped because its worker had died."""
    reason = _state_reason(instance.answer)
    changed = machine.timestamp_in(instance.answer.get("StateTransitionReason"))
    notice_s = machine.NOTICE_S if "Spot" in reason else 0.0
    with_worker = reason == "Client.InstanceInitiatedShutdown" and with_its_worker
    followed = with_worker or not machine.may_be_reason(instance.missed, changed, notice_s=notice_s)
    if instance.answer["State"]["Name"] not in LIVE_STATES and not followed:
        yield instance_chunk(instance.answer, _KEYS, "describe-instances", instance)
    yield Inspected(identity=instance.identity)


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
        instance = by_request[request["SpotInstanceRequestId"]]
        when = machine.to_timestamp(request.get("Status", {}).get("UpdateTime"))
        lives = request.get("State") == "active" and request.get("Status", {}).get("Code") == "fulfilled"
        if not lives and machine.may_be_reason(instance.missed, when, notice_s=machine.NOTICE_S):
            yield instance_chunk(request, _REQUEST_KEYS, "describe-spot-instance-requests", instance)


def status_checks(ec2: Sdk, found: Sequence[Ec2Instance]) -> Iterator[Evidence]:
    """Yield due scheduled events and failed system status checks of instances that still exist."""
    if not found:
        return
    by_id = {each.id: each for each in found}
    answer = ec2.describe_instance_status(InstanceIds=sorted(by_id), IncludeAllInstances=True)
    for status in answer.get("InstanceStatuses", ()):
        instance = by_id[status["InstanceId"]]
        begun = [each for each in status.get("Events", ()) if _was_due(each, instance.missed)]
        failed = _failed_check(status.get("SystemStatus", {}), instance.missed)
        relevant = {**status, "Events": begun, "SystemStatus": failed}
        if begun or failed:
            keys = ("InstanceId", "Events", "SystemStatus", "InstanceState")
            yield instance_chunk(relevant, keys, "describe-instance-status", instance)


def _was_due(event: AwsAnswer, missed: float | None) -> bool:
    begins, ends = (machine.to_timestamp(event.get(key)) for key in ("NotBefore", "NotAfter"))
    if missed is None or begins is None:
        return False
    return begins <= missed + machine.SKEW_S and (ends is None or ends >= missed - machine.MISSED_S)


def _failed_check(status: AwsAnswer, missed: float | None) -> AwsAnswer:
    since = [machine.to_timestamp(each.get("ImpairedSince")) for each in status.get("Details", ())]
    near = any(machine.may_be_reason(missed, each) for each in since if each)
    return status if near and status.get("Status") == "impaired" else {}


def consoles(ec2: Sdk, found: Sequence[Ec2Instance]) -> Iterator[Evidence]:
    """Yield kernel output near the deaths; EC2 keeps the console for an hour after the instance's end."""
    for instance in found:
        answer = ec2.get_console_output(InstanceId=instance.id)
        text = str(answer.get("Output", ""))
        started = machine.to_timestamp(instance.answer.get("LaunchTime"))
        origin, who = f"aws ec2 get-console-output --instance-id {instance.id}", instance.identity
        yield from machine.console_chunks(origin, text, who, started=started, missed=instance.missed)


def instance_chunk(record: AwsAnswer, keys: Iterable[str], command: str, instance: Ec2Instance) -> LogChunk:
    """Return some *keys* of a response as ``aws ec2`` prints them."""
    origin = f"aws ec2 {command} ({instance.id})"
    return machine.provider_chunk(origin, record, instance.identity, keys=keys)


#: Part of a response as botocore decodes it.
AwsAnswer = Mapping[str, Any]
#: Private DNS names of instances (Amazon EC2 user guide, "EC2 instance hostname types"): in
#: us-east-1 ``ip-10-0-1-2.ec2.internal``, elsewhere ``ip-10-0-1-2.eu-west-1.compute.internal``;
#: resource names have the instance id in place of the address. Some images use the first part only.
EC2_NAME = re.compile(
    r"(?:ip-(?P<ip>\d{1,3}(?:-\d{1,3}){3})|(?P<id>i-[0-9a-f]{8,17}))"
    r"(?:\.(?P<region>[a-z]{2}(?:-[a-z]+){1,2}-\d)\.compute\.internal|(?P<first>\.ec2\.internal))?"
)
_ARN_REGION = re.compile(r"arn:[\w-]+:ecs:(?P<region>[\w-]+):")


def region_of(scene: Scene) -> str | None:
    """Return the cluster's region from its object, hosts or environment; None leaves it to the SDK."""
    cluster = scene.cluster
    arn = _ARN_REGION.match(str(getattr(cluster, "cluster_arn", "") or ""))
    stated = getattr(cluster, "region", None) or aws_region(cluster)
    if stated or arn:
        return str(stated or (arn and arn["region"]))
    for name in map(EC2_NAME.fullmatch, machine.known_machine_names(scene)):
        if name and (name["region"] or name["first"]):
            return name["region"] or "us-east-1"
    return scene.variable("AWS_REGION") or scene.variable("AWS_DEFAULT_REGION")


def aws_client(service: str, region: str | None, deadline: Deadline) -> Sdk:
    """Return a boto3 client with its own session, no retries, and time-outs within *deadline*."""
    request_s = machine.request_timeout_s(deadline)
    config = import_module("botocore.config").Config(
        connect_timeout=request_s, read_timeout=request_s, retries={"total_max_attempts": 1}
    )
    session = import_module("boto3.session").Session()
    return session.client(service, region_name=region or session.region_name, config=config)


def clock_ahead_s(answer: AwsAnswer) -> float:
    """Return by how many seconds AWS's clock (header ``Date``) is ahead of ours; 0 if unknown."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        ahead = parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return 0.0
    return float(round(ahead))
