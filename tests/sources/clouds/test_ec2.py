"""EC2, ECS and CloudWatch Logs, asked through boto3 over HTTP.

The bodies are built from the API references (EC2 2016-11-15, ECS 2014-11-13, CloudWatch Logs
2014-03-28): moto knows the requests, but never a cause of death.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from contextlib import ExitStack
from functools import cache
from urllib.parse import parse_qs

import pytest

from support.hanging_peers import gives_up, only_timed_out
from support.http_server import HttpAnswer, HttpRequest, HttpServer
from support.lost_worker import (
    CLUSTER,
    MACHINE,
    NOW,
    cause_of,
    chunks,
    evidence_from,
    gaps,
    oom_kill,
    scene,
    text_in,
    utc,
    victim,
)
from workerdiag.model.evidence import Event, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook
from workerdiag.sources.clouds.ec2 import Ec2Source
from workerdiag.sources.clouds.ecs import EcsSource
from workerdiag.sources.stores.cloudwatch import CloudWatchSource

pytest.importorskip("boto3")

pytestmark = pytest.mark.slow

#: Each session reads megabytes of service descriptions otherwise.
SHARED_LOADER = cache(importlib.import_module("botocore.loaders").create_loader)
ADDRESS = "tcp://10.0.1.2:34937"
DEAD = victim(ADDRESS)


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    """Such as no account has, and nothing of this machine's."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("botocore.session.create_loader", SHARED_LOADER)


@pytest.fixture
def aws(monkeypatch):
    """Starts a server of AWS's services, which answers by the operation."""
    with ExitStack() as servers:

        def start(**answers: HttpAnswer) -> HttpServer:
            def answer(asked: HttpRequest) -> HttpAnswer:
                return answers.get(operation(asked), HttpAnswer(EMPTY.get(operation(asked), {})))

            server = servers.enter_context(HttpServer(answer))
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
            return server

        yield start


def operation(asked: HttpRequest) -> str:
    """Which one a request is for."""
    if target := asked.headers.get("X-Amz-Target"):
        return target.rpartition(".")[2]
    return parse_qs(asked.body.decode()).get("Action", [""])[0]


def xml(action: str, inner: str) -> HttpAnswer:
    body = f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{inner}</{action}Response>'
    return HttpAnswer(body, type="text/xml")


EMPTY = {
    "DescribeSpotInstanceRequests": "<DescribeSpotInstanceRequestsResponse/>",
    "DescribeInstanceStatus": "<DescribeInstanceStatusResponse/>",
    "GetConsoleOutput": "<GetConsoleOutputResponse/>",
    "DescribeInstances": "<DescribeInstancesResponse/>",
}


def instances(
    code: str = "",
    *,
    name: str = MACHINE,
    state: str = "terminated",
    launched_s: float = 3600,
    stopped_s: float = 5,
    address: str = "",
    spot: str = "",
) -> HttpAnswer:
    """One instance; terminated ones have lost their addresses."""
    said = utc(stopped_s, "%Y-%m-%d %H:%M:%S GMT")
    reason = (
        f"<stateReason><code>{code}</code><message>{code}: as documented</message></stateReason>" if code else ""
    )
    return xml(
        "DescribeInstances",
        f"""<reservationSet><item><instancesSet><item>
        <instanceId>i-0a1b2c3d4e5f60718</instanceId><instanceType>m6i.large</instanceType>
        <launchTime>{utc(launched_s)}</launchTime>
        <instanceState><code>48</code><name>{state}</name></instanceState>
        <reason>{"User initiated" if "User" in code else code} ({said})</reason>{reason}
        <privateIpAddress>{address}</privateIpAddress>
        {f"<instanceLifecycle>spot</instanceLifecycle><spotInstanceRequestId>{spot}</spotInstanceRequestId>" if spot else ""}
        <tagSet><item><key>Name</key><value>{name}</value></item>
        <item><key>Dask Cluster</key><value>{CLUSTER}</value></item>
        <item><key>secret</key><value>hunter2</value></item></tagSet>
        </item></instancesSet></item></reservationSet>""",
    )


class EC2Cluster:
    """What sources look at of dask-cloudprovider's class of this name (2025.9.0)."""

    region = "eu-central-1"
    uuid = CLUSTER
    auto_shutdown = True


def ec2(*victims: Victim, **places) -> Ec2Source | None:
    """The source for a cluster of machines; of the one dead worker unless others are given."""
    return Ec2Source.of(scene(*victims or (DEAD,), cluster=EC2Cluster(), **places))


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("Server.SpotInstanceTermination", "cloud.spot-interruption"),
        ("Server.SpotInstanceShutdown", "cloud.spot-interruption"),
        ("Server.ScheduledStop", "cloud.maintenance"),
        ("Server.InternalError", "cloud.maintenance"),
        ("Client.UserInitiatedShutdown", "cloud.instance-stopped"),
        ("Client.UserInitiatedHibernate", "cloud.instance-stopped"),
    ],
)
def test_the_state_reason_of_the_workers_instance_names_the_cause(aws, code, cause):
    """Each documented reason for which a running instance ends is understood."""
    aws(DescribeInstances=instances(code))
    pieces = evidence_from(ec2())
    assert not gaps(pieces)
    assert cause_of(pieces) == cause
    assert {each.identity.worker for each in chunks(pieces)} == {ADDRESS}


def test_what_ec2_says_and_what_the_scheduler_saw_is_one_death(aws):
    """The answer bears the identity of the worker that was lost, and of no other."""
    aws(DescribeInstances=instances("Server.SpotInstanceTermination"))
    other = Identity(worker="tcp://10.0.1.3:40001", host="10.0.1.3")
    removed = [
        Event(
            topic="all",
            fields={"action": "remove-worker", "worker": each.worker, "expected": False},
            when=NOW,
            identity=each,
        )
        for each in (DEAD.identity, other)
    ]
    findings = diagnose([*removed, *evidence_from(ec2())], load_rulebook())
    causes = {each.identity.worker: each.cause for each in findings.deaths}
    assert causes == {ADDRESS: "cloud.spot-interruption", other.worker: None}


def test_tags_of_an_instance_stay_where_they_are(aws):
    """Nothing of an instance is told but what a cause may be in."""
    aws(DescribeInstances=instances("Client.UserInitiatedShutdown"))
    assert b"hunter2" not in text_in(evidence_from(ec2()))


def test_only_reading_calls_are_made(aws):
    """Asking changes nothing."""
    server = aws(DescribeInstances=instances("Server.SpotInstanceTermination", spot="sir-1"))
    evidence_from(ec2())
    operations = {operation(each) for each in server.requests}
    assert "DescribeInstances" in operations
    assert all(each.startswith(("Describe", "Get")) for each in operations)


def test_an_instance_that_was_stopped_after_the_death_is_no_cause(aws):
    """``SpecCluster`` stops the machine of a worker 15 seconds after it was lost; that is a consequence."""
    aws(DescribeInstances=instances("Client.UserInitiatedShutdown", stopped_s=-15))
    assert not chunks(evidence_from(ec2()))


def test_a_machine_that_ends_with_its_worker_is_no_cause(aws):
    """dask-cloudprovider's machines shut themselves down when the container has ended."""
    aws(DescribeInstances=instances("Client.InstanceInitiatedShutdown", stopped_s=2))
    assert not chunks(evidence_from(ec2()))


def test_a_later_instance_with_the_same_address_is_not_the_victims(aws):
    """Private addresses are given out again."""
    aws(
        DescribeInstances=instances(
            "Server.SpotInstanceTermination",
            name="other",
            address="10.0.1.2",
            launched_s=-30,
            state="terminated",
        )
    )
    found = evidence_from(ec2())
    assert not chunks(found)
    assert [each.reason for each in gaps(found)] == ["expired"]


def test_clocks_that_differ_are_set_right_before_anything_is_compared(aws):
    """The scheduler's clock is three minutes ahead of ours and of the provider's."""
    aws(DescribeInstances=instances("Client.UserInitiatedShutdown", stopped_s=5))
    ahead = Location(role="scheduler", identity=Identity(host="10.0.0.1"), clock_ahead_s=180.0)
    assert chunks(evidence_from(ec2(victim(ADDRESS, when=NOW + 180.0), locations=(ahead,))))
    assert not chunks(evidence_from(ec2(victim(ADDRESS, when=NOW + 160.0), locations=(ahead,))))


def test_a_host_name_of_ec2_is_enough_to_ask(aws):
    """Without a cluster object the instance id and the region are in the name of the host."""
    host = "i-0a1b2c3d4e5f60718.us-west-2.compute.internal"
    server = aws(DescribeInstances=instances("Server.SpotInstanceTermination", name=""))
    assert chunks(evidence_from(Ec2Source.of(scene(victim(f"tcp://{host}:1234", name=None)))))
    assert b"Filter.1.Value.1=i-0a1b2c3d4e5f60718" in server.requests[0].body
    assert "us-west-2" in server.requests[0].headers["Authorization"]


def test_the_name_of_another_machine_of_ec2_is_enough_to_ask(aws):
    """The scheduler's machine tells where this is; the victim is known by its private address."""
    scheduler = Location(
        role="scheduler",
        identity=Identity(host="10.0.0.9"),
        hostname="ip-10-0-0-9.eu-west-1.compute.internal",
    )
    stopped = instances("Server.SpotInstanceShutdown", name="", state="stopped", address="10.0.1.2")
    server = aws(DescribeInstances=stopped)
    assert chunks(evidence_from(Ec2Source.of(scene(victim(ADDRESS, name=None), locations=(scheduler,)))))
    assert b"Filter.1.Name=private-ip-address&Filter.1.Value.1=10.0.1.2" in server.requests[0].body


def test_a_machine_that_still_answers_is_not_asked_about():
    """Where a nanny survived, the provider has nothing to say that the machine would not say itself."""
    nanny = Location(role="nanny", identity=Identity(host="10.0.1.2"), hostname="ip-10-0-1-2.ec2.internal")
    assert ec2(locations=(nanny,)) is None
    assert ec2() is not None


@pytest.mark.parametrize(
    "status",
    [
        "instance-terminated-by-price",
        "instance-terminated-no-capacity",
        "instance-terminated-capacity-oversubscribed",
        "instance-terminated-launch-group-constraint",
        "instance-stopped-no-capacity",
        "instance-stopped-by-price",
        "instance-stopped-capacity-oversubscribed",
        "marked-for-termination",
        "marked-for-stop",
    ],
)
def test_the_status_of_the_spot_request_is_asked_as_well(aws, status):
    """It tells of a taken machine also where the instance does not say more than that it ended."""
    request = f"""<spotInstanceRequestSet><item><spotInstanceRequestId>sir-1</spotInstanceRequestId>
    <instanceId>i-0a1b2c3d4e5f60718</instanceId><state>closed</state>
    <status><code>{status}</code><updateTime>{utc(-20)}</updateTime><message>as documented</message></status>
    </item></spotInstanceRequestSet>"""
    aws(
        DescribeInstances=instances("", spot="sir-1"),
        DescribeSpotInstanceRequests=xml("DescribeSpotInstanceRequests", request),
    )
    assert cause_of(evidence_from(ec2())) == "cloud.spot-interruption"


def status_of(inner: str) -> HttpAnswer:
    return xml(
        "DescribeInstanceStatus",
        f"<instanceStatusSet><item><instanceId>i-0a1b2c3d4e5f60718</instanceId>{inner}</item></instanceStatusSet>",
    )


def event(code: str, begins_s: float) -> str:
    return f"""<eventsSet><item><instanceEventId>instance-event-1</instanceEventId><code>{code}</code>
    <description>as documented</description><notBefore>{utc(begins_s)}</notBefore></item></eventsSet>"""


@pytest.mark.parametrize(
    "code", ["instance-retirement", "instance-stop", "instance-reboot", "system-reboot", "system-maintenance"]
)
def test_a_scheduled_event_that_was_due_names_the_provider(aws, code):
    """Maintenance, reboots and retirements are announced there."""
    aws(DescribeInstances=instances(state="running"), DescribeInstanceStatus=status_of(event(code, 30)))
    assert cause_of(evidence_from(ec2())) == "cloud.maintenance"


def test_an_event_of_next_week_is_not_told(aws):
    """What is still to come killed nobody."""
    aws(
        DescribeInstances=instances(state="running"),
        DescribeInstanceStatus=status_of(event("instance-retirement", -7 * 86400)),
    )
    assert not chunks(evidence_from(ec2()))


def test_a_failed_check_of_the_host_names_the_provider(aws):
    """The system status is about the machine below the instance."""
    failed = f"""<systemStatus><status>impaired</status><details><item><name>reachability</name>
    <status>failed</status><impairedSince>{utc(60)}</impairedSince></item></details></systemStatus>"""
    aws(DescribeInstances=instances(state="running"), DescribeInstanceStatus=status_of(failed))
    assert cause_of(evidence_from(ec2())) == "cloud.maintenance"


def test_the_console_tells_what_the_kernel_did_then_and_not_before(aws):
    """Only lines stamped around the death are of it; the machine's uptime is known."""
    text = "\n".join([oom_kill(1000.0, 11), oom_kill(3580.0, 22), "login: "])
    console = f"<instanceId>i-1</instanceId><output>{base64.b64encode(text.encode()).decode()}</output>"
    aws(DescribeInstances=instances(state="running"), GetConsoleOutput=xml("GetConsoleOutput", console))
    pieces = evidence_from(ec2())
    [chunk] = chunks(pieces)
    assert b"process 22" in chunk.data
    assert b"process 11" not in chunk.data
    assert cause_of(pieces) == "kernel.oom-killer"


def test_instances_of_this_cluster_that_never_came_up_are_told_where_nobody_died(aws):
    """Workers that never arrive have no address, only a reason."""
    aws(DescribeInstances=instances("Server.InsufficientInstanceCapacity", launched_s=60))
    assert cause_of(evidence_from(Ec2Source.of(scene(cluster=EC2Cluster())))) == "cloud.no-capacity"


def test_nothing_is_asked_of_clusters_elsewhere():
    """Which sources apply is worked out from the cluster and the hosts."""
    local = scene(DEAD, cluster=object())
    assert Ec2Source.of(local) is None
    assert EcsSource.of(local) is None
    assert CloudWatchSource.of(local) is None


# ----------------------------------------------------------------------------- what goes wrong


def refusal(code: str, status: int) -> HttpAnswer:
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>as documented</Message></Error></Errors></Response>"
    )
    return HttpAnswer(body, status=status, type="text/xml")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusal("UnauthorizedOperation", 403), "forbidden"),
        (refusal("AuthFailure", 401), "forbidden"),
        (refusal("RequestLimitExceeded", 503), "unreachable"),
        (refusal("Unavailable", 503), "unreachable"),
        (HttpAnswer(b"\x00\xff<<garbage", type="text/xml"), "malformed"),
    ],
)
def test_refusals_and_garbage_are_gaps_with_the_command_to_type(aws, answer, reason):
    """What could not be asked is said, and how a person would ask."""
    aws(DescribeInstances=answer)
    found = gaps(evidence_from(ec2()))
    assert found[0].reason == reason
    assert found[0].remedy.startswith("aws ec2 describe-instances --filters 'Name=tag:Dask Cluster")


@gives_up
def test_a_server_that_hangs_is_left_behind(aws):
    """The source ends by itself, while the server hangs, and says so once."""
    server = aws(DescribeInstances=HttpAnswer(hangs=True))
    [gap] = evidence_from(ec2(), budget_s=2.0)
    assert gap.reason == "timed-out"
    assert server.is_hanging()


@gives_up
def test_an_answer_of_100_megabytes_and_more_is_left_behind(aws):
    """The SDK reads it wholly, however long it takes; it is left behind while it does."""
    server = aws(DescribeInstances=HttpAnswer(b"x" * 2**20, times=100, drips=True, type="text/xml"))
    assert only_timed_out(evidence_from(ec2(), budget_s=2.0))
    assert server.is_hanging()


def test_nobody_listening_is_a_gap(monkeypatch):
    """A closed port is unreachable."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert gaps(evidence_from(ec2()))[0].reason == "unreachable"


def test_without_credentials_the_gap_says_so_once(aws, monkeypatch):
    """The other calls would fail for the same reason."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    aws()
    [gap] = gaps(evidence_from(ec2()))
    assert gap.reason == "forbidden"
    assert "credentials" in gap.detail


def test_without_boto3_the_gap_names_the_extra(monkeypatch):
    """The SDK is imported where it is used, and missed in words."""
    monkeypatch.setitem(sys.modules, "botocore.config", None)
    [gap] = gaps(evidence_from(ec2()))
    assert gap.reason == "not-installed"
    assert gap.remedy == "pip install 'workerdiag[aws]'"


# ----------------------------------------------------------------------------------- ECS, Fargate

ARN = "arn:aws:ecs:eu-central-1:123456789012:cluster/dask-lab"
DEFINITION = "arn:aws:ecs:eu-central-1:123456789012:task-definition/dask-lab-worker:1"
TASK = "0123456789abcdef0123456789abcdef"


class ECSCluster:
    """What sources look at of dask-cloudprovider's class of this name (2025.9.0)."""

    cluster_arn = ARN
    worker_task_definition_arn = DEFINITION
    scheduler_task_definition_arn = DEFINITION.replace("worker", "scheduler")
    cloudwatch_logs_group = "dask-ecs"


class FargateCluster(ECSCluster):
    pass


#: dask-cloudprovider counts workers of ECS.
THIRD = victim(ADDRESS, name="3")


def fargate(*victims: Victim) -> Scene:
    return scene(*victims, cluster=FargateCluster())


def task(
    stop_code: str = "EssentialContainerExited",
    reason: str = "Essential container in task exited",
    *,
    address: str = "10.0.1.2",
    name: str = "3",
    stopped_s: float = 2.0,
    definition: str = DEFINITION,
    **container,
) -> dict:
    return {
        "taskArn": f"{ARN.replace('cluster', 'task')}/{TASK}",
        "clusterArn": ARN,
        "taskDefinitionArn": definition,
        "lastStatus": "STOPPED",
        "desiredStatus": "STOPPED",
        "launchType": "FARGATE",
        "stopCode": stop_code,
        "stoppedReason": reason,
        "createdAt": NOW - 700,
        "startedAt": NOW - 600,
        "stoppingAt": NOW - stopped_s - 1,
        "stoppedAt": NOW - stopped_s,
        "attachments": [
            {
                "type": "ElasticNetworkInterface",
                "status": "DELETED",
                "details": [{"name": "privateIPv4Address", "value": address}] if address else [],
            }
        ],
        "overrides": {
            "containerOverrides": [
                {"name": "dask-worker", "command": ["dask-worker", "tcp://10.0.0.9:8786", "--name", name]}
            ]
        },
        "containers": [{"name": "dask-worker", "lastStatus": "STOPPED", **container}],
    }


def ecs(aws, *tasks: dict):
    return aws(
        ListTasks=HttpAnswer({"taskArns": [each["taskArn"] for each in tasks]}),
        DescribeTasks=HttpAnswer({"tasks": list(tasks), "failures": []}),
    )


@pytest.mark.parametrize(
    ("stopped", "cause"),
    [
        (task("SpotInterruption", "Your Spot Task was interrupted."), "cloud.spot-interruption"),
        (task("UserInitiated", "Task stopped by user"), "cloud.instance-stopped"),
        (
            task("ServiceSchedulerInitiated", "Scaling activity initiated by (deployment ecs-svc/1)"),
            "cloud.instance-stopped",
        ),
        (
            task("", "ECS is performing maintenance on the underlying infrastructure hosting the task."),
            "cloud.maintenance",
        ),
        (task("InfrastructureHealth", "The infrastructure failed its health check"), "cloud.maintenance"),
        (
            task(exitCode=137),
            "external.sigkill",
        ),
    ],
)
def test_the_stop_code_of_the_workers_task_names_the_cause(aws, stopped, cause):
    """Each documented reason for which a running task stops is understood."""
    ecs(aws, stopped)
    pieces = evidence_from(EcsSource.of(fargate(THIRD)))
    assert not gaps(pieces)
    assert cause_of(pieces) == cause
    assert {each.identity.container for each in chunks(pieces)} == {TASK}


def test_a_container_killed_for_memory_is_told_as_such(aws):
    """ECS says so itself; the exit status alone would not."""
    stopped = task(exitCode=137)
    stopped["containers"][0]["reason"] = "OutOfMemoryError: Container killed due to memory usage"
    ecs(aws, stopped)
    pieces = evidence_from(EcsSource.of(fargate(THIRD)))
    [end] = [each for each in pieces if isinstance(each, ProcessExit)]
    assert (end.signal, end.status) == (9, None)
    assert cause_of(pieces) == "kernel.oom-killer"


def test_a_task_of_another_address_is_not_the_victims(aws):
    """Clusters of ECS are shared; names such as "3" occur in each."""
    ecs(aws, task("SpotInterruption", "Your Spot Task was interrupted.", address="10.0.9.9"))
    pieces = evidence_from(EcsSource.of(fargate(THIRD)))
    assert not chunks(pieces)
    assert [each.reason for each in gaps(pieces)] == ["expired"]


def test_a_task_without_an_address_is_known_by_name_and_definition(aws):
    """Both together belong to one worker of one cluster."""
    ecs(aws, task("SpotInterruption", "Your Spot Task was interrupted.", address=""))
    assert chunks(evidence_from(EcsSource.of(fargate(THIRD))))
    ecs(aws, task("SpotInterruption", "Your Spot Task was interrupted.", address="", definition="other"))
    assert not chunks(evidence_from(EcsSource.of(fargate(THIRD))))


def test_a_task_that_the_cluster_object_stopped_afterwards_is_no_cause(aws):
    """It stops the tasks of workers that are lost."""
    ecs(aws, task("UserInitiated", "Task stopped by user", stopped_s=-20))
    assert not chunks(evidence_from(EcsSource.of(fargate(THIRD))))


def test_tasks_that_failed_to_start_are_told_where_nobody_died(aws):
    """The image cannot be pulled, so no worker ever has an address."""
    reason = "CannotPullContainerError: failed to resolve ref docker.io/daskdev/dask:nope: not found"
    ecs(aws, task("TaskFailedToStart", reason), task("TaskFailedToStart", "of others", definition="other"))
    pieces = evidence_from(EcsSource.of(fargate()))
    assert len(chunks(pieces)) == 1
    assert cause_of(pieces) == "cloud.image-pull"


def test_a_forbidden_listing_is_a_gap_with_the_command(aws):
    """ECS refuses in JSON."""
    denied = {
        "__type": "AccessDeniedException",
        "message": "User is not authorized to perform: ecs:ListTasks",
    }
    aws(ListTasks=HttpAnswer(denied, status=400))
    [gap] = gaps(evidence_from(EcsSource.of(fargate(THIRD))))
    assert gap.reason == "forbidden"
    assert ARN in gap.remedy


# ------------------------------------------------------------------------------- CloudWatch Logs


def cloudwatch(aws, *starts: dict, lines: tuple[str, ...] = ()):
    return aws(
        FilterLogEvents=HttpAnswer({"events": list(starts)}),
        GetLogEvents=HttpAnswer({"events": [{"timestamp": int(NOW * 1000), "message": each} for each in lines]}),
    )


def start(stream: str, ago_s: float) -> dict:
    return {
        "logStreamName": stream,
        "timestamp": int((NOW - ago_s) * 1000),
        "message": f"Start worker at: {ADDRESS}",
    }


def test_the_log_of_the_last_container_that_started_at_the_address_is_read(aws):
    """An earlier container had the same address; its stream is left alone."""
    old, new = "dask-lab/dask-worker/0ld", f"dask-lab/dask-worker/{TASK}"
    server = cloudwatch(aws, start(old, 5000), start(new, 600), lines=("one", "two"))
    [chunk] = chunks(evidence_from(CloudWatchSource.of(fargate(THIRD))))
    assert chunk.data == b"one\ntwo\n"
    assert chunk.identity.container == TASK
    read = [json.loads(each.body) for each in server.requests if operation(each) == "GetLogEvents"]
    assert [each["logStreamName"] for each in read] == [new]


def test_a_log_group_that_knows_no_such_worker_is_a_gap(aws):
    """Nothing found is not nothing written."""
    cloudwatch(aws)
    [gap] = gaps(evidence_from(CloudWatchSource.of(fargate(THIRD))))
    assert gap.reason == "never-recorded"
    assert "dask-ecs" in gap.remedy


def test_a_missing_log_group_is_a_gap_with_the_command(aws):
    """Groups are deleted with their clusters, and after their retention."""
    missing = {"__type": "ResourceNotFoundException", "message": "The specified log group does not exist."}
    aws(FilterLogEvents=HttpAnswer(missing, status=400))
    [gap] = gaps(evidence_from(CloudWatchSource.of(fargate(THIRD))))
    assert gap.reason == "expired"
    assert "filter-log-events" in gap.remedy


@pytest.mark.parametrize("kind", [EcsSource, CloudWatchSource])
@gives_up
def test_the_other_services_are_left_behind_as_well(aws, kind):
    """Neither waits for a server that hangs."""
    server = aws(ListTasks=HttpAnswer(hangs=True), FilterLogEvents=HttpAnswer(hangs=True))
    assert only_timed_out(evidence_from(kind.of(fargate(THIRD)), budget_s=2.0))
    assert server.is_hanging()
