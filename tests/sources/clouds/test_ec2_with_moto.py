"""The requests of the AWS sources, answered by moto: it knows the services' shapes, if not their causes."""

from __future__ import annotations

import time

import pytest

from support.lost_worker import CLUSTER, MACHINE, chunks, evidence_from, gaps, scene, victim
from workerdiag.sources.clouds.ec2 import Ec2Source
from workerdiag.sources.clouds.ecs import EcsSource
from workerdiag.sources.stores.cloudwatch import CloudWatchSource

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")

pytestmark = pytest.mark.slow

REGION = "eu-central-1"
ADDRESS = "tcp://10.0.1.2:34937"


@pytest.fixture(scope="module")
def moto():
    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_CONFIG_FILE": "/nonexistent",
            "NO_PROXY": host,
        }.items():
            patch.setenv(name, value)
        yield
    server.stop()


class EC2Cluster:
    region = REGION
    uuid = CLUSTER
    auto_shutdown = False


class ECSCluster:
    _region_name = REGION
    worker_task_definition_arn = "arn:aws:ecs:eu-central-1:123456789012:task-definition/lab-worker:1"
    cloudwatch_logs_group = "dask-ecs"

    def __init__(self, arn):
        self.cluster_arn = arn


def test_a_terminated_instance_is_found_by_the_tags_of_its_cluster(moto):
    """All calls for an instance pass, and the state reason comes back as it was answered."""
    ec2 = boto3.client("ec2", region_name=REGION)
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"Key": "Name", "Value": MACHINE}, {"Key": "Dask Cluster", "Value": CLUSTER}]
    made = ec2.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    ec2.terminate_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])
    pieces = evidence_from(Ec2Source.of(scene(victim(ADDRESS, when=time.time()), cluster=EC2Cluster())))
    assert not gaps(pieces)
    [chunk] = chunks(pieces)
    assert b"Client.UserInitiatedShutdown" in chunk.data


def test_a_cluster_without_stopped_tasks_leaves_a_gap(moto):
    """The calls for tasks pass; nothing found is said."""
    ecs = boto3.client("ecs", region_name=REGION)
    arn = ecs.create_cluster(clusterName="lab")["cluster"]["clusterArn"]
    [gap] = gaps(evidence_from(EcsSource.of(scene(victim(ADDRESS, when=time.time()), cluster=ECSCluster(arn)))))
    assert gap.reason == "expired"


def test_the_stream_in_which_a_worker_notes_its_address_is_read(moto):
    """The calls for logs pass, with a filter pattern that finds the stream."""
    logs = boto3.client("logs", region_name=REGION)
    logs.create_log_group(logGroupName="dask-ecs")
    stream = "lab/dask-worker/0123"
    logs.create_log_stream(logGroupName="dask-ecs", logStreamName=stream)
    now = int(time.time() * 1000)
    lines = [f"distributed.worker - INFO -       Start worker at: {ADDRESS:>26}", "the last words"]
    events = [{"timestamp": now - 5000 + at, "message": line} for at, line in enumerate(lines)]
    logs.put_log_events(logGroupName="dask-ecs", logStreamName=stream, logEvents=events)
    cluster = ECSCluster("arn:aws:ecs:eu-central-1:123456789012:cluster/lab")
    [chunk] = chunks(evidence_from(CloudWatchSource.of(scene(victim(ADDRESS, when=time.time()), cluster=cluster))))
    assert chunk.data.endswith(b"the last words\n")
    assert chunk.identity.container == "0123"
