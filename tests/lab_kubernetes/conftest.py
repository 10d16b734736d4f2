"""One Kubernetes cluster for all tests of this folder; it is left running, for the next time."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from .binaries import build
from .deaths import cleared
from .node import HOME, NAMESPACE, enter, running, up
from .pods import scheduler

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> None:
    """A cluster of one node, in whose network this process is from now on."""
    if os.geteuid() or shutil.which("kubectl") is None:
        pytest.skip("needs root and kubectl")
    binaries = build()
    if Path("/run/netns", NAMESPACE).exists():
        enter()
    if not running():
        up(binaries)


@pytest.fixture
def client(cluster: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a scheduler beside the node, with a kubeconfig of the administrator."""
    monkeypatch.setenv("KUBECONFIG", str(HOME / "kubeconfig"))
    with cleared(), scheduler() as client:
        yield client
