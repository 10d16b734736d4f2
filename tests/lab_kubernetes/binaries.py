"""
Kubernetes compiled from Debian's source package: no registry that we use has it ready.

Version 1.20 with Go 1.19, both of Debian 12; about five minutes on two cores, 360 MB. Set
``WORKERDIAG_K8S_BIN`` to a folder that keeps the result between runs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PROGRAMS = ("kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler")
_PACKAGES = (
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "golang-go",
    "dpkg-dev",
    "iproute2",
)
#: The tree is older than Go's modules would have it.
_GO = {"GO111MODULE": "off", "CGO_ENABLED": "0", "GOFLAGS": ""}
#: Keeps a pod's namespaces; ends when asked to, and reaps orphans.
_PAUSE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) { signal(SIGINT, end); signal(SIGTERM, end); signal(SIGCHLD, reap); for (;;) pause(); }
"""


def build() -> Path:
    """
    The folder with the programs; what is missing is compiled first.

    The machine's apt must know Debian's source packages (``deb-src``).
    """
    folder = Path(os.environ.get("WORKERDIAG_K8S_BIN", "/var/tmp/workerdiag-k8s/bin"))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "pause").exists():
        source = folder / "pause.c"
        source.write_text(_PAUSE)
        subprocess.run(["gcc", "-static", "-O1", "-o", folder / "pause", source], check=True)
    if not all((folder / each).exists() for each in _PROGRAMS):
        _compile(folder)
    return folder


def _compile(folder: Path) -> None:
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES], check=True)
    work = folder.parent / "go"
    tree = work / "src" / "k8s.io" / "kubernetes"
    if not tree.exists():
        tree.parent.mkdir(parents=True)
        subprocess.run(["apt-get", "source", "--download-only", "kubernetes"], cwd=work, check=True)
        (described,) = work.glob("kubernetes_*.dsc")
        subprocess.run(["dpkg-source", "-x", described, tree], check=True)
    go = {**os.environ, **_GO, "GOPATH": str(work), "GOCACHE": str(work / "cache")}
    _generate_openapi(folder, tree, go)
    for name in _PROGRAMS:
        command = ["go", "build", "-ldflags", _stamp(), "-o", folder / name, f"./cmd/{name}"]
        subprocess.run(command, cwd=tree, env=go, check=True)


def _generate_openapi(folder: Path, tree: Path, go: dict[str, str]) -> None:
    """
    Make the one generated file that the source package lacks.
    """
    program = folder / "openapi-gen"
    vendored = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    subprocess.run(["go", "build", "-o", program, vendored], cwd=tree, env=go, check=True)
    packages = ",".join(f"k8s.io/kubernetes/{each}" for each in sorted(_marked(tree)))
    generated = "k8s.io/kubernetes/pkg/generated/openapi"
    command = [
        *(program, "--logtostderr", "-i", packages, "-p", generated, "-O", "zz_generated.openapi"),
        *("-h", "hack/boilerplate/boilerplate.generatego.txt"),
        *("-r", folder / "violations.txt", "--output-base", Path(go["GOPATH"]) / "src"),
    ]
    subprocess.run(command, cwd=tree, env=go, check=True)


def _marked(tree: Path) -> set[str]:
    """
    Folders with types that ask for an OpenAPI definition.
    """
    passed = ("code-generator", "sample-apiserver", "kube-openapi", "gengo")
    vendored = [each for each in (tree / "vendor" / "k8s.io").iterdir() if each.name not in passed]
    found = set()
    for top in (tree / "pkg", tree / "cmd", tree / "plugin", *vendored):
        for folder, _, names in os.walk(top, followlinks=True):
            for name in names:
                if not name.endswith(".go") or name.endswith("_test.go") or "zz_generated" in name:
                    continue
                if b"+k8s:openapi-gen=" in Path(folder, name).read_bytes():
                    found.add(str(Path(folder).relative_to(tree)))
                    break
    return found


def _stamp() -> str:
    """
    Link flags that tell the programs their version, without which they refuse each other.
    """
    said = {"gitVersion": "v1.20.2", "gitMajor": "1", "gitMinor": "20"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    homes = ("", "k8s.io/kubernetes/vendor/")
    settings = [f"-X {home}{each}.{key}={said[key]}" for home in homes for each in packages for key in said]
    return " ".join(["-s", "-w", *settings])
