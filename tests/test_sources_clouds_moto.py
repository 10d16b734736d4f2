"""
The requests of the AWS sources, answered by moto: it knows the services' shapes, if not their causes.
"""

from __future__ import annotations

import time

import pytest

from workerdiag.model.evidence import Gap, Identity, LogChunk
from workerdiag.model.scene import Scene, Victim
from workerdiag.sources.clouds.ec2 import Ec2Source
from workerdiag.sources.clouds.ecs import EcsSource
from workerdiag.sources.stores.cloudwatch import CloudWatchSource

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")

REGION = "eu-central-1"
WORKER = "dask-1f2e3d4c-worker-0a1b2c3d"
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
    uuid = "1f2e3d4c"
    auto_shutdown = False


class ECSCluster:
    _region_name = REGION
    worker_task_definition_arn = "arn:aws:ecs:eu-central-1:123456789012:task-definition/lab-worker:1"
    cloudwatch_logs_group = "dask-ecs"

    def __init__(self, arn):
        self.cluster_arn = arn


class Client:
    def __init__(self, cluster):
        self.cluster = cluster


def scene(cluster: object) -> Scene:
    whose = Identity(worker=ADDRESS, pid=77, name=WORKER, host="10.0.1.2")
    now = time.time()
    return Scene(
        client=Client(cluster), victims=(Victim(whose=whose, when=now),), since=now - 900, until=now + 120
    )


def test_a_terminated_instance_is_found_by_the_tags_of_its_cluster(moto):
    """
    All calls for an instance pass, and the state reason comes back as it was answered.
    """
    ec2 = boto3.client("ec2", region_name=REGION)
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"Key": "Name", "Value": WORKER}, {"Key": "Dask Cluster", "Value": "1f2e3d4c"}]
    made = ec2.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    ec2.terminate_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])
    source = Ec2Source.of(scene(EC2Cluster()))
    assert source is not None
    pieces = list(source.collect(budget_s=20.0))
    assert not [each for each in pieces if isinstance(each, Gap)]
    [chunk] = [each for each in pieces if isinstance(each, LogChunk)]
    assert b"Client.UserInitiatedShutdown" in chunk.data


def test_a_cluster_without_stopped_tasks_leaves_a_gap(moto):
    """
    The calls for tasks pass; nothing found is said.
    """
    ecs = boto3.client("ecs", region_name=REGION)
    arn = ecs.create_cluster(clusterName="lab")["cluster"]["clusterArn"]
    source = EcsSource.of(scene(ECSCluster(arn)))
    assert source is not None
    [gap] = list(source.collect(budget_s=20.0))
    assert isinstance(gap, Gap)
    assert gap.reason == "expired"


def test_the_stream_in_which_a_worker_notes_its_address_is_read(moto):
    """
    The calls for logs pass, with a filter pattern that finds the stream.
    """
    logs = boto3.client("logs", region_name=REGION)
    logs.create_log_group(logGroupName="dask-ecs")
    stream = "lab/dask-worker/0123"
    logs.create_log_stream(logGroupName="dask-ecs", logStreamName=stream)
    now = int(time.time() * 1000)
    lines = [f"distributed.worker - INFO -       Start worker at: {ADDRESS:>26}", "the last words"]
    events = [{"timestamp": now - 5000 + at, "message": line} for at, line in enumerate(lines)]
    logs.put_log_events(logGroupName="dask-ecs", logStreamName=stream, logEvents=events)
    source = CloudWatchSource.of(scene(ECSCluster("arn:aws:ecs:eu-central-1:123456789012:cluster/lab")))
    assert source is not None
    pieces = list(source.collect(budget_s=20.0))
    [chunk] = [each for each in pieces if isinstance(each, LogChunk)]
    assert chunk.data.endswith(b"the last words\n")
    assert chunk.whose.container == "0123"
