"""Kubernetes compiled from Debian's source package: no registry that we use has it ready.

Version 1.20 with Go 1.19, both of Debian 12; about five minutes on two idle cores, 360 MB. Set
``WORKERDIAG_K8S_BIN`` to a folder that keeps the result between runs. An interrupted build goes
on where it was: each finished step leaves a stamp, and Go keeps what it has compiled.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .debian import fetch_source

_SOURCE = "kubernetes"
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
    """The folder with the programs; what is missing is compiled first, however long that takes.

    One build at a time on one folder; a second one waits for the first.
    """
    folder = Path(os.environ.get("WORKERDIAG_K8S_BIN", "/var/tmp/workerdiag-k8s/bin"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(_done(folder / each, _recipe(each)) for each in _PROGRAMS):
            _compile(folder)
        if not _done(folder / "pause", _PAUSE):
            (folder / "pause.c").write_text(_PAUSE)
            _make(folder / "pause", ["gcc", "-static", "-O1", folder / "pause.c"])
            _stamp(folder / "pause", _PAUSE)
    return folder


def _compile(folder: Path) -> None:
    if not all(map(shutil.which, ("go", "dpkg-source", "etcd", "containerd", "runc", "ip"))):
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES], check=True)
    work = folder.parent / "go"
    tree = work / "src" / "k8s.io" / "kubernetes"
    if not _done(tree, _SOURCE):
        shutil.rmtree(tree, ignore_errors=True)
        tree.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-source", "-x", fetch_source(work, _SOURCE), tree], check=True)
        _stamp(tree, _SOURCE)
    go = {**os.environ, **_GO, "GOPATH": str(work), "GOCACHE": str(work / "cache")}
    generated = tree / "pkg" / "generated" / "openapi" / "zz_generated.openapi.go"
    if not _done(generated, _SOURCE):
        _generate_openapi(folder, tree, go)
        _stamp(generated, _SOURCE)
    for name in _PROGRAMS:
        if not _done(folder / name, _recipe(name)):
            _make(folder / name, ["go", "build", "-ldflags", _version(), f"./cmd/{name}"], cwd=tree, env=go)
            _stamp(folder / name, _recipe(name))


def _make(program: Path, command: list[str | Path], **where: Any) -> None:
    """Run a compiler; *program* is there only when it is whole."""
    sys.stderr.write(f"compiling {program.name}\n")
    part = program.with_suffix(".part")
    at = command.index("build") + 1 if "build" in command else 1
    subprocess.run([*command[:at], "-o", part, *command[at:]], check=True, **where)
    part.replace(program)


def _recipe(name: str) -> str:
    """Everything that decides what a program becomes; another recipe makes it anew."""
    return f"{_SOURCE} {name} {_version()} {_GO}"


def _stamp(result: Path, recipe: str) -> None:
    result.with_name(f"{result.name}.done").write_text(recipe)


def _done(result: Path, recipe: str) -> bool:
    """Whether a step was finished by this very recipe, and its result is there."""
    noted = result.with_name(f"{result.name}.done")
    return result.exists() and noted.exists() and noted.read_text() == recipe


def _generate_openapi(folder: Path, tree: Path, go: dict[str, str]) -> None:
    """Make the one generated file that the source package lacks."""
    program = folder / "openapi-gen"
    vendored = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    _make(program, ["go", "build", vendored], cwd=tree, env=go)
    packages = ",".join(f"k8s.io/kubernetes/{each}" for each in sorted(_marked(tree)))
    generated = "k8s.io/kubernetes/pkg/generated/openapi"
    command = [
        *(program, "--logtostderr", "-i", packages, "-p", generated, "-O", "zz_generated.openapi"),
        *("-h", "hack/boilerplate/boilerplate.generatego.txt"),
        *("-r", folder / "violations.txt", "--output-base", Path(go["GOPATH"]) / "src"),
    ]
    subprocess.run(command, cwd=tree, env=go, check=True)


def _marked(tree: Path) -> set[str]:
    """Folders with types that ask for an OpenAPI definition."""
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


def _version() -> str:
    """Link flags that tell the programs their version, without which they refuse each other."""
    said = {"gitVersion": "v1.20.2", "gitMajor": "1", "gitMinor": "20"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    homes = ("", "k8s.io/kubernetes/vendor/")
    settings = [f"-X {home}{each}.{key}={said[key]}" for home in homes for each in packages for key in said]
    return " ".join(["-s", "-w", *settings])
