"""Peers of all shipped sources that hang, and scenes in which each source asks one: for patience.py."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import evolve

from workerdiag.model.evidence import EvidenceSource
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene
from workerdiag.sources.batch.log_directory import LogDirectorySource
from workerdiag.sources.batch.systems import (
    GridEngineSource,
    HTCondorSource,
    LSFSource,
    OARSource,
    PBSSource,
    SlurmSource,
)
from workerdiag.sources.clouds.azure import AzureSource
from workerdiag.sources.clouds.ec2 import Ec2Source
from workerdiag.sources.clouds.ecs import EcsSource
from workerdiag.sources.clouds.gcp import GcpSource
from workerdiag.sources.coiled import CoiledSource
from workerdiag.sources.host.source import HostSource
from workerdiag.sources.kubernetes.source import KubernetesSource
from workerdiag.sources.stores.cloudwatch import CloudWatchSource
from workerdiag.sources.stores.journald import JournalSource
from workerdiag.sources.stores.loki import LokiSource

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import fake_batch_system
from support.lost_worker import CLUSTER, NOW, scene, victim

#: Each batch system with what tells a job of it that it is one.
JOBS = {
    SlurmSource: {"SLURM_JOB_ID": "17"},
    PBSSource: {"PBS_JOBID": "17.pbs01"},
    LSFSource: {"LSB_JOBID": "17"},
    GridEngineSource: {"JOB_ID": "17", "SGE_ROOT": "/opt/sge"},
    HTCondorSource: {"CONDOR_ID": "17.0"},
    OARSource: {"OAR_JOB_ID": "17"},
}
COMMANDS = (
    *("scontrol", "sacct", "qstat", "tracejob", "bjobs", "bhist", "qacct"),
    *("condor_q", "condor_history", "oarstat", "journalctl"),
)
_ARN = "arn:aws:ecs:eu-central-1:123456789012"


@contextmanager
def silent_port() -> Iterator[str]:
    """The URL of a port of this machine that accepts connections, and where nobody ever says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def environment(url: str, folder: Path) -> Mapping[str, str]:
    """The variables that lead all sources to the server at *url*, and to commands in *folder* that sleep."""
    for name in COMMANDS:
        fake_batch_system.install_command(folder, name, "exec sleep 600")
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "not-a-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "KUBECONFIG": str(folder / "kubeconfig"),
        "LOKI_ADDR": url,
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "GOOGLE_APPLICATION_CREDENTIALS": str(_google_key(folder / "key.json")),
    }


def makers(url: str, folder: Path) -> dict[str, Callable[[], EvidenceSource]]:
    """What makes each shipped source, by the name of its class, of a scene in which it has somebody to ask."""
    ecs = scene(victim("tcp://10.0.1.2:34937", name="3"), cluster=_cluster_of_ecs())
    (folder / "logs").mkdir()
    job = fake_batch_system.FakeJob("w-0", "17", log_directory=str(folder / "logs"))
    jobs = fake_batch_system.scene(fake_batch_system.victim(NOW), of=fake_batch_system.cluster("SLURMCluster", job))
    return {
        **{kind.__name__: _job(kind, variables) for kind, variables in JOBS.items()},
        "HostSource": lambda: HostSource(_frozen()),
        "KubernetesSource": lambda: _made(KubernetesSource, _with(KUBERNETES_SERVICE_HOST="10.96.0.1")),
        "LogDirectorySource": lambda: _made(LogDirectorySource, jobs),
        "Ec2Source": lambda: _made(Ec2Source, _of("EC2Cluster", region="eu-central-1", uuid=CLUSTER)),
        "EcsSource": lambda: _made(EcsSource, ecs),
        "CloudWatchSource": lambda: _made(CloudWatchSource, ecs),
        "GcpSource": lambda: GcpSource(_google(), endpoint=url),
        "AzureSource": lambda: AzureSource(_azure(), endpoint=url.replace("http:", "https:")),
        "CoiledSource": lambda: _made(CoiledSource, _coiled()),
        "LokiSource": lambda: _made(LokiSource, _of("LocalCluster")),
        "JournalSource": lambda: _made(JournalSource, _in_a_unit()),
    }


def silent_client() -> Any:
    """What sources use of a client: its scheduler tells of a nanny, and neither of them answers anything else."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def identity(**_: object) -> dict[str, Any]:
        return {"workers": {"tcp://10.0.0.7:9": {"nanny": "tcp://10.0.0.7:41001"}}}

    async def never(**_: object) -> None:
        await asyncio.Event().wait()

    scheduler = SimpleNamespace(
        identity=identity, broadcast=never, run_function=never, address="tcp://10.0.0.1:8786"
    )
    return SimpleNamespace(
        scheduler=scheduler, status="running", loop=SimpleNamespace(asyncio_loop=loop), cluster=None
    )


def _made(kind: Any, of: Scene) -> EvidenceSource:
    source: EvidenceSource | None = kind.of(of)
    assert source is not None, f"{kind.__name__} has nothing to ask"
    return source


def _job(kind: Any, variables: Mapping[str, str]) -> Callable[[], EvidenceSource]:
    return lambda: _made(kind, _with(**variables))


def _with(**variables: str) -> Scene:
    return fake_batch_system.scene(fake_batch_system.victim(NOW), **variables)


def _of(kind: str, **fields: object) -> Scene:
    """A scene with a cluster object of a class of that name, and a worker that was lost with its machine."""
    return scene(victim("tcp://10.0.1.2:34937"), cluster=type(kind, (), fields)())


def _cluster_of_ecs() -> object:
    fields = {
        "cluster_arn": f"{_ARN}:cluster/dask-lab",
        "worker_task_definition_arn": f"{_ARN}:task-definition/dask-lab-worker:1",
        "scheduler_task_definition_arn": f"{_ARN}:task-definition/dask-lab-scheduler:1",
        "cloudwatch_logs_group": "dask-ecs",
    }
    return type("ECSCluster", (), fields)()


def _google() -> Scene:
    options = {"projectid": "acme", "zone": "us-east1-c"}
    return _of("GCPCluster", uuid=CLUSTER, auto_shutdown=True, options=options, config={})


def _google_key(path: Path) -> Path:
    """The file of a service account that nobody has; none is written where no key can be made."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError:
        return path
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kind = serialization.PrivateFormat.PKCS8
    pem = private.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    account = {
        "type": "service_account",
        "project_id": "acme",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "workerdiag@example.org",
        "token_uri": "http://127.0.0.1:9/token",
    }
    path.write_text(json.dumps(account))
    return path


def _azure() -> Scene:
    def get_token(*_: object, **__: object) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("not-a-token", int(NOW) + 36000)

    credentials = SimpleNamespace(get_token=get_token)
    return _of("AzureVMCluster", uuid=CLUSTER, subscription_id="s", resource_group="g", credentials=credentials)


def _coiled() -> Scene:
    """A cluster whose connection never answers: the package needs a server that answers before it has one."""
    cloud = SimpleNamespace(cluster_details=lambda **_: threading.Event().wait())
    cluster = type("Cluster", (), {"__module__": "coiled.v2.cluster"})()
    vars(cluster).update(name="lab", cluster_id=17, workspace="lab", cloud=cloud)
    return scene(victim("tls://10.0.3.187:43629"), cluster=cluster)


def _in_a_unit() -> Scene:
    host = Identity(host="10.0.0.4")
    here = Location(role="client", identity=host, hostname="box")
    nanny = Location(
        role="nanny", identity=host, hostname="box", cgroups={"": "/system.slice/dask-worker@1.service"}
    )
    return scene(victim("tcp://10.0.0.4:34937"), locations=(here, nanny))


def _frozen() -> Scene:
    """A worker whose nanny is there, and does not answer."""
    return evolve(_with(KEY="value"), client=silent_client())
