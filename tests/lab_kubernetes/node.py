"""A Kubernetes cluster of one node on this machine, without any downloaded binary.

Everything lives in a network namespace of its own (10.88.0.1), so that it meets nothing else on
the machine. Needs root, ``etcd``, ``containerd``, ``runc``, ``kubectl`` and the binaries that
`binaries.build` makes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .images import pack

#: Where state, logs and images are kept.
HOME = Path(os.environ.get("WORKERDIAG_K8S_HOME", "/var/tmp/workerdiag-k8s"))
NAMESPACE = "workerdiag-k8s"
ADDRESS = "10.88.0.1"
SERVER = "https://127.0.0.1:16443"
#: Of the administrator; the server listens inside the namespace only.
TOKEN = "lab-administrator"
NODE = "node1"
_ETCD = "http://127.0.0.1:12379"
_SOCKET = Path("/run/workerdiag-k8s/containerd.sock")
_PAUSE, DASK = "docker.io/lab/pause:1", "docker.io/lab/dask:1"

#: ``include/uapi/linux/sched.h``.
_CLONE_NEWNET = 0x40000000


def enter() -> None:
    """Move this process, and what it starts from now on, into the cluster's network."""
    handle = os.open(f"/run/netns/{NAMESPACE}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET):  # os.setns is there from Python 3.12
        raise OSError(ctypes.get_errno(), "setns")
    os.close(handle)


def up(binaries: Path) -> None:
    """Start the cluster and wait until its node is ready."""
    _network()
    enter()
    for folder in ("log", "pid", "cert", "cni"):
        (HOME / folder).mkdir(parents=True, exist_ok=True)
    _SOCKET.parent.mkdir(exist_ok=True)
    _start("etcd", ["etcd", "--data-dir", str(HOME / "etcd"), *_etcd_urls()])
    _keys()
    _start("kube-apiserver", [str(binaries / "kube-apiserver"), *_apiserver()])
    until(lambda: ask("/readyz") == b"ok", within_s=60)
    kubeconfig = str(write_kubeconfig(HOME / "kubeconfig", SERVER, TOKEN))
    manager = [
        f"--service-account-private-key-file={HOME}/cert/sa.key",
        "--node-monitor-grace-period=16s",
        "--pod-eviction-timeout=10s",
    ]
    for name, more in (("kube-controller-manager", manager), ("kube-scheduler", [])):
        common = [
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            "--port=0",
            "--leader-elect=false",
        ]
        _start(name, [str(binaries / name), *common, *more])
    start_kubelet(binaries)


def start_kubelet(binaries: Path) -> None:
    """Start the container runtime and the kubelet, and wait until the node is ready."""
    (HOME / "containerd.toml").write_text(_containerd())
    (HOME / "cni" / "10-lab.conflist").write_text(
        '{"cniVersion":"0.4.0","name":"lab","plugins":[{"type":"loopback"}]}'
    )
    (HOME / "kubelet.yaml").write_text(json.dumps(_kubelet()))
    pack(HOME / "pause.tar", _PAUSE, command="/pause", program=binaries / "pause")
    pack(HOME / "dask.tar", DASK)
    (HOME / "node.sh").write_text(_node_script(binaries))
    _start("kubelet", ["unshare", "--mount", "--cgroup", "sh", str(HOME / "node.sh")])
    until(_ready, within_s=90)


def kill(*names: str) -> None:
    """Kill processes of the cluster by the names they were started under."""
    for name in names:
        noted = HOME / "pid" / f"{name}.pid"
        if noted.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(noted.read_text()), signal.SIGKILL)
            noted.unlink()


def down() -> None:
    """End everything in the cluster's network, containers too, and forget the network."""
    kill("kubelet", "containerd", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
    listed = subprocess.run(["ip", "netns", "pids", NAMESPACE], capture_output=True, text=True, check=False)
    for pid in map(int, listed.stdout.split()):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


def running() -> bool:
    """Whether the cluster is up; must be asked from inside its network."""
    try:
        return ask("/readyz", within_s=2) == b"ok"
    except OSError:
        return False


def ask(path: str, *, within_s: float = 5) -> bytes:
    """What the API server answers to a GET by the administrator."""
    request = urllib.request.Request(SERVER + path, headers={"Authorization": f"Bearer {TOKEN}"})
    trusting = ssl._create_unverified_context()
    with urllib.request.urlopen(request, timeout=within_s, context=trusting) as answer:
        return answer.read()


def kubectl(*arguments: str, stdin: str | None = None, check: bool = True) -> str:
    """What ``kubectl`` prints, as the administrator."""
    command = ["kubectl", "--kubeconfig", str(HOME / "kubeconfig"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def until(true: Callable[[], object], *, within_s: float) -> None:
    """Wait until *true* is true; what it raises meanwhile counts as not yet.

    Raises:
        TimeoutError: It never was.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if true():
                return
        except (OSError, RuntimeError):
            pass
        time.sleep(0.3)
    raise TimeoutError(f"not within {within_s} s: {true}")


def write_kubeconfig(path: Path, server: str, token: str, *, namespace: str = "default") -> Path:
    """A kubeconfig for *server*, as people have one in their home."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": namespace}}],
        "current-context": "lab",
    }
    path.write_text(json.dumps(config))
    return path


def _ready() -> bool:
    node = json.loads(ask(f"/api/v1/nodes/{NODE}"))
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def _network() -> None:
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=False, stderr=subprocess.DEVNULL)

    ip("netns", "add", NAMESPACE)
    ip("-n", NAMESPACE, "link", "set", "lo", "up")
    ip("-n", NAMESPACE, "link", "add", "lab0", "type", "bridge")
    ip("-n", NAMESPACE, "addr", "add", f"{ADDRESS}/24", "dev", "lab0")
    ip("-n", NAMESPACE, "link", "set", "lab0", "up")
    ip("-n", NAMESPACE, "route", "add", "default", "via", ADDRESS)


def _keys() -> None:
    private, public = HOME / "cert" / "sa.key", HOME / "cert" / "sa.pub"
    if not private.exists():
        subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, stderr=subprocess.DEVNULL)
        command = ["openssl", "rsa", "-in", private, "-pubout", "-out", public]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    (HOME / "cert" / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')


def _start(name: str, command: list[str]) -> None:
    with (HOME / "log" / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (HOME / "pid" / f"{name}.pid").write_text(str(process.pid))


def _etcd_urls() -> list[str]:
    peer = "http://127.0.0.1:12380"
    return [
        *("--listen-client-urls", _ETCD, "--advertise-client-urls", _ETCD, "--listen-peer-urls", peer),
        *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
    ]


def _apiserver() -> list[str]:
    return [
        f"--etcd-servers={_ETCD}",
        "--bind-address=127.0.0.1",
        f"--advertise-address={ADDRESS}",
        "--secure-port=16443",
        f"--cert-dir={HOME}/cert",
        f"--token-auth-file={HOME}/cert/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--service-account-issuer=https://lab",
        f"--service-account-key-file={HOME}/cert/sa.pub",
        f"--service-account-signing-key-file={HOME}/cert/sa.key",
        "--disable-admission-plugins=ServiceAccount",  # pods need no token here
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _containerd() -> str:
    # Where root lacks CAP_SYS_RESOURCE, runc cannot lower oom_score_adj: hence "restrict".
    return f"""
version = 2
root = "{HOME}/containerd"
state = "{_SOCKET.parent}/state"
[grpc]
  address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{HOME}/cni"
"""


def _kubelet() -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "nodeStatusUpdateFrequency": "4s",
        "volumeStatsAggPeriod": "10s",
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "maxPods": 40,
    }


def _node_script(binaries: Path) -> str:
    # A mount and a cgroup namespace of their own: the pods' memory groups stay below our own group.
    control = f"ctr -a {_SOCKET} -n k8s.io"
    return f"""#!/bin/sh
umount /sys/fs/cgroup/memory && mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory
containerd --config {HOME}/containerd.toml >>{HOME}/log/containerd.log 2>&1 &
echo $! >{HOME}/pid/containerd.pid
for try in 1 2 3 4 5 6 7 8 9 10; do {control} version >/dev/null 2>&1 && break; sleep 0.5; done
for image in pause dask; do {control} images import {HOME}/$image.tar; done
exec {binaries}/kubelet --config={HOME}/kubelet.yaml --kubeconfig={HOME}/kubeconfig \\
  --root-dir={HOME}/kubelet --container-runtime=remote --container-runtime-endpoint=unix://{_SOCKET} \\
  --hostname-override={NODE} --node-ip={ADDRESS} --runtime-cgroups=/ --kubelet-cgroups=/ \\
  --pod-infra-container-image={_PAUSE}
"""
