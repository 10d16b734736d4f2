"""The Kubernetes lab's build resumes after an interruption, and leaves the machine's apt alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab_kubernetes import binaries
from lab_kubernetes.debian import source_lines


class Compiler:
    """Replaces all programs that a build starts; counts what is compiled, and can be interrupted."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.interrupted_at = ""

    def __call__(self, command: list[Any], **_: Any) -> subprocess.CompletedProcess[str]:
        words = [str(each) for each in command]
        if words[0] == "dpkg-source":
            Path(words[-1], "pkg", "generated", "openapi").mkdir(parents=True)
        if "--output-base" in words:
            generated = "k8s.io/kubernetes/pkg/generated/openapi/zz_generated.openapi.go"
            Path(words[words.index("--output-base") + 1], generated).write_text("package openapi")
        if "-o" in words:
            made = Path(words[words.index("-o") + 1])
            made.write_text("half")
            if made.stem == self.interrupted_at:
                raise KeyboardInterrupt
            self.compiled.append(made.stem)
        return subprocess.CompletedProcess(words, 0, "")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """The stand-in, in folders of its own."""
    compiler = Compiler()
    monkeypatch.setenv("WORKERDIAG_K8S_BIN", str(tmp_path / "bin"))
    monkeypatch.setattr(subprocess, "run", compiler)
    monkeypatch.setattr(binaries, "fetch_source", lambda *_: "kubernetes.dsc")
    monkeypatch.setattr(binaries, "_marked", lambda _: set())
    return compiler


def test_an_interrupted_build_goes_on_where_it_was(compiler: Compiler, tmp_path: Path) -> None:
    """What was finished is not compiled again, and what was not finished is never taken for a program."""
    compiler.interrupted_at = "kubelet"
    with pytest.raises(KeyboardInterrupt):
        binaries.build()
    assert compiler.compiled == ["openapi-gen", "kube-apiserver"]
    assert not (tmp_path / "bin" / "kubelet").exists()

    compiler.interrupted_at = ""
    assert binaries.build() == tmp_path / "bin"
    binaries.build()
    assert compiler.compiled == [
        *("openapi-gen", "kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "pause"),
    ]


def test_another_recipe_is_compiled_anew(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept program is of today's recipe."""
    binaries.build()
    compiler.compiled.clear()
    monkeypatch.setattr(binaries, "_version", lambda: "-X version=another")
    binaries.build()
    assert "kubelet" in compiler.compiled
    assert "openapi-gen" not in compiler.compiled


def test_sources_come_from_where_the_binaries_do() -> None:
    """For each index of Debian's own main packages there is a line for their sources; others are left out."""
    listed = "Debian main http://mirror.example/debian bookworm\nOther main http://other.example/apt stable\n"
    assert source_lines(listed) == ["deb-src http://mirror.example/debian bookworm main"]
