"""Amazon ECS and Fargate: how the tasks of dead workers stopped."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Inspected, LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine
from workerdiag.sources.clouds.ec2 import AwsAnswer, aws_client, clock_ahead_s, region_of
from workerdiag.sources.machine import ProviderQuery, ProviderSource, Sdk
from workerdiag.values import frozen

#: Fields of ``DescribeTasks`` (ECS API reference, version 2014-11-13).
_TASK_KEYS = (
    "taskArn",
    "launchType",
    "capacityProviderName",
    "lastStatus",
    "desiredStatus",
    "stopCode",
    "stoppedReason",
    "startedAt",
    "stoppingAt",
    "stoppedAt",
    "cpu",
    "memory",
)
_CONTAINER_KEYS = ("name", "lastStatus", "exitCode", "reason", "memory")


@frozen
class EcsSource(ProviderSource):
    """Reads stop code, stop reason and container exits of the dead workers' tasks, which ECS keeps for an hour."""

    name: ClassVar[str] = "ECS"
    terms: ClassVar[Terms] = Terms(
        lasts_s=3600.0,
        permission="ecs:ListTasks, ecs:DescribeTasks",
        extra="aws",
        cost="at most ten calls of the ECS API",
    )

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for a started ``ECSCluster`` or ``FargateCluster``, else None."""
        known = scene.cluster_is("ECSCluster") and getattr(scene.cluster, "cluster_arn", None)
        lost = machine.scene_of_lost_machines(scene)
        return cls(lost) if lost and known else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        ecs = aws_client("ecs", region_of(self.scene), deadline)
        cluster = f"--cluster {shlex.quote(self._arn)}"
        listing = f"aws ecs list-tasks --desired-status STOPPED {cluster}"
        remedy = f"{listing}; aws ecs describe-tasks {cluster} --tasks TASK"
        yield ProviderQuery("ecs:ListTasks, ecs:DescribeTasks", remedy, lambda: self._tasks(ecs))

    @property
    def _arn(self) -> str:
        return str(self.scene.cluster.cluster_arn)

    def _tasks(self, ecs: object) -> Iterator[Evidence]:
        stopped, ahead_s = _stopped_tasks(ecs, self._arn)
        if not self.scene.victims:
            yield from self._never_started(stopped)
        for victim in self.scene.victims:
            missed = self._missed(victim, provider_ahead_s=ahead_s)
            task = next((each for each in stopped if self._is_victims_task(each, victim, missed)), None)
            if task is None:
                who = victim.identity.worker or victim.identity.name
                found = f"no stopped task of {self._arn} had the address or name of {who}"
                remedy = f"aws logs filter-log-events --log-group-name dask-ecs --filter-pattern '\"{who}\"'"
                yield self._gap("expired", f"{found}; ECS keeps them for an hour", remedy)
            else:
                yield from _task_evidence(task, victim.identity, missed)

    def _is_victims_task(self, task: Mapping[str, object], victim: Victim, missed: float | None) -> bool:
        """Whether a task had the victim's address, or else its name and its cluster's task definition."""
        began = machine.to_timestamp(task.get("startedAt") or task.get("createdAt"))
        ended = machine.to_timestamp(task.get("stoppedAt"))
        if not machine.may_be_workers_machine(missed, began=began, ended=ended):
            return False
        addresses = _task_addresses(task)
        if addresses and victim.identity.host is not None:
            return victim.identity.host in addresses
        definition = getattr(self.scene.cluster, "worker_task_definition_arn", None)
        name = victim.identity.name
        is_ours = definition is not None and task.get("taskDefinitionArn") == definition
        return is_ours and name is not None and name == _worker_name(task)

    def _never_started(self, stopped: Sequence[Mapping[str, object]]) -> Iterator[Evidence]:
        """Yield tasks of this cluster's task definitions that recently failed to start."""
        names = ("worker_task_definition_arn", "scheduler_task_definition_arn")
        definitions = {getattr(self.scene.cluster, name, None) for name in names} - {None}
        for task in stopped:
            is_ours = task.get("taskDefinitionArn") in definitions
            has_failed = task.get("stopCode") == "TaskFailedToStart"
            if is_ours and has_failed and self._is_recent(task.get("stoppedAt")):
                yield _task_chunk(task, Identity(container=_task_id(task)))


def _stopped_tasks(ecs: Sdk, cluster: str) -> tuple[list[AwsAnswer], float]:
    """Return the tasks that are stopping or stopped within the last hour, and `clock_ahead_s`."""
    tasks: list[AwsAnswer] = []
    ahead_s = 0.0
    more: dict[str, str] = {}
    for _ in range(5):
        listed = ecs.list_tasks(cluster=cluster, desiredStatus="STOPPED", maxResults=100, **more)
        ahead_s = clock_ahead_s(listed)
        if listed.get("taskArns"):
            tasks += ecs.describe_tasks(cluster=cluster, tasks=listed["taskArns"]).get("tasks", ())
        if not listed.get("nextToken"):
            break
        more = {"nextToken": listed["nextToken"]}
    return tasks, ahead_s


def _task_evidence(task: AwsAnswer, identity: Identity, missed: float | None) -> Iterator[Evidence]:
    """Yield why the task stopped, unless the cluster object stopped it because its worker was lost.

    The exit status is the container's, whose first process may not be the worker's.
    """
    identity = machine.without_pid(identity.merged_with(Identity(container=_task_id(task))))
    stopping = machine.to_timestamp(task.get("stoppingAt") or task.get("stoppedAt"))
    notice_s = machine.NOTICE_S if task.get("stopCode") == "SpotInterruption" else 0.0
    asked_for = task.get("stopCode") in ("UserInitiated", "ServiceSchedulerInitiated", "SpotInterruption")
    if asked_for and not machine.may_be_reason(missed, stopping, notice_s=notice_s):
        yield Inspected(identity=identity)
        return
    yield _task_chunk(task, identity)
    container = _worker_container(task.get("containers", ()))
    code = container.get("exitCode") if container else None
    if isinstance(code, int) and code > 0:
        when = machine.to_timestamp(task.get("stoppedAt"))
        yield ProcessExit.of_container(code, identity=identity, when=when, reporter="ECS")
    yield Inspected(identity=identity)


def _worker_container(containers: Sequence[Mapping[str, object]]) -> Mapping[str, object] | None:
    named = [each for each in containers if each.get("name") == "dask-worker"]  # dask-cloudprovider, aws/ecs.py
    if named or len(containers) == 1:
        return (named or list(containers))[0]
    return None


def _task_addresses(task: AwsAnswer) -> set[str]:
    details = (detail for each in task.get("attachments", ()) for detail in each.get("details", ()))
    found = {str(each["value"]) for each in details if each.get("name") == "privateIPv4Address"}
    interfaces = (one for each in task.get("containers", ()) for one in each.get("networkInterfaces", ()))
    return found | {str(each["privateIpv4Address"]) for each in interfaces if each.get("privateIpv4Address")}


def _worker_name(task: AwsAnswer) -> str | None:
    for override in task.get("overrides", {}).get("containerOverrides", ()):
        command = list(override.get("command", ()))
        if "--name" in command[:-1]:
            return str(command[command.index("--name") + 1])
    return None


def _task_id(task: Mapping[str, object]) -> str:
    return str(task["taskArn"]).rpartition("/")[2]


def _task_chunk(task: AwsAnswer, identity: Identity) -> LogChunk:
    containers = [machine.pick_keys(each, _CONTAINER_KEYS) for each in task.get("containers", ())]
    description = {**machine.pick_keys(task, _TASK_KEYS), "containers": containers}
    return machine.provider_chunk(f"aws ecs describe-tasks ({_task_id(task)})", description, identity)
