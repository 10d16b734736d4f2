"""Azure: the activity log and the states of the machines of dead workers."""

from __future__ import annotations

import datetime as dt
import re
import shlex
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine
from workerdiag.sources.machine import ProviderQuery, ProviderSource, Sdk
from workerdiag.values import frozen

#: Operations of the resource provider Microsoft.Compute (Azure resource provider operations) that
#: end a machine, and the categories of the platform's own entries.
_ENDING = re.compile(
    r"/(?:deallocate|powerOff|restart|redeploy|reimage|evictSpotVM|simulateEviction|performMaintenance)/action"
    r"|virtualMachines/delete|Microsoft\.ResourceHealth|Microsoft\.ServiceHealth",
    re.IGNORECASE,
)
_BY_A_PERSON = re.compile(
    r"virtualMachines/(?:deallocate|powerOff|restart|redeploy|reimage)/|virtualMachines/delete", re.IGNORECASE
)
#: The platform's entries are at most this many seconds late (resource health overview).
_LATE_S = 600.0
_CLOUD = "https://management.azure.com"


@frozen
class AzureSource(ProviderSource):
    """Reads the activity log (evicted, deallocated, deleted, host failure) and states of dead workers' machines.

    *endpoint* is Azure Resource Manager; national clouds have another.
    """

    name: ClassVar[str] = "Azure"
    terms: ClassVar[Terms] = Terms(
        lasts_s=90 * 86400.0,
        permission="Reader on the resource group: Microsoft.Insights/eventtypes/values/read, "
        "Microsoft.Compute/virtualMachines/read",
        extra="azure",
        cost="one page of the activity log and one call for each of at most eight machines",
    )

    _endpoint: str = _CLOUD

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for an ``AzureVMCluster``, which names its machines after the workers, else None."""
        cluster = scene.cluster
        known = getattr(cluster, "subscription_id", None) and getattr(cluster, "resource_group", None)
        lost = machine.scene_of_lost_machines(scene)
        return cls(lost) if lost and scene.cluster_is("AzureVMCluster") and known else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        cluster = self.scene.cluster
        credential = getattr(cluster, "credentials", None)
        if not hasattr(credential, "get_token"):
            credential = import_module("azure.identity").DefaultAzureCredential()
        request_s = machine.request_timeout_s(deadline)
        options = {
            "base_url": self._endpoint,
            "credential_scopes": [f"{self._endpoint}/.default"],
            "retry_total": 0,
            "connection_timeout": request_s,
            "read_timeout": request_s,
        }
        subscription = str(cluster.subscription_id)
        who = credential, subscription
        monitor = import_module("azure.mgmt.monitor").MonitorManagementClient(*who, **options)
        compute = import_module("azure.mgmt.compute").ComputeManagementClient(*who, **options)
        group = str(cluster.resource_group)
        where = f"--resource-group {shlex.quote(group)}"
        yield ProviderQuery(
            "activityLogs.list",
            f"az monitor activity-log list {where} --offset 6h",
            lambda: self._activity_log(monitor, group),
        )
        yield ProviderQuery(
            "virtualMachines.get",
            f"az vm get-instance-view {where} --name NAME",
            lambda: self._power_states(compute, group),
        )

    def _victims_by_machine(self) -> dict[str, Victim]:
        return {each.identity.name.lower(): each for each in self.scene.victims if each.identity.name}

    def _activity_log(self, monitor: Sdk, group: str) -> Iterator[Evidence]:
        names = self._victims_by_machine()
        ours = f"dask-{getattr(self.scene.cluster, 'uuid', None)}-".lower()
        since = self.scene.since or time.time() - machine.MISSED_S
        until = (self.scene.until or time.time()) + _LATE_S
        condition = (
            f"eventTimestamp ge '{_iso_utc(since)}' and eventTimestamp le '{_iso_utc(until)}' "
            f"and resourceGroupName eq '{group}'"
        )
        for event in islice(monitor.activity_logs.list(filter=condition), 500):
            target = str(event.resource_id or "").lower().rpartition("/virtualmachines/")[2].split("/")[0]
            victim = names.get(target)
            if victim is not None and self._may_explain_loss(event, victim):
                yield _activity_chunk(event, victim.identity)
            elif not self.scene.victims and target.startswith(ours) and _value(event.status) == "Failed":
                yield _activity_chunk(event, Identity(name=target))
        for victim in names.values():
            yield Inspected(identity=victim.identity)

    def _may_explain_loss(self, event: Sdk, victim: Victim) -> bool:
        """Whether *event* may have ended the worker, and is not the cluster object's clean-up."""
        operation = _value(event.operation_name)
        late_s = 0.0 if _BY_A_PERSON.search(operation) else _LATE_S
        happened = machine.to_timestamp(event.event_timestamp)
        in_time = machine.may_be_reason(self._missed(victim), happened, notice_s=late_s)
        return in_time and _ENDING.search(operation) is not None

    def _power_states(self, compute: Sdk, group: str) -> Iterator[Evidence]:
        """Yield the deallocated machines; any other state may be a consequence of the worker's end."""
        for victim in self._victims_by_machine().values():
            name = str(victim.identity.name)
            try:
                vm = compute.virtual_machines.get(group, name, expand="instanceView")
            except import_module("azure.core.exceptions").ResourceNotFoundError:
                continue
            statuses = vm.instance_view.statuses or () if vm.instance_view else ()
            description = {
                "name": name,
                "priority": vm.priority,
                "evictionPolicy": vm.eviction_policy,
                "statuses": [{"code": each.code, "displayStatus": each.display_status} for each in statuses],
            }
            if any("deallocat" in str(each.code) for each in statuses):
                origin = f"az vm get-instance-view ({name})"
                yield machine.provider_chunk(origin, description, victim.identity)


def _iso_utc(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _value(localizable: object) -> str:
    return str(getattr(localizable, "value", "") or "")


def _activity_chunk(event: Sdk, identity: Identity) -> LogChunk:
    """Return an entry as ``az monitor activity-log list`` prints it, without claims and tokens."""
    entry = {
        "eventTimestamp": event.event_timestamp,
        "operationName": {"value": _value(event.operation_name)},
        "status": {"value": _value(event.status)},
        "subStatus": {"value": _value(event.sub_status)},
        "category": {"value": _value(event.category)},
        "caller": event.caller,
        "resourceId": event.resource_id,
        "description": event.description,
        "properties": dict(event.properties or {}),
    }
    origin = f"az monitor activity-log list ({event.event_data_id})"
    return machine.provider_chunk(origin, entry, identity)
