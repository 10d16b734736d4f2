"""One cluster per test, and on failure everything needed to see why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import dask
import pytest

from support.lab_logs import reported_texts, show_if_failed
from workerdiag import Diagnosis

from .catalogue import Aftermath
from .cluster import PATIENT, Lab
from .faults import FAULTS
from .kernel import UnavailableError
from .promises import check_agreement, check_note, check_promises
from .surroundings import PLACES, Surroundings

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]

_LOGS = pytest.StashKey[Lab]()
#: Name of a test's property: the last line shown of its killed task's exception.
_LAST_LINE = "last line"


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Yield an empty lab and clean it up."""
    with dask.config.set(PATIENT), Lab(tmp_path) as lab:
        request.node.stash[_LOGS] = lab
        yield lab


@pytest.fixture
def boxes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for black boxes, for this process and all that the lab starts."""
    folder = lab.folder / "boxes"
    monkeypatch.setenv("WORKERDIAG_RECORDER_DIRECTORY", str(folder))
    return folder


@pytest.fixture
def provoke(lab: Lab) -> Callable[[str], Aftermath]:
    """Return a function that provokes a fault by its name."""

    def provoke(name: str) -> Aftermath:
        try:
            return FAULTS[name](lab)
        except UnavailableError as problem:
            pytest.skip(str(problem))

    return provoke


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """Yield the places that show exceptions, with one kernel for all tests."""
    with Surroundings(tmp_path_factory.mktemp("surroundings")) as places:
        yield places


@pytest.fixture
def explain(request: pytest.FixtureRequest, surroundings: Surroundings) -> Callable[..., Diagnosis]:
    """Return a function for the diagnosis, which first checks the promises of every diagnosis and note."""
    said = reported_texts(request.node)

    def explain(aftermath: Aftermath, *, timeout: str = "30s") -> Diagnosis:
        diagnosis = aftermath.explain(timeout=timeout)
        said.append(str(diagnosis))
        check_promises(diagnosis)
        if note := check_note(aftermath.exc, is_noted=aftermath.is_noted):
            if not aftermath.logs:  # which the note could not know
                check_agreement(note, diagnosis)
            request.node.user_properties.append((_LAST_LINE, surroundings.check_last_line(aftermath.exc, note)))
        return diagnosis

    return explain


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the diagnosis and the paths of the logs to a failure."""
    report = yield
    if show_if_failed(item, report) and (lab := item.stash.get(_LOGS, None)):
        report.sections.append(("logs of this cluster", "\n".join(map(str, lab.logs))))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the last line of each killed task's exception, so that a person can judge how they read."""
    reports = [each for each in terminalreporter.getreports("passed") if each.when == "call"]
    lines = [(each.nodeid, dict(each.user_properties).get(_LAST_LINE)) for each in reports]
    if noted := [f"{name.rpartition('::')[2]}: {line}" for name, line in lines if line]:
        terminalreporter.section(
            f"the last line of {len(noted)} exceptions, shown in notebook, {', '.join(PLACES)}"
        )
        for each in noted:
            terminalreporter.write_line(each)
