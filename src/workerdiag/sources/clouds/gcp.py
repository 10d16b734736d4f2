"""Google Compute Engine: operations on the instances of dead workers, and their kernels' output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import machine
from workerdiag.sources.machine import ProviderQuery, ProviderSource, Sdk
from workerdiag.values import frozen

#: Internal DNS names (Compute Engine documentation): zonal and global.
_INTERNAL = re.compile(
    r"(?P<name>[a-z][a-z0-9-]{0,62})(?:\.(?P<zone>[a-z]{1,20}-[a-z]{1,20}\d{1,3}-[a-z]))?\.c\.(?P<project>[a-z0-9:.-]{1,100}?)\.internal"
)
_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
#: Operations that end or move an instance; of others only failed ones matter.
#: System operations have the prefix, those of users do not (Compute Engine documentation,
#: "Compute Engine audit logging" and "Handling API responses").
_ENDING = (
    "compute.instances.preempted",
    "compute.instances.hostError",
    "compute.instances.terminateOnHostMaintenance",
    "compute.instances.guestTerminate",
    "compute.instances.automaticRestart",
    "compute.instances.repair.recreateInstance",
    "compute.instances.migrateOnHostMaintenance",
    "stop",
    "delete",
    "suspend",
    "reset",
)
#: Seconds by which an operation may follow the death: the provider notices a failed host late.
_LATE_S = {"compute.instances.hostError": 600.0, "compute.instances.automaticRestart": 600.0}


@frozen
class _GcpProject:
    name: str
    #: None stands for all zones.
    zone: str | None


@frozen
class GcpSource(ProviderSource):
    """Reads operations on the victims' instances (preempted, host error, stopped, deleted), and their consoles."""

    name: ClassVar[str] = "Compute Engine"
    terms: ClassVar[Terms] = Terms(
        lasts_s=14 * 86400.0,
        permission="compute.zoneOperations.list, compute.instances.get, compute.instances.getSerialPortOutput",
        extra="gcp",
        cost="at most eighteen calls of the Compute Engine API",
    )

    _endpoint: str | None = None

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for a ``GCPCluster`` or hosts with internal names of Compute Engine, else None."""
        lost = machine.scene_of_lost_machines(scene)
        return cls(lost) if lost and _project_of(lost) is not None else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        project = _project_of(self.scene)
        assert project is not None  # `of` has checked it
        compute = import_module("google.cloud.compute_v1")
        zones = [f"--zones={project.zone}"] if project.zone else []
        where = shlex.join([f"--project={project.name}", *zones])
        yield ProviderQuery(
            "compute.zoneOperations.list",
            f"gcloud compute operations list {where} --filter='targetLink~instances/'",
            lambda: self._operations(compute, project, deadline),
        )
        if project.zone:
            zone = f"--zone={shlex.quote(project.zone)}"
            yield ProviderQuery(
                "compute.instances.getSerialPortOutput",
                f"gcloud compute instances get-serial-port-output INSTANCE {zone}",
                lambda: self._consoles(compute, project, deadline),
            )

    def _client_options(self) -> dict[str, object]:
        return {"client_options": {"api_endpoint": self._endpoint}} if self._endpoint else {}

    def _victims_by_instance(self) -> dict[str, Victim]:
        names: dict[str, Victim] = {}
        for victim in self.scene.victims:
            name, internal = victim.identity.name or "", _INTERNAL.fullmatch(victim.identity.host or "")
            if self.scene.cluster_is("GCPCluster") and _NAME.fullmatch(name):
                names.setdefault(name, victim)
            elif internal:
                names.setdefault(internal["name"], victim)
        return names

    def _operations(self, compute: Sdk, project: _GcpProject, deadline: Deadline) -> Iterator[Evidence]:
        names = self._victims_by_instance()
        prefix = f"dask-{getattr(self.scene.cluster, 'uuid', None)}-"
        wanted = "|".join(sorted(names)) if names else f"{prefix}.*"
        if not names and (self.scene.victims or not self.scene.cluster_is("GCPCluster")):
            return
        for operation in self._list_operations(compute, project, wanted, deadline):
            target = str(operation.target_link).rpartition("/instances/")[2]
            victim = names.get(target)
            if victim is None:
                failed = operation.error.errors and self._is_recent(operation.insert_time)
                if failed and not self.scene.victims:
                    yield _operation_chunk(operation, Identity(name=target))
            elif self._may_explain_loss(operation, victim):
                yield _operation_chunk(operation, victim.identity)
        for victim in names.values():
            yield Inspected(identity=victim.identity)

    def _list_operations(
        self, compute: Sdk, project: _GcpProject, instances: str, deadline: Deadline
    ) -> Sequence[Sdk]:
        request = {
            "filter": f'targetLink eq ".*/instances/({instances})"',
            "max_results": 200,
            "project": project.name,
        }
        kind = compute.ZoneOperationsClient if project.zone else compute.GlobalOperationsClient
        client, once = kind(transport="rest", **self._client_options()), _request_options(deadline)
        if project.zone:
            page = next(iter(client.list(request={**request, "zone": project.zone}, **once).pages))
            found = list(page.items)
        else:
            page = next(iter(client.aggregated_list(request=request, **once).pages))
            found = [one for scoped in page.items.values() for one in scoped.operations]
        return sorted(found, key=lambda each: str(each.insert_time), reverse=True)

    def _may_explain_loss(self, operation: Sdk, victim: Victim) -> bool:
        kind = str(operation.operation_type)
        is_by_guest = kind == "compute.instances.guestTerminate"
        follows = is_by_guest and bool(getattr(self.scene.cluster, "auto_shutdown", False))
        happened = machine.to_timestamp(operation.insert_time or operation.start_time)
        missed = self._missed(victim)
        in_time = machine.may_be_reason(missed, happened, notice_s=_LATE_S.get(kind, 0.0))
        return kind in _ENDING and in_time and not follows

    def _consoles(self, compute: Sdk, project: _GcpProject, deadline: Deadline) -> Iterator[Evidence]:
        names = self._victims_by_instance()
        if not names:
            return
        instances = compute.InstancesClient(transport="rest", **self._client_options())
        for name, victim in names.items():
            which = {"project": project.name, "zone": project.zone, "instance": name}
            instance = instances.get(**which, **_request_options(deadline))
            started = machine.to_timestamp(instance.last_start_timestamp)
            output = instances.get_serial_port_output(**which, **_request_options(deadline))
            origin = f"gcloud compute instances get-serial-port-output {name}"
            times = {"started": started, "missed": self._missed(victim)}
            yield from machine.console_chunks(origin, output.contents, victim.identity, **times)


def _project_of(scene: Scene) -> _GcpProject | None:
    options = getattr(scene.cluster, "options", None)
    if scene.cluster_is("GCPCluster") and isinstance(options, dict):
        config = getattr(scene.cluster, "config", None) or {}
        project = options.get("projectid") or config.get("projectid")
        zone = options.get("zone") or config.get("zone")
        return _GcpProject(str(project), str(zone) if zone else None) if project else None
    for host in machine.victim_hosts(scene):
        name = _INTERNAL.fullmatch(host)
        if name:
            return _GcpProject(name["project"], name["zone"])
    return None


def _request_options(deadline: Deadline) -> dict[str, object]:
    return {"retry": None, "timeout": machine.request_timeout_s(deadline)}


def _operation_chunk(operation: Sdk, identity: Identity) -> LogChunk:
    """Return an operation as ``gcloud compute operations describe`` prints it, without who is charged for it."""
    error = "; ".join(f"{each.code}: {each.message}" for each in operation.error.errors)
    fields = {
        "endTime": operation.end_time,
        "error": error,
        "insertTime": operation.insert_time,
        "kind": "compute#operation",
        "name": operation.name,
        "operationType": operation.operation_type,
        "startTime": operation.start_time,
        "status": getattr(operation.status, "name", operation.status),
        "statusMessage": operation.status_message,
        "targetLink": operation.target_link,
        "user": operation.user,
    }
    text = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    origin = f"gcloud compute operations describe {operation.name}"
    return LogChunk(origin=origin, data=text.encode(), identity=identity)
