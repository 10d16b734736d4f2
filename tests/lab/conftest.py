"""
One cluster per test, and on failure everything that one needs to see why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from support.lab_logs import reported_texts, show_if_failed
from workerdiag import Diagnosis
from workerdiag.api import auto

from .catalogue import Aftermath
from .cluster import Lab
from .faults import FAULTS
from .kernel import UnavailableError
from .processes import PATIENCE_S
from .promises import check_note, check_promises

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]

_LOGS = pytest.StashKey[Lab]()


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """
    An empty lab, cleaned up whatever the test does to it; how fast a note comes is a matter of benchmarks.
    """
    monkeypatch.setattr(auto, "PATIENCE_S", PATIENCE_S)
    with Lab(tmp_path) as lab:
        request.node.stash[_LOGS] = lab
        yield lab


@pytest.fixture
def boxes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The folder for black boxes, here and in all processes that the lab starts.
    """
    folder = lab.folder / "boxes"
    monkeypatch.setenv("WORKERDIAG_RECORDER_DIRECTORY", str(folder))
    return folder


@pytest.fixture
def provoke(lab: Lab) -> Callable[[str], Aftermath]:
    """
    Brings a fault about, by its name.
    """

    def provoke(name: str) -> Aftermath:
        try:
            return FAULTS[name](lab)
        except UnavailableError as problem:
            pytest.skip(str(problem))

    return provoke


@pytest.fixture
def explain(request: pytest.FixtureRequest) -> Callable[..., Diagnosis]:
    """
    What workerdiag says, after a look at what holds of every diagnosis.
    """
    said = reported_texts(request.node)

    def explain(aftermath: Aftermath, *, timeout: str = "30s") -> Diagnosis:
        diagnosis = aftermath.explain(timeout=timeout)
        said.append(str(diagnosis))
        check_promises(diagnosis)
        check_note(aftermath.exc, is_noted=aftermath.is_noted)
        return diagnosis

    return explain


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """
    Show, with a failure, what we said and where the logs are.
    """
    report = yield
    if show_if_failed(item, report) and (lab := item.stash.get(_LOGS, None)):
        report.sections.append(("logs of this cluster", "\n".join(map(str, lab.logs))))
    return report
