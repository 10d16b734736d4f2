"""One Slurm for all deaths, and the slowest death begun before the others."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.lab_logs import reported_texts, show_if_failed

from .slurm import Slurm, UnavailableError

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")

from .cluster import Cluster
from .death import Death
from .record import recorded


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm of our own, which commands find by the environment."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # sockets want short paths
    slurm = Slurm(folder)
    kept = dict(os.environ)
    try:
        slurm.start()
        os.environ.update(slurm.environment)
        yield slurm
    except UnavailableError as problem:
        pytest.skip(str(problem))
    finally:
        slurm.stop()
        os.environ.clear()
        os.environ.update(kept)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def walltime(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Death]:
    """A job of one minute with a task that takes longer: Slurm counts in minutes, so it is begun first."""
    with Cluster(slurm, tmp_path_factory.mktemp("walltime"), walltime="00:01:00") as cluster:
        cluster.wait()
        yield Death.of_waiting(cluster)


@pytest.fixture
def cluster(slurm: Slurm, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster with one job; given are more of ``SLURMCluster``'s options."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Cluster(slurm, tmp_path, **options))


@pytest.fixture
def explain(request: pytest.FixtureRequest, slurm: Slurm) -> Callable[..., Any]:
    """What workerdiag says of a death, after a look at what holds of every diagnosis."""
    said = reported_texts(request.node)

    def explain(death: Death) -> Any:
        diagnosis = death.explain()
        said.append(str(diagnosis))
        recorded(death, request.node.name.removeprefix("test_"), slurm)
        chances = [cause.probability for cause in diagnosis.causes]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) + diagnosis.unknown_probability == pytest.approx(1)
        return diagnosis

    return explain


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show, with a failure, what we said."""
    report = yield
    show_if_failed(item, report)
    return report
